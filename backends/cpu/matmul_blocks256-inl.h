// The 256-element formats' vector matmul, as stored in the file: sub-block sums, scales, and the loop over
// blocks. A format is a struct; the comment at Scales says what it has.
#if defined(ENGINE_BACKENDS_CPU_MATMUL_BLOCKS256_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ENGINE_BACKENDS_CPU_MATMUL_BLOCKS256_INL_H_
#undef ENGINE_BACKENDS_CPU_MATMUL_BLOCKS256_INL_H_
#else
#define ENGINE_BACKENDS_CPU_MATMUL_BLOCKS256_INL_H_
#endif

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
  // The same for signed weights of up to seven bits and a sign.
  HWY_INLINE void add16_signed(VU8 w, VI16 scale, int j) {
    HWY_UNROLL(8)
    for (int t = 0; t < T; ++t) {
      const VI16 dots = dot_signed_pairs(w, load_act(x[t]->q + 16 * j));
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

HWY_INLINE VI16 scale_of(const Scales& scales, int j) {
  return copy_lane(j < 8 ? scales.scale.low : scales.scale.high, j % 8);
}

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

}  // namespace engine::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // ENGINE_HWY_FMA_TARGET

#endif  // per-target include guard
