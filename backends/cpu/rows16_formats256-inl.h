// The 256-element formats Q2_K, Q3_K, Q4_K, Q5_K, Q6_K and IQ4_XS on packed strips: how the vector rows take scales
// and weights from the pieces of a block.
#if defined(ENGINE_BACKENDS_CPU_ROWS16_FORMATS256_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ENGINE_BACKENDS_CPU_ROWS16_FORMATS256_INL_H_
#undef ENGINE_BACKENDS_CPU_ROWS16_FORMATS256_INL_H_
#else
#define ENGINE_BACKENDS_CPU_ROWS16_FORMATS256_INL_H_
#endif

#include "backends/cpu/rows16-inl.h"
#include "lib/quant/blocks.h"

#if ENGINE_HWY_FMA_TARGET
HWY_BEFORE_NAMESPACE();
namespace engine::HWY_NAMESPACE::rows16 {

// The scales and minimums of a block, four to a lane: byte j % 4 of vector j / 4.
template <int kVectors>
struct Scales {
  VU8 scale[kVectors];
  VU8 min[kVectors];
};

// The bytes for the sums of 16 activations 2i and 2i + 1: those of two sub-blocks of 16 columns, or twice that of one
// of 32.
template <int kVectors, int i, bool kSigned>
HWY_INLINE VI16 for_two_sums(const VU8 (&s)[kVectors]) {
  constexpr int j = kVectors == 4 ? 2 * i : i;
  constexpr int kNext = kVectors == 4 ? j + 1 : j;
  return two_bytes<j % 4, kNext % 4, kSigned>(s[j / 4]);
}

// Each format has: its block; what load_scales gives; the elements of a sub-block; its largest weight and scale (in
// size); whether scales are signed; kOffsetShift, the log2 of what was added to make the weights unsigned (-1:
// nothing); and weights<j>(body, part, k): columns 4k to 4k + 3 of sub-block j. kMaxWeight 255: not for pairs in int16,
// so there are signed_weights<j> of up to 127 in size too.

HWY_INLINE Scales<2> load_k4_scales(const uint8_t* body, int part) {
  const VU8 s0 = load_piece(body, part, 0);
  const VU8 s1 = load_piece(body, part, 1);
  const VU8 s2 = load_piece(body, part, 2);
  return {{mask_bits(s0, 63), or_bits(mask_bits(s2, 15), shift_bits<2>(s0), 48)},
          {mask_bits(s1, 63), or_bits(mask_bits(shift_bits<4>(s2), 15), shift_bits<2>(s1), 48)}};
}

struct Q4_K {
  using Block = BlockQ4_K;
  static constexpr bool kNibbles = true;
  static constexpr bool kHasMin = true;
  static constexpr int kSubColumns = 32;
  static constexpr int kMaxWeight = 15;
  static constexpr int kMaxScale = 63;
  static constexpr bool kSignedScale = false;
  static constexpr int kOffsetShift = -1;
  static HWY_INLINE Scales<2> load_scales(const uint8_t* body, int part) {
    return load_k4_scales(body, part);
  }
  // kHighTimes16: high nibbles are left where they are, times 16.
  template <int j, bool kHighTimes16 = false>
  static HWY_INLINE VU8 weights(const uint8_t* body, int part, int k) {
    const VU8 both = load_piece(body, part, 3 + 8 * (j / 2) + k);
    if constexpr (kHighTimes16) return mask_bits(both, j % 2 == 0 ? 15 : 240);
    return mask_bits(shift_bits<4 * (j % 2)>(both), 15);
  }
};

struct Q5_K {
  using Block = BlockQ5_K;
  static constexpr bool kNibbles = false;
  static constexpr bool kHasMin = true;
  static constexpr int kSubColumns = 32;
  static constexpr int kMaxWeight = 31;
  static constexpr int kMaxScale = 63;
  static constexpr bool kSignedScale = false;
  static constexpr int kOffsetShift = -1;
  static HWY_INLINE Scales<2> load_scales(const uint8_t* body, int part) {
    return load_k4_scales(body, part);
  }
  template <int j>
  static HWY_INLINE VU8 weights(const uint8_t* body, int part, int k) {
    const VU8 low = shift_bits<4 * (j % 2)>(load_piece(body, part, 11 + 8 * (j / 2) + k));
    return or_bits(mask_bits(low, 15), shift_bits<j - 4>(load_piece(body, part, 3 + k)), 16);
  }
};

struct Q6_K {
  using Block = BlockQ6_K;
  static constexpr bool kNibbles = false;
  static constexpr bool kHasMin = false;
  static constexpr int kSubColumns = 16;
  static constexpr int kMaxWeight = 63;
  static constexpr int kMaxScale = 128;
  static constexpr bool kSignedScale = true;
  static constexpr int kOffsetShift = 5;
  static HWY_INLINE Scales<4> load_scales(const uint8_t* body, int part) {
    return {{load_piece(body, part, 0), load_piece(body, part, 1), load_piece(body, part, 2),
             load_piece(body, part, 3)},
            {}};
  }
  template <int j>
  static HWY_INLINE VU8 weights(const uint8_t* body, int part, int k) {
    constexpr int kQuarter = j % 8 / 2;  // of the half block: bits 2 * kQuarter of qh
    const int at = 4 + 3 * (8 * (j / 8) + 4 * (j % 2) + k);
    const VU8 high = load_piece(body, part, at);
    const VU8 low = shift_bits<kQuarter / 2 * 4>(load_piece(body, part, at + 1 + kQuarter % 2));
    return or_bits(mask_bits(low, 15), shift_bits<2 * kQuarter - 4>(high), 48);
  }
};

struct Q2_K {
  using Block = BlockQ2_K;
  static constexpr bool kNibbles = false;
  static constexpr bool kHasMin = true;
  static constexpr int kSubColumns = 16;
  static constexpr int kMaxWeight = 3;
  static constexpr int kMaxScale = 15;
  static constexpr bool kSignedScale = false;
  static constexpr int kOffsetShift = -1;
  static HWY_INLINE Scales<4> load_scales(const uint8_t* body, int part) {
    Scales<4> out;
    HWY_UNROLL(4)
    for (int i = 0; i < 4; ++i) {
      const VU8 both = load_piece(body, part, i);
      out.scale[i] = mask_bits(both, 15);
      out.min[i] = mask_bits(shift_bits<4>(both), 15);
    }
    return out;
  }
  template <int j>
  static HWY_INLINE VU8 weights(const uint8_t* body, int part, int k) {
    const VU8 q = load_piece(body, part, 4 + 8 * (j / 8) + 4 * (j % 2) + k);
    return mask_bits(shift_bits<2 * (j % 8 / 2)>(q), 3);
  }
};

struct Q3_K {
  using Block = BlockQ3_K;
  static constexpr bool kNibbles = false;
  static constexpr bool kHasMin = false;
  static constexpr int kSubColumns = 16;
  static constexpr int kMaxWeight = 7;
  static constexpr int kMaxScale = 32;
  static constexpr bool kSignedScale = true;
  static constexpr int kOffsetShift = 2;
  static HWY_INLINE Scales<4> load_scales(const uint8_t* body, int part) {
    const VU8 low0 = load_piece(body, part, 0);
    const VU8 low1 = load_piece(body, part, 1);
    const VU8 high = load_piece(body, part, 2);
    const VU8 bias = hn::Set(DU8(), 32);
    return {{hn::Sub(or_bits(mask_bits(low0, 15), shift_bits<-4>(high), 48), bias),
             hn::Sub(or_bits(mask_bits(low1, 15), shift_bits<-2>(high), 48), bias),
             hn::Sub(or_bits(mask_bits(shift_bits<4>(low0), 15), high, 48), bias),
             hn::Sub(or_bits(mask_bits(shift_bits<4>(low1), 15), shift_bits<2>(high), 48), bias)},
            {}};
  }
  template <int j>
  static HWY_INLINE VU8 weights(const uint8_t* body, int part, int k) {
    const int column = 4 * (j % 2) + k;
    const VU8 q = shift_bits<2 * (j % 8 / 2)>(load_piece(body, part, 11 + 8 * (j / 8) + column));
    return or_bits(mask_bits(q, 3), shift_bits<j / 2 - 2>(load_piece(body, part, 3 + column)), 4);
  }
};

// Weights come from a table of signed bytes; weights<j> adds 128 to them, signed_weights<j> does not.
struct IQ4_XS {
  using Block = BlockIQ4_XS;
  static constexpr bool kNibbles = false;
  static constexpr bool kHasMin = false;
  static constexpr bool kScalesInHalves = true;
  static constexpr int kSubColumns = 32;
  static constexpr int kMaxWeight = 255;
  static constexpr int kMaxScale = 32;
  static constexpr bool kSignedScale = true;
  static constexpr int kOffsetShift = 7;
  static HWY_INLINE Scales<2> load_scales(const uint8_t* body, int part) {
    const VU8 low = load_piece(body, part, 0);
    // Bits 4i to 4i + 3 of scales_h to byte i: two bits of scale 2i, and two of scale 2i + 1 above them.
    const hn::Rebind<uint16_t, DU32> d16;
    const auto halves = reinterpret_cast<const uint16_t*>(body - kHalvesBytes) + part * kLanes;
    auto bits = hn::PromoteTo(DU32(), hn::LoadU(d16, halves));
    bits = hn::And(hn::Or(bits, hn::ShiftLeft<8>(bits)), hn::Set(DU32(), 0x00FF00FF));
    bits = hn::And(hn::Or(bits, hn::ShiftLeft<4>(bits)), hn::Set(DU32(), 0x0F0F0F0F));
    const VU8 high = hn::BitCast(DU8(), bits);
    const VU8 bias = hn::Set(DU8(), 32);
    const VU8 even = hn::Sub(or_bits(mask_bits(low, 15), shift_bits<-4>(high), 48), bias);
    const VU8 odd =
        hn::Sub(or_bits(mask_bits(shift_bits<4>(low), 15), shift_bits<-2>(high), 48), bias);
    return {{interleave<0>(even, odd), interleave<2>(even, odd)}, {}};
  }
  template <int j>
  static HWY_INLINE VU8 weights(const uint8_t* body, int part, int k) {
    return look_up_iq4<true>(index<j>(body, part, k));
  }
  template <int j>
  static HWY_INLINE VU8 signed_weights(const uint8_t* body, int part, int k) {
    return look_up_iq4<false>(index<j>(body, part, k));
  }

 private:
  template <int j>
  static HWY_INLINE VU8 index(const uint8_t* body, int part, int k) {
    const VU8 both = load_piece(body, part, 1 + 4 * j + k % 4);
    return mask_bits(k < 4 ? both : shift_bits<4>(both), 15);
  }
  // Bytes i and i + 1 of each lane of even and of odd, in turn.
  template <int i>
  static HWY_INLINE VU8 interleave(VU8 even, VU8 odd) {
    alignas(16) static constexpr uint8_t kFrom[16] = {i,      i,      i + 1,  i + 1, i + 4, i + 4,
                                                      i + 5,  i + 5,  i + 8,  i + 8, i + 9, i + 9,
                                                      i + 12, i + 12, i + 13, i + 13};
    const VU8 from = hn::LoadDup128(DU8(), kFrom);
    const auto odd_bytes = hn::BitCast(DU8(), hn::Set(DU16(), 0xFF00));
    return hn::BitwiseIfThenElse(odd_bytes, hn::TableLookupBytes(odd, from),
                                 hn::TableLookupBytes(even, from));
  }
};

}  // namespace engine::HWY_NAMESPACE::rows16
HWY_AFTER_NAMESPACE();
#endif  // ENGINE_HWY_FMA_TARGET

#endif  // per-target include guard
