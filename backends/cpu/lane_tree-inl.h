// The 16 virtual lanes of lane_tree.h in vector registers: 4 of 4, 2 of 8 or 1 of 16 floats.
#if defined(ENGINE_BACKENDS_CPU_LANE_TREE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ENGINE_BACKENDS_CPU_LANE_TREE_INL_H_
#undef ENGINE_BACKENDS_CPU_LANE_TREE_INL_H_
#else
#define ENGINE_BACKENDS_CPU_LANE_TREE_INL_H_
#endif

#include <cstddef>

#include "backends/cpu/hwy_targets.h"
#include "backends/cpu/lane_tree.h"
#include "hwy/highway.h"

#if ENGINE_HWY_FMA_TARGET
HWY_BEFORE_NAMESPACE();
namespace engine::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// At most 16 floats a vector; all our targets have vectors of a size that is known when compiling.
using DF = hn::CappedTag<float, kVirtualLanes>;
using VF = hn::Vec<DF>;
inline constexpr size_t kLanesF = hn::MaxLanes(DF());
// Vectors that hold the virtual lanes: lanes i*kLanesF .. of vector i.
inline constexpr size_t kTreeVectors = kVirtualLanes / kLanesF;

// Destroys `v`. The same additions as lane_tree_sum.
HWY_INLINE float lane_tree_sum_v(VF v[kTreeVectors]) {
  const DF d;
  HWY_UNROLL(4)
  for (size_t half = kTreeVectors / 2; half > 0; half /= 2) {
    for (size_t i = 0; i < half; ++i) v[i] = hn::Add(v[i], v[i + half]);
  }
  HWY_ALIGN float lanes[kLanesF];
  hn::Store(v[0], d, lanes);
  for (size_t width = kLanesF / 2; width > 0; width /= 2) {
    for (size_t i = 0; i < width; ++i) lanes[i] += lanes[i + width];
  }
  return lanes[0];
}

}  // namespace engine::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // ENGINE_HWY_FMA_TARGET

#endif  // include guard
