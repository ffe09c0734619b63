// Vector matmul rows of the 256-element formats Q2_K, Q3_K, Q4_K, Q5_K, Q6_K and IQ4_XS on packed strips.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/matmul_rows16_blocks256_hwy.cc"
#include "backends/cpu/hwy_targets.h"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target.h
#include "backends/cpu/rows16_formats256-inl.h"

#if ENGINE_HWY_FMA_TARGET
HWY_BEFORE_NAMESPACE();
namespace engine::HWY_NAMESPACE {
namespace rows16 {

// The float sequences are those of Symmetric256 and Affine256 in block_rules.h.
template <class F>
struct Blocks256 {
  using Format = F;
  using Act = ActQ8x256;
  static constexpr int kColumns = 256;
  static constexpr int kSubBlocks = 256 / F::kSubColumns;
  static constexpr int kVectors = kSubBlocks / 4;
  static constexpr int kSteps = F::kSubColumns / 4;
  static constexpr int kLines = kRows * static_cast<int>(sizeof(typename F::Block)) / 64;

  // Without VNNI a signed weight is multiplied as |w| * (x with the sign of w), as in Q8_0.
  static constexpr bool kSignedPairs = !kVnni && F::kMaxWeight > 127;

  template <int T>
  static HWY_INLINE void block(const BlockPlace& place, int part, const Act* const (&x)[T],
                               VF32 (&acc)[T]) {
    const Scales<kVectors> scales = F::load_scales(place.body, part);
    VI32 sum[T];
    HWY_UNROLL(8)
    for (int t = 0; t < T; ++t) sum[t] = hn::Zero(DI32());
    if constexpr (F::kOffsetShift >= 0 && !kSignedPairs) {
      add_sums<T, 0>(scales.scale, x, sum);
      HWY_UNROLL(8)
      for (int t = 0; t < T; ++t) {
        sum[t] = hn::Sub(hn::Zero(DI32()), hn::ShiftLeft<F::kOffsetShift>(sum[t]));
      }
    }
    // The dots of high nibbles are times 16: their sum is at most 4 * 63 * 16 * 60,960 < 2^31.
    VI32 high[T];
    HWY_UNROLL(8)
    for (int t = 0; t < T; ++t) high[t] = hn::Zero(DI32());
    groups<T, 0>(place, part, scales.scale, x, sum, high);
    if constexpr (kShiftHigh) {
      HWY_UNROLL(8)
      for (int t = 0; t < T; ++t) sum[t] = hn::Add(sum[t], hn::ShiftRight<4>(high[t]));
    }
    const VF32 d = load_halves(place.halves, part);
    HWY_UNROLL(8)
    for (int t = 0; t < T; ++t) {
      const VF32 scale = hn::Mul(d, hn::Set(DF32(), x[t]->d));
      acc[t] = hn::MulAdd(scale, hn::ConvertTo(DF32(), sum[t]), acc[t]);
    }
    if constexpr (F::kHasMin) {
      VI32 mins[T];
      HWY_UNROLL(8)
      for (int t = 0; t < T; ++t) mins[t] = hn::Zero(DI32());
      add_sums<T, 0>(scales.min, x, mins);
      const VF32 dmin = load_halves(place.halves + kHalvesBytes, part);
      HWY_UNROLL(8)
      for (int t = 0; t < T; ++t) {
        const VF32 scale = hn::Mul(dmin, hn::Set(DF32(), x[t]->d));
        acc[t] = hn::NegMulAdd(scale, hn::ConvertTo(DF32(), mins[t]), acc[t]);
      }
    }
  }

 private:
  // Adds s[j] * (sum of x in sub-block j) of the sub-blocks that the sums 2i and 2i + 1 belong to, and so on.
  template <int T, int i>
  static HWY_INLINE void add_sums(const VU8 (&s)[kVectors], const Act* const (&x)[T],
                                  VI32 (&sum)[T]) {
    const VI16 two = for_two_sums<kVectors, i, F::kSignedScale>(s);
    HWY_UNROLL(8)
    for (int t = 0; t < T; ++t) sum[t] = add_pairs(sum[t], two, load_sums(x[t]->sum16 + 2 * i));
    if constexpr (i + 1 < 8) add_sums<T, i + 1>(s, x, sum);
  }

  // Sub-blocks that share pieces are a group: 2g and 2g + 1, or every second one of eight.
  static constexpr int kMembers = kSubBlocks == 16 ? 4 : 2;
  static constexpr int kGroups = kSubBlocks / kMembers;
  static constexpr int sub_block(int g, int member) {
    return kSubBlocks == 16 ? g / 2 * 8 + g % 2 + 2 * member : 2 * g + member;
  }
  static constexpr bool kShiftHigh = kVnni && F::kNibbles;

  template <int j>
  static HWY_INLINE VU8 weights(const uint8_t* body, int part, int k) {
    if constexpr (kShiftHigh) return F::template weights<j, true>(body, part, k);
    return F::template weights<j>(body, part, k);
  }

  template <int j>
  static HWY_INLINE VU8 pair_weights(const uint8_t* body, int part, int k) {
    if constexpr (kSignedPairs) return F::template signed_weights<j>(body, part, k);
    return F::template weights<j>(body, part, k);
  }
  static HWY_INLINE VI16 products(VU8 w, VI8 x) {
    if constexpr (kSignedPairs) return signed_products(w, x);
    return hn::SatWidenMulPairwiseAdd(DI16(), w, x);
  }

  // Adds scale * dot of the groups from g on.
  template <int T, int g>
  static HWY_INLINE void groups(const BlockPlace& place, int part, const VU8 (&s)[kVectors],
                                const Act* const (&x)[T], VI32 (&sum)[T], VI32 (&high)[T]) {
    if (part == 0) prefetch_lines<T>(place.body, g * kLines / kGroups, (g + 1) * kLines / kGroups);
    members<T, g, 0>(place, part, s, x, sum, high);
    if constexpr (g + 1 < kGroups) groups<T, g + 1>(place, part, s, x, sum, high);
  }

  template <int T, int g, int m>
  static HWY_INLINE void members(const BlockPlace& place, int part, const VU8 (&s)[kVectors],
                                 const Act* const (&x)[T], VI32 (&sum)[T], VI32 (&high)[T]) {
    constexpr int j = sub_block(g, m);
    add_sub_block<T, j>(place, part, s, x, kShiftHigh && m == 1 ? high : sum);
    if constexpr (m + 1 < kMembers) members<T, g, m + 1>(place, part, s, x, sum, high);
  }

  template <int T, int j>
  static HWY_INLINE void add_sub_block(const BlockPlace& place, int part, const VU8 (&s)[kVectors],
                                       const Act* const (&x)[T], VI32 (&sum)[T]) {
    if constexpr (T > 1 || !kVnni) order_loads();
    const Scale scale = scale_of<j % 4, F::kSignedScale>(s[j / 4]);
    if constexpr (kVnni) {
      VI32 dot[T];
      HWY_UNROLL(8)
      for (int k = 0; k < kSteps; ++k) {
        const VU8 w = weights<j>(place.body, part, k);
        HWY_UNROLL(8)
        for (int t = 0; t < T; ++t) {
          dot[t] =
              hn::SumOfMulQuadAccumulate(DI32(), w, load_act(x[t]->q + j * F::kSubColumns + 4 * k),
                                         k == 0 ? hn::Zero(DI32()) : dot[t]);
        }
      }
      HWY_UNROLL(8)
      for (int t = 0; t < T; ++t) sum[t] = hn::Add(sum[t], hn::Mul(dot[t], scale));
    } else {
      constexpr int kAtOnce = kSignedPairs ? 1 : steps_of_int16(F::kMaxWeight);
      VI16 dot[T];
      HWY_UNROLL(8)
      for (int k = 0; k < kSteps; ++k) {
        const VU8 w = pair_weights<j>(place.body, part, k);
        HWY_UNROLL(8)
        for (int t = 0; t < T; ++t) {
          const VI16 pairs = products(w, load_act(x[t]->q + j * F::kSubColumns + 4 * k));
          dot[t] = k % kAtOnce == 0 ? pairs : hn::Add(dot[t], pairs);
          if (k % kAtOnce == kAtOnce - 1 || k + 1 == kSteps) {
            sum[t] = add_pairs(sum[t], dot[t], scale);
          }
        }
      }
    }
  }
};

}  // namespace rows16

void matmul_q2_k_rows16(const void* args) {
  rows16::for_strips<rows16::Blocks256<rows16::Q2_K>>(args);
}
void matmul_q3_k_rows16(const void* args) {
  rows16::for_strips<rows16::Blocks256<rows16::Q3_K>>(args);
}
void matmul_q4_k_rows16(const void* args) {
  rows16::for_strips<rows16::Blocks256<rows16::Q4_K>>(args);
}
void matmul_q5_k_rows16(const void* args) {
  rows16::for_strips<rows16::Blocks256<rows16::Q5_K>>(args);
}
void matmul_q6_k_rows16(const void* args) {
  rows16::for_strips<rows16::Blocks256<rows16::Q6_K>>(args);
}
void matmul_iq4_xs_rows16(const void* args) {
  rows16::for_strips<rows16::Blocks256<rows16::IQ4_XS>>(args);
}

}  // namespace engine::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // ENGINE_HWY_FMA_TARGET

#if HWY_ONCE
namespace engine {
ENGINE_HWY_ENTRY(matmul_q2_k_rows16_hwy, matmul_q2_k_rows16)
ENGINE_HWY_ENTRY(matmul_q3_k_rows16_hwy, matmul_q3_k_rows16)
ENGINE_HWY_ENTRY(matmul_q4_k_rows16_hwy, matmul_q4_k_rows16)
ENGINE_HWY_ENTRY(matmul_q5_k_rows16_hwy, matmul_q5_k_rows16)
ENGINE_HWY_ENTRY(matmul_q6_k_rows16_hwy, matmul_q6_k_rows16)
ENGINE_HWY_ENTRY(matmul_iq4_xs_rows16_hwy, matmul_iq4_xs_rows16)
}  // namespace engine
#endif  // HWY_ONCE
