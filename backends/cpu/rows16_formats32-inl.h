// The 32-element formats Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, IQ4_NL and MXFP4 on packed strips: how the vector rows take
// weights from the pieces of a block.
#if defined(ENGINE_BACKENDS_CPU_ROWS16_FORMATS32_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ENGINE_BACKENDS_CPU_ROWS16_FORMATS32_INL_H_
#undef ENGINE_BACKENDS_CPU_ROWS16_FORMATS32_INL_H_
#else
#define ENGINE_BACKENDS_CPU_ROWS16_FORMATS32_INL_H_
#endif

#include "backends/cpu/rows16-inl.h"
#include "lib/quant/blocks.h"

#if ENGINE_HWY_FMA_TARGET
HWY_BEFORE_NAMESPACE();
namespace engine::HWY_NAMESPACE::rows16 {

// Each format has: its block; whether it has a minimum; what was added to make its weights unsigned; its
// largest weight (128: signed bytes); whether the pieces are the weights; and weights<k>(body, part): columns 4k to
// 4k + 3.

// The formats of four bits, or five where the block has `qh`.
template <class B, bool kMin, int32_t kAdded>
struct SmallFormat {
  using Block = B;
  static constexpr bool kHasMin = kMin;
  static constexpr int32_t kOffset = kAdded;
  static constexpr bool kFive = requires(Block block) { block.qh; };
  static constexpr int kMaxWeight = kFive ? 31 : 15;
  static constexpr bool kDirect = false;
  template <int k>
  static HWY_INLINE VU8 weights(const uint8_t* body, int part) {
    const VU8 low = shift_bits<k / 4 * 4>(load_piece(body, part, (kFive ? 1 : 0) + k % 4));
    if constexpr (kFive) {
      return or_bits(mask_bits(low, 15), shift_bits<k - 4>(load_piece(body, part, 0)), 16);
    } else {
      return mask_bits(low, 15);
    }
  }
};
struct Q4_0 : SmallFormat<BlockQ4_0, false, 8> {};
struct Q4_1 : SmallFormat<BlockQ4_1, true, 0> {};
struct Q5_0 : SmallFormat<BlockQ5_0, false, 16> {};
struct Q5_1 : SmallFormat<BlockQ5_1, true, 0> {};

// With VNNI 128 is added. Without, a signed weight is multiplied as |w| * (x with the sign of w): |w| <= 128 is
// an unsigned byte, x is never -128, and one sum of two products is at most 32,512 < 2^15.
struct Q8_0 {
  using Block = BlockQ8_0;
  static constexpr bool kHasMin = false;
  static constexpr int32_t kOffset = kVnni ? 128 : 0;
  static constexpr int kMaxWeight = 128;
  static constexpr bool kDirect = true;
  template <int k>
  static HWY_INLINE VU8 weights(const uint8_t* body, int part) {
    const VU8 w = load_piece(body, part, k);
    return kVnni ? hn::Xor(w, hn::Set(DU8(), 0x80)) : w;
  }
};

// Signed bytes from a table; the same holds for them.
struct IQ4_NL {
  using Block = BlockIQ4_NL;
  static constexpr bool kHasMin = false;
  static constexpr int32_t kOffset = kVnni ? 128 : 0;
  static constexpr int kMaxWeight = 128;
  static constexpr bool kDirect = false;
  template <int k>
  static HWY_INLINE VU8 weights(const uint8_t* body, int part) {
    const VU8 q = mask_bits(shift_bits<k / 4 * 4>(load_piece(body, part, k % 4)), 15);
    return look_up_iq4<kVnni>(q);
  }
};

// kMxfp4Values plus 12.
struct MXFP4 {
  using Block = BlockMXFP4;
  static constexpr bool kHasMin = false;
  static constexpr int32_t kOffset = 12;
  static constexpr int kMaxWeight = 24;
  static constexpr bool kDirect = false;
  template <int k>
  static HWY_INLINE VU8 weights(const uint8_t* body, int part) {
    const VU8 q = mask_bits(shift_bits<k / 4 * 4>(load_piece(body, part, k % 4)), 15);
    const VU8 table = hn::LoadDup128(DU8(), reinterpret_cast<const uint8_t*>(kMxfp4Values));
    return hn::TableLookupBytes(hn::Add(table, hn::Set(DU8(), uint8_t{kOffset})), q);
  }
};

}  // namespace engine::HWY_NAMESPACE::rows16
HWY_AFTER_NAMESPACE();
#endif  // ENGINE_HWY_FMA_TARGET

#endif  // per-target include guard
