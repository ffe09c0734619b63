// Vector matmul rows of the 256-element formats Q2_K, Q3_K, Q4_K, Q5_K and Q6_K, as stored in the
// file.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/matmul_blocks256_hwy.cc"
#include "backends/cpu/hwy_targets.h"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target.h
#include "backends/cpu/matmul_group-inl.h"
#include "lib/quant/blocks.h"

#if ENGINE_HWY_FMA_TARGET
HWY_BEFORE_NAMESPACE();
namespace engine::HWY_NAMESPACE {

// Shifts within bytes; what crosses a byte border is garbage that the caller masks. Negative: to
// the left.
template <int kRight>
HWY_INLINE VU8 shift_bits(VU8 v) {
  const auto wide = hn::BitCast(DU16(), v);
  if constexpr (kRight > 0) {
    return hn::BitCast(DU8(), hn::ShiftRight<kRight>(wide));
  } else if constexpr (kRight < 0) {
    return hn::BitCast(DU8(), hn::ShiftLeft<-kRight>(wide));
  } else {
    return v;
  }
}
HWY_INLINE VU8 mask_bits(VU8 v, int mask) {
  return hn::And(v, hn::Set(DU8(), static_cast<uint8_t>(mask)));
}

// The sixteen bytes of each row, widened to int16: 0..7 in `low`, 8..15 in `high`.
struct Wide16 {
  VI16 low;
  VI16 high;
};
HWY_INLINE Wide16 widen_unsigned(VU8 v) {
  const VU8 zero = hn::Zero(DU8());
  return {hn::BitCast(DI16(), hn::InterleaveLower(v, zero)),
          hn::BitCast(DI16(), hn::InterleaveUpper(DU8(), v, zero))};
}
HWY_INLINE Wide16 widen_signed(VU8 v) {
  return {hn::ShiftRight<8>(hn::BitCast(DI16(), hn::InterleaveLower(v, v))),
          hn::ShiftRight<8>(hn::BitCast(DI16(), hn::InterleaveUpper(DU8(), v, v)))};
}

// For each row the sum over 16 sub-blocks of s[j] * (sum of x in sub-block j), as four partial
// sums.
HWY_INLINE VI32 dot_sums(const Wide16& s, const ActQ8x256* x) {
  return hn::Add(sum_pairs(s.low, hn::LoadDup128(DI16(), x->sum16)),
                 sum_pairs(s.high, hn::LoadDup128(DI16(), x->sum16 + 8)));
}

// Byte indices that copy int16 number j to all places of a part.
alignas(16) constexpr uint8_t kCopy[8][16] = {
    {0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1},
    {2, 3, 2, 3, 2, 3, 2, 3, 2, 3, 2, 3, 2, 3, 2, 3},
    {4, 5, 4, 5, 4, 5, 4, 5, 4, 5, 4, 5, 4, 5, 4, 5},
    {6, 7, 6, 7, 6, 7, 6, 7, 6, 7, 6, 7, 6, 7, 6, 7},
    {8, 9, 8, 9, 8, 9, 8, 9, 8, 9, 8, 9, 8, 9, 8, 9},
    {10, 11, 10, 11, 10, 11, 10, 11, 10, 11, 10, 11, 10, 11, 10, 11},
    {12, 13, 12, 13, 12, 13, 12, 13, 12, 13, 12, 13, 12, 13, 12, 13},
    {14, 15, 14, 15, 14, 15, 14, 15, 14, 15, 14, 15, 14, 15, 14, 15}};
HWY_INLINE VI16 copy_lane(VI16 v, int j) {
  return hn::TableLookupBytes(v, hn::BitCast(DI16(), hn::LoadDup128(DU8(), kCopy[j])));
}

// The running sums over sub-blocks of scale * dot of one vector of rows, for T tokens.
template <int T>
struct ScaledDots {
  VI32 sum[T];
  const ActQ8x256* x[T];

  // 16 weights per row, elements 16j to 16j + 15. A pair of products is at most 2 * 63 * 127 <
  // 2^15.
  HWY_INLINE void add16(VU8 w, VI16 scale, int j) {
    HWY_UNROLL(8)
    for (int t = 0; t < T; ++t) {
      const VI16 dots = dot_pairs(w, load_act(x[t]->q + 16 * j));
      sum[t] = hn::Add(sum[t], sum_pairs(dots, scale));
    }
  }
  // 32 weights per row, elements 32b to 32b + 31, below 32: four products are at most 4 * 31 * 127
  // < 2^15.
  HWY_INLINE void add32(VU8 w_low, VU8 w_high, VI16 scale, int b) {
    HWY_UNROLL(8)
    for (int t = 0; t < T; ++t) {
      const VI16 dots = hn::Add(dot_pairs(w_low, load_act(x[t]->q + 32 * b)),
                                dot_pairs(w_high, load_act(x[t]->q + 32 * b + 16)));
      sum[t] = hn::Add(sum[t], sum_pairs(dots, scale));
    }
  }
};

// Each format has: its block; whether it has minimums; kOffsetShift, the log2 of what was added to
// make the weights unsigned (-1: nothing); load_scales; add_dots, which unpacks the weights of
// vector v.
struct Scales {
  Wide16 scale;  // K4 formats: the eight scales in low
  Wide16 min;
};

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

HWY_INLINE VI16 scale_of(const Scales& scales, int j) {
  return copy_lane(j < 8 ? scales.scale.low : scales.scale.high, j % 8);
}

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

// The float sequences are those of matmul_scalar.cc, Symmetric256 and Affine256.
template <class Format>
struct Blocks256 {
  using Block = typename Format::Block;

  template <int T>
  static HWY_INLINE void group(const RowGroup& group, const MatmulArgs& args, int64_t t0, int64_t r,
                               int64_t n_rows) {
    const uint8_t* act = static_cast<const uint8_t*>(args.act) + t0 * args.act_stride_bytes;
    const int64_t n_blocks = args.cols / 256;
    // The next group's bytes follow this group's; they are touched at this group's pace.
    const uint8_t* next = group.row[0] + kGroupRows * args.row_bytes;
    constexpr int64_t kBlockBytes = sizeof(Block);
    VF32 acc[T];
    HWY_UNROLL(8)
    for (int t = 0; t < T; ++t) acc[t] = hn::Zero(DF32());
    for (int64_t b = 0; b < n_blocks; ++b) {
      const int64_t offset = b * kBlockBytes;
      ScaledDots<T> dots;
      HWY_UNROLL(8)
      for (int t = 0; t < T; ++t) {
        dots.x[t] = reinterpret_cast<const ActQ8x256*>(act + t * args.act_stride_bytes) + b;
      }
      VI32 scaled[T][kVectors];
      VI32 mins[T][kVectors];
      for (int v = 0; v < kVectors;
           ++v) {  // not unrolled: the body is long, and these arrays are few
        prefetch(next + (b * kVectors + v) * kRowsPerVector * kBlockBytes,
                 kRowsPerVector * kBlockBytes);
        const Scales scales = Format::load_scales(group, v, offset);
        HWY_UNROLL(8)
        for (int t = 0; t < T; ++t) {
          dots.sum[t] = hn::Zero(DI32());
          if constexpr (Format::kOffsetShift >= 0) {
            const VI32 sums = dot_sums(scales.scale, dots.x[t]);
            dots.sum[t] = hn::Sub(dots.sum[t], hn::ShiftLeft<Format::kOffsetShift>(sums));
          }
          if constexpr (Format::kHasMin) mins[t][v] = dot_sums(scales.min, dots.x[t]);
        }
        Format::add_dots(group, v, offset, scales, dots);
        HWY_UNROLL(8)
        for (int t = 0; t < T; ++t) scaled[t][v] = dots.sum[t];
      }
      const VF32 d = load_halves(group, offset + static_cast<int64_t>(offsetof(Block, d)));
      VF32 dmin = d;
      if constexpr (Format::kHasMin) {
        dmin = load_halves(group, offset + static_cast<int64_t>(offsetof(Block, dmin)));
      }
      HWY_UNROLL(8)
      for (int t = 0; t < T; ++t) {
        const VI32 dot = reduce_rows(scaled[t][0], scaled[t][1], scaled[t][2], scaled[t][3]);
        const VF32 dx = hn::Set(DF32(), dots.x[t]->d);
        acc[t] = hn::MulAdd(hn::Mul(d, dx), hn::ConvertTo(DF32(), dot), acc[t]);
        if constexpr (Format::kHasMin) {
          const VI32 min = reduce_rows(mins[t][0], mins[t][1], mins[t][2], mins[t][3]);
          acc[t] = hn::NegMulAdd(hn::Mul(dmin, dx), hn::ConvertTo(DF32(), min), acc[t]);
        }
      }
    }
    HWY_UNROLL(8)
    for (int t = 0; t < T; ++t)
      store_rows(acc[t], n_rows, args.out + (t0 + t) * args.out_stride + r);
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
