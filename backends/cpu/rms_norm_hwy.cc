// Vector row of RMSNorm: the float sequence of RmsNormArgs.
// clang-format off: the order matters, foreach_target.h includes this file once per target
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/rms_norm_hwy.cc"
#include "backends/cpu/hwy_targets.h"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
// clang-format on

#include <algorithm>
#include <cmath>

#include "backends/cpu/lane_tree-inl.h"

#if ENGINE_HWY_FMA_TARGET
HWY_BEFORE_NAMESPACE();
namespace engine::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

HWY_INLINE float sum_of_squares(const float* x, int64_t width) {
  const DF d;
  VF lanes[kTreeVectors];
  for (size_t v = 0; v < kTreeVectors; ++v) lanes[v] = hn::Zero(d);
  int64_t i = 0;
  for (; i + kVirtualLanes <= width; i += kVirtualLanes) {
    for (size_t v = 0; v < kTreeVectors; ++v) {
      const VF part = hn::LoadU(d, x + i + v * kLanesF);
      lanes[v] = hn::MulAdd(part, part, lanes[v]);
    }
  }
  // Lanes without an element add +0 * +0, which changes no bit of a sum of squares.
  for (size_t v = 0; v < kTreeVectors && i < width; ++v, i += kLanesF) {
    const VF part = hn::LoadN(d, x + i, static_cast<size_t>(width - i));
    lanes[v] = hn::MulAdd(part, part, lanes[v]);
  }
  return lane_tree_sum_v(lanes);
}

void rms_norm(const void* raw_args) {
  const RmsNormArgs& args = *static_cast<const RmsNormArgs*>(raw_args);
  const DF d;
  const int64_t n = kLanesF;
  for (int64_t row = 0; row < args.n_rows; ++row) {
    const float* x = args.x + row * args.x_stride;
    const float* weight = args.weight;
    float* out = args.out + row * args.out_stride;
    const float mean = sum_of_squares(x, args.width) / static_cast<float>(args.width);
    const VF inv = hn::Set(d, 1.0f / std::sqrt(mean + args.eps));
    int64_t i = 0;
    for (; i + n <= args.width; i += n) {
      VF y = hn::Mul(hn::LoadU(d, x + i), inv);
      if (weight != nullptr) y = hn::Mul(y, hn::LoadU(d, weight + i));
      hn::StoreU(y, d, out + i);
    }
    const size_t rest = static_cast<size_t>(args.width - i);
    if (rest > 0) {
      VF y = hn::Mul(hn::LoadN(d, x + i, rest), inv);
      if (weight != nullptr) y = hn::Mul(y, hn::LoadN(d, weight + i, rest));
      hn::StoreN(y, d, out + i, rest);
    }
  }
}

}  // namespace engine::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // ENGINE_HWY_FMA_TARGET

#if HWY_ONCE
namespace engine {
ENGINE_HWY_ENTRY(rms_norm_hwy, rms_norm)
}  // namespace engine
#endif  // HWY_ONCE
