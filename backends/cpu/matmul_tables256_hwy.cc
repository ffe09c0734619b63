// Vector matmul rows of the 256-element formats IQ4_XS, TQ1_0 and TQ2_0, as stored in the file.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/matmul_tables256_hwy.cc"
#include "backends/cpu/hwy_targets.h"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target.h
#include "backends/cpu/matmul_blocks256-inl.h"

#if ENGINE_HWY_FMA_TARGET
HWY_BEFORE_NAMESPACE();
namespace engine::HWY_NAMESPACE {

struct IQ4_XS {
  using Block = BlockIQ4_XS;
  static constexpr bool kHasMin = false;
  static constexpr int kOffsetShift = -1;
  static HWY_INLINE Scales load_scales(const RowGroup& group, int v, int64_t offset) {
    const VU8 bytes = set_rows(unpack(group.row[v] + offset),
                               unpack(group.row[kRowsPerVector == 2 ? v + 4 : v] + offset));
    const Wide16 scale = widen_signed(hn::Sub(bytes, hn::Set(DU8(), 32)));
    return {scale, scale};
  }
  template <int T>
  static HWY_INLINE void add_dots(const RowGroup& group, int v, int64_t offset,
                                  const Scales& scales, ScaledDots<T>& dots) {
    HWY_UNROLL(8)
    for (int b = 0; b < 8; ++b) {
      const VU8 q =
          load_rows(group, v, offset + static_cast<int64_t>(offsetof(Block, qs)) + 16 * b);
      const VI16 scale = copy_lane(scales.scale.low, b);
      dots.add16_signed(look_up(kIq4Values, mask_bits(q, 15)), scale, 2 * b);
      dots.add16_signed(look_up(kIq4Values, mask_bits(shift_bits<4>(q), 15)), scale, 2 * b + 1);
    }
  }

 private:
  // Nibble b of scales_l with bits 2b of scales_h above it, as byte b.
  static HWY_INLINE U64Pair unpack(const uint8_t* block) {
    uint64_t low = load_as<uint32_t>(block + offsetof(Block, scales_l));
    low = (low | low << 16) & 0x0000FFFF0000FFFFu;
    low = (low | low << 8) & 0x00FF00FF00FF00FFu;
    low = (low | low << 4) & 0x0F0F0F0F0F0F0F0Fu;
    uint64_t high = load_as<uint16_t>(block + offsetof(Block, scales_h));
    high = (high | high << 24) & 0x000000FF000000FFu;
    high = (high | high << 12) & 0x000F000F000F000Fu;
    high = (high | high << 6) & 0x0303030303030303u;
    return {low | high << 4, 0};
  }
};

HWY_INLINE Scales all_ones() {
  const VI16 one = hn::Set(DI16(), 1);
  return {{one, one}, {one, one}};
}

struct TQ2_0 {
  using Block = BlockTQ2_0;
  static constexpr bool kHasMin = false;
  static constexpr int kOffsetShift = 0;
  static HWY_INLINE Scales load_scales(const RowGroup&, int, int64_t) { return all_ones(); }
  template <int T>
  static HWY_INLINE void add_dots(const RowGroup& group, int v, int64_t offset,
                                  const Scales& scales, ScaledDots<T>& dots) {
    const VI16 one = scales.scale.low;
    HWY_UNROLL(8)
    for (int h = 0; h < 2; ++h) {
      const int64_t at = offset + static_cast<int64_t>(offsetof(Block, qs)) + 32 * h;
      const VU8 q0 = load_rows(group, v, at);
      const VU8 q1 = load_rows(group, v, at + 16);
      const int b = 4 * h;
      dots.add32(mask_bits(q0, 3), mask_bits(q1, 3), one, b);
      dots.add32(mask_bits(shift_bits<2>(q0), 3), mask_bits(shift_bits<2>(q1), 3), one, b + 1);
      dots.add32(mask_bits(shift_bits<4>(q0), 3), mask_bits(shift_bits<4>(q1), 3), one, b + 2);
      dots.add32(mask_bits(shift_bits<6>(q0), 3), mask_bits(shift_bits<6>(q1), 3), one, b + 3);
    }
  }
};

struct TQ1_0 {
  using Block = BlockTQ1_0;
  static constexpr bool kHasMin = false;
  static constexpr int kOffsetShift = 0;
  static HWY_INLINE Scales load_scales(const RowGroup&, int, int64_t) { return all_ones(); }
  template <int T>
  static HWY_INLINE void add_dots(const RowGroup& group, int v, int64_t offset,
                                  const Scales& scales, ScaledDots<T>& dots) {
    const VI16 one = scales.scale.low;
    const int64_t at = offset + static_cast<int64_t>(offsetof(Block, qs));
    VU8 q0 = load_rows(group, v, at);
    VU8 q1 = load_rows(group, v, at + 16);
    VU8 q2 = load_rows(group, v, at + 32);
    HWY_UNROLL(8)
    for (int n = 0; n < 5; ++n) {
      dots.add32(digits(q0), digits(q1), one, n);
      dots.add16(digits(q2), one, 10 + n);
      q0 = times_three(q0);
      q1 = times_three(q1);
      q2 = times_three(q2);
    }
    dots.add16(digits(last_bytes(group, v, offset)), one, 15);
  }

 private:
  static HWY_INLINE VU8 times_three(VU8 q) { return hn::Add(q, hn::Add(q, q)); }
  // (3 q) >> 8: 1 from 86 on, 2 from 171 on.
  static HWY_INLINE VU8 digits(VU8 q) {
    const VU8 one = hn::Set(DU8(), 1);
    const VU8 first = hn::IfThenElseZero(hn::Gt(q, hn::Set(DU8(), 85)), one);
    return hn::Add(first, hn::IfThenElseZero(hn::Gt(q, hn::Set(DU8(), 170)), one));
  }
  // The four bytes of qh times 1, 3, 9 and 27.
  static HWY_INLINE VU8 last_bytes(const RowGroup& group, int v, int64_t offset) {
    alignas(16) static constexpr uint8_t kFour[16] = {0, 1, 2, 3, 0, 1, 2, 3,
                                                      0, 1, 2, 3, 0, 1, 2, 3};
    alignas(16) static constexpr uint8_t kPower[16] = {0, 0, 0, 0, 1, 1, 1, 1,
                                                       2, 2, 2, 2, 3, 3, 3, 3};
    const VU8 power = hn::LoadDup128(DU8(), kPower);
    // 16 bytes from qh on: the four, d, and 10 of what follows the block, which are readable.
    VU8 q = hn::TableLookupBytes(
        load_rows(group, v, offset + static_cast<int64_t>(offsetof(Block, qh))),
        hn::LoadDup128(DU8(), kFour));
    HWY_UNROLL(4)
    for (int n = 0; n < 3; ++n) {
      const auto is_above = hn::Gt(power, hn::Set(DU8(), static_cast<uint8_t>(n)));
      q = hn::IfThenElse(is_above, times_three(q), q);
    }
    return q;
  }
};

void matmul_iq4_xs(const void* args) { for_groups<Blocks256<IQ4_XS>>(args); }
void matmul_tq1_0(const void* args) { for_groups<Blocks256<TQ1_0>>(args); }
void matmul_tq2_0(const void* args) { for_groups<Blocks256<TQ2_0>>(args); }

}  // namespace engine::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // ENGINE_HWY_FMA_TARGET

#if HWY_ONCE
namespace engine {
ENGINE_HWY_ENTRY(matmul_iq4_xs_hwy, matmul_iq4_xs)
ENGINE_HWY_ENTRY(matmul_tq1_0_hwy, matmul_tq1_0)
ENGINE_HWY_ENTRY(matmul_tq2_0_hwy, matmul_tq2_0)
}  // namespace engine
#endif  // HWY_ONCE
