// Vector row of the rotary embedding.
// clang-format off: the order matters, foreach_target.h includes this file once per target
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/rope_hwy.cc"
#include "backends/cpu/hwy_targets.h"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
// clang-format on

#include <cmath>
#include <cstring>

#include "backends/cpu/lane_tree-inl.h"

#if ENGINE_HWY_FMA_TARGET
HWY_BEFORE_NAMESPACE();
namespace engine::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// a' = fma(a, c, -(b*s)), b' = fma(a, s, b*c)
struct Rotated {
  VF a, b;
};
HWY_INLINE Rotated rotate(VF a, VF b, VF c, VF s) {
  return {hn::MulSub(a, c, hn::Mul(b, s)), hn::MulAdd(a, s, hn::Mul(b, c))};
}

HWY_INLINE void rotate_adjacent(const float* x, const float* cos, const float* sin, int64_t n_pairs,
                                float* out) {
  const DF d;
  const int64_t n = kLanesF;
  int64_t i = 0;
  for (; i + n <= n_pairs; i += n) {
    VF a, b;
    hn::LoadInterleaved2(d, x + 2 * i, a, b);
    const Rotated r = rotate(a, b, hn::LoadU(d, cos + i), hn::LoadU(d, sin + i));
    hn::StoreInterleaved2(r.a, r.b, d, out + 2 * i);
  }
  for (; i < n_pairs; ++i) {
    const float a = x[2 * i];
    const float b = x[2 * i + 1];
    out[2 * i] = std::fma(a, cos[i], -(b * sin[i]));
    out[2 * i + 1] = std::fma(a, sin[i], b * cos[i]);
  }
}

HWY_INLINE void rotate_halves(const float* x, const float* cos, const float* sin, int64_t n_pairs,
                              float* out) {
  const DF d;
  const int64_t n = kLanesF;
  int64_t i = 0;
  for (; i + n <= n_pairs; i += n) {
    const Rotated r = rotate(hn::LoadU(d, x + i), hn::LoadU(d, x + n_pairs + i),
                             hn::LoadU(d, cos + i), hn::LoadU(d, sin + i));
    hn::StoreU(r.a, d, out + i);
    hn::StoreU(r.b, d, out + n_pairs + i);
  }
  const size_t rest = static_cast<size_t>(n_pairs - i);
  if (rest > 0) {
    const Rotated r = rotate(hn::LoadN(d, x + i, rest), hn::LoadN(d, x + n_pairs + i, rest),
                             hn::LoadN(d, cos + i, rest), hn::LoadN(d, sin + i, rest));
    hn::StoreN(r.a, d, out + i, rest);
    hn::StoreN(r.b, d, out + n_pairs + i, rest);
  }
}

void rope(const void* raw_args) {
  const RopeArgs& args = *static_cast<const RopeArgs*>(raw_args);
  const int64_t n_pairs = args.n_rot / 2;
  for (int64_t t = 0; t < args.n_tokens; ++t) {
    const float* cos = args.angles + t * args.angles_stride;
    const float* sin = cos + n_pairs;
    for (int64_t h = 0; h < args.n_heads; ++h) {
      const float* x = args.x + t * args.x_stride + h * args.head_dim;
      float* out = args.out + t * args.out_stride + h * args.head_dim;
      if (args.pairing == RopePairing::kAdjacent) {
        rotate_adjacent(x, cos, sin, n_pairs, out);
      } else {
        rotate_halves(x, cos, sin, n_pairs, out);
      }
      const size_t rest = static_cast<size_t>(args.head_dim - args.n_rot);
      if (rest > 0 && out != x) std::memcpy(out + args.n_rot, x + args.n_rot, rest * sizeof(float));
    }
  }
}

}  // namespace engine::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // ENGINE_HWY_FMA_TARGET

#if HWY_ONCE
namespace engine {
ENGINE_HWY_ENTRY(rope_hwy, rope)
}  // namespace engine
#endif  // HWY_ONCE
