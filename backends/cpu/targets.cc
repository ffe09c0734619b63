// Detects the CPU targets of this machine.
#include "backends/cpu/targets.h"

#include <array>
#include <cstddef>

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

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
    case Target::kAvx3Spr:
    case Target::kAmx: return HWY_AVX3_SPR;
  }
  return 0;
}

// AMX needs a CPU that has tiles of int8, and a process that may use them: Linux grants that on request, once and for
// all threads (Documentation/arch/x86/xstate.rst). What it costs is a larger signal frame in threads that hold tiles.
bool may_use_amx() {
#if defined(__x86_64__) && defined(__linux__)
  constexpr unsigned kTileAndInt8 = (1u << 24) | (1u << 25);  // CPUID leaf 7, EDX
  constexpr long kRequestPermission = 0x1023;                 // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;                              // XFEATURE_XTILE_DATA
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 &&
         (edx & kTileAndInt8) == kTileAndInt8 &&
         syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

struct TargetList {
  std::array<Target, kNumTargets> targets;
  size_t count = 0;
};

TargetList detect() {
  constexpr Target kBestFirst[] = {Target::kAmx,  Target::kAvx3Spr, Target::kAvx3Dl, Target::kAvx3,
                                   Target::kAvx2, Target::kNeon,    Target::kScalar};
  const int64_t available = hwy::SupportedTargets() & HWY_TARGETS;
  TargetList list;
  for (const Target target : kBestFirst) {
    if (target == Target::kAmx && ((available & HWY_AVX3_SPR) == 0 || !may_use_amx())) continue;
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
