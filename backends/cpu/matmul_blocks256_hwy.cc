// Vector matmul rows of the 256-element formats Q2_K, Q3_K, Q4_K, Q5_K and Q6_K, as stored in the
// file.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/matmul_blocks256_hwy.cc"
#include "backends/cpu/hwy_targets.h"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target.h
#include "backends/cpu/matmul_blocks256-inl.h"

#if ENGINE_HWY_FMA_TARGET
HWY_BEFORE_NAMESPACE();
namespace engine::HWY_NAMESPACE {

// Q4_K and Q5_K: eight scales and eight minimums of six bits in twelve bytes.
HWY_INLINE U64Pair unpack_k4(const uint8_t* packed) {
  const uint32_t s0 = load_as<uint32_t>(packed);
  const uint32_t s1 = load_as<uint32_t>(packed + 4);
  const uint32_t s2 = load_as<uint32_t>(packed + 8);
  const uint32_t scale_high = (s2 & 0x0F0F0F0Fu) | ((s0 >> 2) & 0x30303030u);
  const uint32_t min_high = ((s2 >> 4) & 0x0F0F0F0Fu) | ((s1 >> 2) & 0x30303030u);
  return {(s0 & 0x3F3F3F3Fu) | static_cast<uint64_t>(scale_high) << 32,
          (s1 & 0x3F3F3F3Fu) | static_cast<uint64_t>(min_high) << 32};
}

HWY_INLINE Scales load_k4_scales(const RowGroup& group, int v, int64_t offset) {
  const Wide16 both =
      widen_unsigned(set_rows(unpack_k4(group.row[v] + offset),
                              unpack_k4(group.row[kRowsPerVector == 2 ? v + 4 : v] + offset)));
  // Each minimum counts for two sums of 16.
  return {{both.low, both.low},
          {hn::InterleaveLower(both.high, both.high),
           hn::InterleaveUpper(DI16(), both.high, both.high)}};
}

struct Q4_K {
  using Block = BlockQ4_K;
  static constexpr bool kHasMin = true;
  static constexpr int kOffsetShift = -1;
  static HWY_INLINE Scales load_scales(const RowGroup& group, int v, int64_t offset) {
    return load_k4_scales(group, v, offset + static_cast<int64_t>(offsetof(Block, scales)));
  }
  template <int T>
  static HWY_INLINE void add_dots(const RowGroup& group, int v, int64_t offset,
                                  const Scales& scales, ScaledDots<T>& dots) {
    HWY_UNROLL(8)
    for (int j = 0; j < 4; ++j) {
      const int64_t at = offset + static_cast<int64_t>(offsetof(Block, qs)) + 32 * j;
      const VU8 q0 = load_rows(group, v, at);
      const VU8 q1 = load_rows(group, v, at + 16);
      dots.add32(mask_bits(q0, 15), mask_bits(q1, 15), copy_lane(scales.scale.low, 2 * j), 2 * j);
      dots.add32(mask_bits(shift_bits<4>(q0), 15), mask_bits(shift_bits<4>(q1), 15),
                 copy_lane(scales.scale.low, 2 * j + 1), 2 * j + 1);
    }
  }
};

struct Q5_K {
  using Block = BlockQ5_K;
  static constexpr bool kHasMin = true;
  static constexpr int kOffsetShift = -1;
  static HWY_INLINE Scales load_scales(const RowGroup& group, int v, int64_t offset) {
    return load_k4_scales(group, v, offset + static_cast<int64_t>(offsetof(Block, scales)));
  }
  template <int T>
  static HWY_INLINE void add_dots(const RowGroup& group, int v, int64_t offset,
                                  const Scales& scales, ScaledDots<T>& dots) {
    const int64_t high = offset + static_cast<int64_t>(offsetof(Block, qh));
    const VU8 h0 = load_rows(group, v, high);
    const VU8 h1 = load_rows(group, v, high + 16);
    add64<0>(group, v, offset, h0, h1, scales, dots);
    add64<1>(group, v, offset, h0, h1, scales, dots);
    add64<2>(group, v, offset, h0, h1, scales, dots);
    add64<3>(group, v, offset, h0, h1, scales, dots);
  }

 private:
  // Elements 64j to 64j + 63: the low nibbles with bit 2j of qh, the high ones with bit 2j + 1.
  template <int j, int T>
  static HWY_INLINE void add64(const RowGroup& group, int v, int64_t offset, VU8 h0, VU8 h1,
                               const Scales& scales, ScaledDots<T>& dots) {
    const int64_t at = offset + static_cast<int64_t>(offsetof(Block, qs)) + 32 * j;
    const VU8 q0 = load_rows(group, v, at);
    const VU8 q1 = load_rows(group, v, at + 16);
    dots.add32(hn::Or(mask_bits(q0, 15), mask_bits(shift_bits<2 * j - 4>(h0), 16)),
               hn::Or(mask_bits(q1, 15), mask_bits(shift_bits<2 * j - 4>(h1), 16)),
               copy_lane(scales.scale.low, 2 * j), 2 * j);
    dots.add32(hn::Or(mask_bits(shift_bits<4>(q0), 15), mask_bits(shift_bits<2 * j - 3>(h0), 16)),
               hn::Or(mask_bits(shift_bits<4>(q1), 15), mask_bits(shift_bits<2 * j - 3>(h1), 16)),
               copy_lane(scales.scale.low, 2 * j + 1), 2 * j + 1);
  }
};

struct Q6_K {
  using Block = BlockQ6_K;
  static constexpr bool kHasMin = false;
  static constexpr int kOffsetShift = 5;
  static HWY_INLINE Scales load_scales(const RowGroup& group, int v, int64_t offset) {
    const VU8 bytes = load_rows(group, v, offset + static_cast<int64_t>(offsetof(Block, scales)));
    const Wide16 scale = widen_signed(bytes);
    return {scale, scale};
  }
  template <int T>
  static HWY_INLINE void add_dots(const RowGroup& group, int v, int64_t offset,
                                  const Scales& scales, ScaledDots<T>& dots) {
    // Half h of the block and 16 of its 32 columns: one load of qh serves four sub-blocks.
    HWY_UNROLL(8)
    for (int i = 0; i < 4; ++i) {
      const int h = i / 2;
      const int c = i % 2;
      const int64_t ql = offset + static_cast<int64_t>(offsetof(Block, ql)) + 64 * h + 16 * c;
      const int64_t qh = offset + static_cast<int64_t>(offsetof(Block, qh)) + 32 * h + 16 * c;
      const VU8 low0 = load_rows(group, v, ql);
      const VU8 low1 = load_rows(group, v, ql + 32);
      const VU8 high = load_rows(group, v, qh);
      const int j = 8 * h + c;
      dots.add16(hn::Or(mask_bits(low0, 15), mask_bits(shift_bits<-4>(high), 48)),
                 scale_of(scales, j), j);
      dots.add16(hn::Or(mask_bits(low1, 15), mask_bits(shift_bits<-2>(high), 48)),
                 scale_of(scales, j + 2), j + 2);
      dots.add16(hn::Or(mask_bits(shift_bits<4>(low0), 15), mask_bits(high, 48)),
                 scale_of(scales, j + 4), j + 4);
      dots.add16(hn::Or(mask_bits(shift_bits<4>(low1), 15), mask_bits(shift_bits<2>(high), 48)),
                 scale_of(scales, j + 6), j + 6);
    }
  }
};

struct Q2_K {
  using Block = BlockQ2_K;
  static constexpr bool kHasMin = true;
  static constexpr int kOffsetShift = -1;
  static HWY_INLINE Scales load_scales(const RowGroup& group, int v, int64_t offset) {
    const VU8 bytes = load_rows(group, v, offset + static_cast<int64_t>(offsetof(Block, scales)));
    return {widen_unsigned(mask_bits(bytes, 15)),
            widen_unsigned(mask_bits(shift_bits<4>(bytes), 15))};
  }
  template <int T>
  static HWY_INLINE void add_dots(const RowGroup& group, int v, int64_t offset,
                                  const Scales& scales, ScaledDots<T>& dots) {
    HWY_UNROLL(8)
    for (int i = 0; i < 4; ++i) {  // half i / 2, columns 16 * (i % 2)
      const VU8 q =
          load_rows(group, v, offset + static_cast<int64_t>(offsetof(Block, qs)) + 16 * i);
      const int j = 8 * (i / 2) + i % 2;
      dots.add16(mask_bits(q, 3), scale_of(scales, j), j);
      dots.add16(mask_bits(shift_bits<2>(q), 3), scale_of(scales, j + 2), j + 2);
      dots.add16(mask_bits(shift_bits<4>(q), 3), scale_of(scales, j + 4), j + 4);
      dots.add16(mask_bits(shift_bits<6>(q), 3), scale_of(scales, j + 6), j + 6);
    }
  }
};

struct Q3_K {
  using Block = BlockQ3_K;
  static constexpr bool kHasMin = false;
  static constexpr int kOffsetShift = 2;
  static HWY_INLINE Scales load_scales(const RowGroup& group, int v, int64_t offset) {
    const int64_t at = offset + static_cast<int64_t>(offsetof(Block, scales));
    const VU8 packed = set_rows(unpack(group.row[v] + at),
                                unpack(group.row[kRowsPerVector == 2 ? v + 4 : v] + at));
    const Wide16 scale = widen_signed(hn::Sub(packed, hn::Set(DU8(), 32)));
    return {scale, scale};
  }
  template <int T>
  static HWY_INLINE void add_dots(const RowGroup& group, int v, int64_t offset,
                                  const Scales& scales, ScaledDots<T>& dots) {
    add_half_columns<0>(group, v, offset, scales, dots);
    add_half_columns<1>(group, v, offset, scales, dots);
    add_half_columns<2>(group, v, offset, scales, dots);
    add_half_columns<3>(group, v, offset, scales, dots);
  }

 private:
  // Four bits per scale in bytes 0..7, two upper bits in bytes 8..11; see unpack_q3_k_scales.
  static HWY_INLINE U64Pair unpack(const uint8_t* packed) {
    const uint64_t low = load_as<uint64_t>(packed);
    const uint64_t s2 = load_as<uint32_t>(packed + 8);
    const uint64_t high = s2 | s2 << 30;  // bits 2k of byte i: k = 0 below, k = 1 above
    return {(low & 0x0F0F0F0F0F0F0F0Fu) | (high & 0x0303030303030303u) << 4,
            ((low >> 4) & 0x0F0F0F0F0F0F0F0Fu) | ((high >> 4) & 0x0303030303030303u) << 4};
  }
  // Half i / 2 of the block, columns 16 * (i % 2). Bit 4 * (i / 2) + k of hmask belongs to shift 2k
  // of qs.
  template <int i, int T>
  static HWY_INLINE void add_half_columns(const RowGroup& group, int v, int64_t offset,
                                          const Scales& scales, ScaledDots<T>& dots) {
    constexpr int kBit = 4 * (i / 2);
    constexpr int j = 8 * (i / 2) + i % 2;
    const VU8 q = load_rows(group, v, offset + static_cast<int64_t>(offsetof(Block, qs)) + 16 * i);
    const VU8 h =
        load_rows(group, v, offset + static_cast<int64_t>(offsetof(Block, hmask)) + 16 * (i % 2));
    dots.add16(hn::Or(mask_bits(q, 3), mask_bits(shift_bits<kBit - 2>(h), 4)), scale_of(scales, j),
               j);
    dots.add16(hn::Or(mask_bits(shift_bits<2>(q), 3), mask_bits(shift_bits<kBit - 1>(h), 4)),
               scale_of(scales, j + 2), j + 2);
    dots.add16(hn::Or(mask_bits(shift_bits<4>(q), 3), mask_bits(shift_bits<kBit>(h), 4)),
               scale_of(scales, j + 4), j + 4);
    dots.add16(hn::Or(mask_bits(shift_bits<6>(q), 3), mask_bits(shift_bits<kBit + 1>(h), 4)),
               scale_of(scales, j + 6), j + 6);
  }
};

void matmul_q2_k(const void* args) { for_groups<Blocks256<Q2_K>>(args); }
void matmul_q3_k(const void* args) { for_groups<Blocks256<Q3_K>>(args); }
void matmul_q4_k(const void* args) { for_groups<Blocks256<Q4_K>>(args); }
void matmul_q5_k(const void* args) { for_groups<Blocks256<Q5_K>>(args); }
void matmul_q6_k(const void* args) { for_groups<Blocks256<Q6_K>>(args); }

}  // namespace engine::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // ENGINE_HWY_FMA_TARGET

#if HWY_ONCE
namespace engine {
ENGINE_HWY_ENTRY(matmul_q2_k_hwy, matmul_q2_k)
ENGINE_HWY_ENTRY(matmul_q3_k_hwy, matmul_q3_k)
ENGINE_HWY_ENTRY(matmul_q4_k_hwy, matmul_q4_k)
ENGINE_HWY_ENTRY(matmul_q5_k_hwy, matmul_q5_k)
ENGINE_HWY_ENTRY(matmul_q6_k_hwy, matmul_q6_k)
}  // namespace engine
#endif  // HWY_ONCE
