// Detects the CPU targets of this machine.
#include "backends/cpu/targets.h"

#include <array>
#include <cstddef>

#include "backends/cpu/hwy_targets.h"
#include "hwy/highway.h"
#include "hwy/targets.h"

namespace engine {
namespace {

constexpr int64_t highway_bits(Target target) {
  switch (target) {
    case Target::kScalar: return 0;
    case Target::kNeon: return HWY_NEON_WITHOUT_AES;
    case Target::kAvx2: return HWY_AVX2;
    case Target::kAvx3: return HWY_AVX3;
    case Target::kAvx3Dl: return HWY_AVX3_DL;
    case Target::kAvx3Spr: return HWY_AVX3_SPR;
  }
  return 0;
}

struct TargetList {
  std::array<Target, kNumTargets> targets;
  size_t count = 0;
};

TargetList detect() {
  constexpr Target kBestFirst[] = {Target::kAvx3Spr, Target::kAvx3Dl, Target::kAvx3,
                                   Target::kAvx2,    Target::kNeon,   Target::kScalar};
  const int64_t available = hwy::SupportedTargets() & HWY_TARGETS;
  TargetList list;
  for (const Target target : kBestFirst) {
    if (target == Target::kScalar || (available & highway_bits(target)) != 0) {
      list.targets[list.count++] = target;
    }
  }
  return list;
}

}  // namespace

std::span<const Target> cpu_targets() {
  static const TargetList list = detect();
  return {list.targets.data(), list.count};
}

bool cpu_runs(Target target) {
  for (const Target candidate : cpu_targets()) {
    if (candidate == target) return true;
  }
  return false;
}

}  // namespace engine
