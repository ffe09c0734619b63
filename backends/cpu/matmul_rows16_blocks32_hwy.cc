// Vector matmul rows of the 32-element formats Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, IQ4_NL and MXFP4 on packed
// strips.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/matmul_rows16_blocks32_hwy.cc"
#include "backends/cpu/hwy_targets.h"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target.h
#include "backends/cpu/rows16_formats32-inl.h"

#if ENGINE_HWY_FMA_TARGET
HWY_BEFORE_NAMESPACE();
namespace engine::HWY_NAMESPACE {
namespace rows16 {

// The float sequences are those of Symmetric32 and Affine32 in block_rules.h.
template <class F>
struct Blocks32 {
  using Format = F;
  using Act = ActQ8x32;
  static constexpr int kColumns = 32;
  static constexpr int kBytes = kRows * static_cast<int>(sizeof(typename F::Block));

  template <int T>
  static HWY_INLINE void block(const BlockPlace& place, int part, const Act* const (&x)[T],
                               VF32 (&acc)[T]) {
    if (part == 0) prefetch_lines<T>(place.body, 0, (kBytes + 63) / 64);
    VI32 dot[T];
    HWY_UNROLL(8)
    for (int t = 0; t < T; ++t) dot[t] = hn::Set(DI32(), -F::kOffset * x[t]->sum);
    VI16 pairs[T];
    add_dots<T, 0>(place, part, x, dot, pairs);
    const VF32 d = load_d<F>(place.halves, part);
    HWY_UNROLL(8)
    for (int t = 0; t < T; ++t) {
      const VF32 scale = hn::Mul(d, hn::Set(DF32(), x[t]->d));
      acc[t] = hn::MulAdd(scale, hn::ConvertTo(DF32(), dot[t]), acc[t]);
    }
    if constexpr (F::kHasMin) {
      const VF32 m = load_halves(place.halves + kHalvesBytes, part);
      HWY_UNROLL(8)
      for (int t = 0; t < T; ++t) {
        const VF32 scale = hn::Mul(m, hn::Set(DF32(), x[t]->d));
        acc[t] = hn::MulAdd(scale, hn::Set(DF32(), static_cast<float>(x[t]->sum)), acc[t]);
      }
    }
  }

 private:
  // Adds the products of the columns from 4k on. pairs: sums that are not in `dot` yet (without VNNI).
  template <int T, int k>
  static HWY_INLINE void add_dots(const BlockPlace& place, int part, const Act* const (&x)[T],
                                  VI32 (&dot)[T], VI16 (&pairs)[T]) {
    if constexpr (T > 1 && !kVnni && k % 2 == 0) order_loads();
    const VU8 w = F::template weights<k>(place.body, part);
    HWY_UNROLL(8)
    for (int t = 0; t < T; ++t) {
      const VI8 act = load_act(x[t]->q + 4 * k);
      if constexpr (kVnni) {
        dot[t] = hn::SumOfMulQuadAccumulate(DI32(), w, act, dot[t]);
      } else {
        constexpr int kAtOnce = steps_of_int16(F::kMaxWeight);
        const VI16 two = products(w, act);
        pairs[t] = k % kAtOnce == 0 ? two : hn::Add(pairs[t], two);
        if constexpr (k % kAtOnce == kAtOnce - 1 || k == 7) {
          dot[t] = add_pairs(dot[t], pairs[t], hn::Set(DI16(), 1));
        }
      }
    }
    if constexpr (k < 7) add_dots<T, k + 1>(place, part, x, dot, pairs);
  }

  static HWY_INLINE VI16 products(VU8 w, VI8 x) {
    if constexpr (F::kMaxWeight == 128) return signed_products(w, x);
    return hn::SatWidenMulPairwiseAdd(DI16(), w, x);
  }
};

}  // namespace rows16

void matmul_q4_0_rows16(const void* args) {
  rows16::for_strips<rows16::Blocks32<rows16::Q4_0>>(args);
}
void matmul_q4_1_rows16(const void* args) {
  rows16::for_strips<rows16::Blocks32<rows16::Q4_1>>(args);
}
void matmul_q5_0_rows16(const void* args) {
  rows16::for_strips<rows16::Blocks32<rows16::Q5_0>>(args);
}
void matmul_q5_1_rows16(const void* args) {
  rows16::for_strips<rows16::Blocks32<rows16::Q5_1>>(args);
}
void matmul_q8_0_rows16(const void* args) {
  rows16::for_strips<rows16::Blocks32<rows16::Q8_0>>(args);
}
void matmul_iq4_nl_rows16(const void* args) {
  rows16::for_strips<rows16::Blocks32<rows16::IQ4_NL>>(args);
}
void matmul_mxfp4_rows16(const void* args) {
  rows16::for_strips<rows16::Blocks32<rows16::MXFP4>>(args);
}

}  // namespace engine::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // ENGINE_HWY_FMA_TARGET

#if HWY_ONCE
namespace engine {
ENGINE_HWY_ENTRY(matmul_q4_0_rows16_hwy, matmul_q4_0_rows16)
ENGINE_HWY_ENTRY(matmul_q4_1_rows16_hwy, matmul_q4_1_rows16)
ENGINE_HWY_ENTRY(matmul_q5_0_rows16_hwy, matmul_q5_0_rows16)
ENGINE_HWY_ENTRY(matmul_q5_1_rows16_hwy, matmul_q5_1_rows16)
ENGINE_HWY_ENTRY(matmul_q8_0_rows16_hwy, matmul_q8_0_rows16)
ENGINE_HWY_ENTRY(matmul_iq4_nl_rows16_hwy, matmul_iq4_nl_rows16)
ENGINE_HWY_ENTRY(matmul_mxfp4_rows16_hwy, matmul_mxfp4_rows16)
}  // namespace engine
#endif  // HWY_ONCE
