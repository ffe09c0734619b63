// Vector matmul rows of the 32-element formats, as stored in the file.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/matmul_blocks32_hwy.cc"
#include "backends/cpu/hwy_targets.h"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target.h
#include "backends/cpu/matmul_group-inl.h"
#include "lib/quant/blocks.h"

#if ENGINE_HWY_FMA_TARGET
HWY_BEFORE_NAMESPACE();
namespace engine::HWY_NAMESPACE {

// The 32 weights of each row of a vector, as unsigned numbers.
struct Halves {
  VU8 low;   // elements 0..15
  VU8 high;  // elements 16..31
};

HWY_INLINE Halves load_nibbles(const RowGroup& group, int v, int64_t offset) {
  const VU8 bytes = load_rows(group, v, offset);
  return {hn::And(bytes, hn::Set(DU8(), 15)), hn::ShiftRight<4>(bytes)};
}

// Adds 16 * bit e of the four bytes at `offset` to element e.
HWY_INLINE Halves add_fifth_bits(Halves w, const RowGroup& group, int v, int64_t offset) {
  const hn::Full128<uint32_t> d32;
  const hn::Full128<uint8_t> d8;
  const auto bits_of = [&](int row) HWY_ATTR {
    return hn::BitCast(d8, hn::Set(d32, load_as<uint32_t>(group.row[row] + offset)));
  };
  const VU8 bits = from_parts(bits_of(v), bits_of(kRowsPerVector == 2 ? v + 4 : v));
  alignas(16) static constexpr uint8_t kByte[16] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1};
  alignas(16) static constexpr uint8_t kBit[16] = {1, 2, 4, 8, 16, 32, 64, 128,
                                                   1, 2, 4, 8, 16, 32, 64, 128};
  const VU8 byte = hn::LoadDup128(DU8(), kByte);
  const VU8 bit = hn::LoadDup128(DU8(), kBit);
  const VU8 sixteen = hn::Set(DU8(), 16);
  const VU8 low = hn::TableLookupBytes(bits, byte);
  const VU8 high = hn::TableLookupBytes(bits, hn::Add(byte, hn::Set(DU8(), 2)));
  return {hn::Or(w.low, hn::IfThenElseZero(hn::TestBit(low, bit), sixteen)),
          hn::Or(w.high, hn::IfThenElseZero(hn::TestBit(high, bit), sixteen))};
}

// Sum over four pairs of products: at most 4 * 31 * 127 < 2^15 before it widens.
HWY_INLINE VI32 dot_small(Halves w, VI8 x_low, VI8 x_high) {
  return sum_pairs(hn::Add(dot_pairs(w.low, x_low), dot_pairs(w.high, x_high)), hn::Set(DI16(), 1));
}

// The same for signed weights of up to eight bits.
HWY_INLINE VI32 dot_signed(Halves w, VI8 x_low, VI8 x_high) {
  const VI16 ones = hn::Set(DI16(), 1);
  return hn::Add(sum_pairs(dot_signed_pairs(w.low, x_low), ones),
                 sum_pairs(dot_signed_pairs(w.high, x_high), ones));
}

// Each format: its block, whether it has a minimum, what was added to make its weights unsigned.

// The formats of four bits, or five where the block has `qh`.
template <class B, bool kMin, int32_t kAdded>
struct SmallFormat {
  using Block = B;
  static constexpr bool kHasMin = kMin;
  static constexpr int32_t kOffset = kAdded;
  static HWY_INLINE Halves load(const RowGroup& group, int v, int64_t offset) {
    const Halves nibbles = load_nibbles(group, v, offset + offsetof(Block, qs));
    if constexpr (requires(Block block) { block.qh; }) {
      return add_fifth_bits(nibbles, group, v, offset + offsetof(Block, qh));
    } else {
      return nibbles;
    }
  }
  static HWY_INLINE VI32 dot(Halves w, VI8 x_low, VI8 x_high) {
    return dot_small(w, x_low, x_high);
  }
};
struct Q4_0 : SmallFormat<BlockQ4_0, false, 8> {};
struct Q4_1 : SmallFormat<BlockQ4_1, true, 0> {};
struct Q5_0 : SmallFormat<BlockQ5_0, false, 16> {};
struct Q5_1 : SmallFormat<BlockQ5_1, true, 0> {};

struct Q8_0 {
  using Block = BlockQ8_0;
  static constexpr bool kHasMin = false;
  static constexpr int32_t kOffset = 0;
  static HWY_INLINE Halves load(const RowGroup& group, int v, int64_t offset) {
    return {load_rows(group, v, offset + offsetof(Block, qs)),
            load_rows(group, v, offset + offsetof(Block, qs) + 16)};
  }
  // A pair of products fits int16; it widens before the next addition.
  static HWY_INLINE VI32 dot(Halves w, VI8 x_low, VI8 x_high) {
    return dot_signed(w, x_low, x_high);
  }
};

struct IQ4_NL {
  using Block = BlockIQ4_NL;
  static constexpr bool kHasMin = false;
  static constexpr int32_t kOffset = 0;
  static HWY_INLINE Halves load(const RowGroup& group, int v, int64_t offset) {
    const Halves index = load_nibbles(group, v, offset + offsetof(Block, qs));
    return {look_up(kIq4Values, index.low), look_up(kIq4Values, index.high)};
  }
  static HWY_INLINE VI32 dot(Halves w, VI8 x_low, VI8 x_high) {
    return dot_signed(w, x_low, x_high);
  }
};

struct MXFP4 {
  using Block = BlockMXFP4;
  static constexpr bool kHasMin = false;
  static constexpr int32_t kOffset = 12;
  static HWY_INLINE Halves load(const RowGroup& group, int v, int64_t offset) {
    alignas(16) static constexpr int8_t kUnsigned[16] = {12, 13, 14, 15, 16, 18, 20, 24,
                                                         12, 11, 10, 9,  8,  6,  4,  0};
    const Halves index = load_nibbles(group, v, offset + offsetof(Block, qs));
    return {look_up(kUnsigned, index.low), look_up(kUnsigned, index.high)};
  }
  static HWY_INLINE VI32 dot(Halves w, VI8 x_low, VI8 x_high) {
    return dot_small(w, x_low, x_high);
  }
};

// The scales of a block in every row, a lane per row.
template <class Format>
HWY_INLINE VF32 load_scales(const RowGroup& group, int64_t offset) {
  using Block = typename Format::Block;
  const int64_t at = offset + static_cast<int64_t>(offsetof(Block, d));
  if constexpr (sizeof(Block::d) == 1) {
    HWY_ALIGN float scales[kGroupRows];
    for (int r = 0; r < kGroupRows; ++r) scales[r] = mxfp4_scale(group.row[r][at]);
    return hn::Load(DF32(), scales);
  } else {
    return load_halves(group, at);
  }
}

// The float sequences are those of matmul_scalar.cc, Symmetric32 and Affine32.
template <class Format>
struct Blocks32 {
  using Block = typename Format::Block;

  template <int T>
  static HWY_INLINE void group(const RowGroup& group, const MatmulArgs& args, int64_t t0, int64_t r,
                               int64_t n_rows) {
    const uint8_t* act = static_cast<const uint8_t*>(args.act) + t0 * args.act_stride_bytes;
    const int64_t n_blocks = args.cols / 32;
    // The next group's bytes follow this group's; they are touched at this group's pace.
    const uint8_t* next = group.row[0] + kGroupRows * args.row_bytes;
    VF32 acc[T];
    HWY_UNROLL(8)
    for (int t = 0; t < T; ++t) acc[t] = hn::Zero(DF32());
    for (int64_t b = 0; b < n_blocks; ++b) {
      const int64_t offset = b * static_cast<int64_t>(sizeof(Block));
      prefetch(next + b * kGroupRows * static_cast<int64_t>(sizeof(Block)),
               kGroupRows * static_cast<int64_t>(sizeof(Block)));
      const ActQ8x32* x[T];
      HWY_UNROLL(8)
      for (int t = 0; t < T; ++t) {
        x[t] = reinterpret_cast<const ActQ8x32*>(act + t * args.act_stride_bytes) + b;
      }
      VI32 dots[T][kVectors];
      HWY_UNROLL(8)
      for (int v = 0; v < kVectors; ++v) {
        const Halves w = Format::load(group, v, offset);
        HWY_UNROLL(8)
        for (int t = 0; t < T; ++t) {
          dots[t][v] = Format::dot(w, load_act(x[t]->q), load_act(x[t]->q + 16));
        }
      }
      const VF32 d = load_scales<Format>(group, offset);
      VF32 m = d;
      if constexpr (Format::kHasMin) {
        m = load_halves(group, offset + static_cast<int64_t>(offsetof(Block, m)));
      }
      HWY_UNROLL(8)
      for (int t = 0; t < T; ++t) {
        VI32 dot = reduce_rows(dots[t][0], dots[t][1], dots[t][2], dots[t][3]);
        if constexpr (Format::kOffset != 0) {
          dot = hn::Sub(dot, hn::Set(DI32(), Format::kOffset * x[t]->sum));
        }
        const VF32 dx = hn::Set(DF32(), x[t]->d);
        acc[t] = hn::MulAdd(hn::Mul(d, dx), hn::ConvertTo(DF32(), dot), acc[t]);
        if constexpr (Format::kHasMin) {
          const VF32 sum = hn::Set(DF32(), static_cast<float>(x[t]->sum));
          acc[t] = hn::MulAdd(hn::Mul(m, dx), sum, acc[t]);
        }
      }
    }
    HWY_UNROLL(8)
    for (int t = 0; t < T; ++t)
      store_rows(acc[t], n_rows, args.out + (t0 + t) * args.out_stride + r);
  }
};

void matmul_q4_0(const void* args) { for_groups<Blocks32<Q4_0>>(args); }
void matmul_q4_1(const void* args) { for_groups<Blocks32<Q4_1>>(args); }
void matmul_q5_0(const void* args) { for_groups<Blocks32<Q5_0>>(args); }
void matmul_q5_1(const void* args) { for_groups<Blocks32<Q5_1>>(args); }
void matmul_q8_0(const void* args) { for_groups<Blocks32<Q8_0>>(args); }
void matmul_iq4_nl(const void* args) { for_groups<Blocks32<IQ4_NL>>(args); }
void matmul_mxfp4(const void* args) { for_groups<Blocks32<MXFP4>>(args); }

}  // namespace engine::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // ENGINE_HWY_FMA_TARGET

#if HWY_ONCE
namespace engine {
ENGINE_HWY_ENTRY(matmul_q4_0_hwy, matmul_q4_0)
ENGINE_HWY_ENTRY(matmul_q4_1_hwy, matmul_q4_1)
ENGINE_HWY_ENTRY(matmul_q5_0_hwy, matmul_q5_0)
ENGINE_HWY_ENTRY(matmul_q5_1_hwy, matmul_q5_1)
ENGINE_HWY_ENTRY(matmul_q8_0_hwy, matmul_q8_0)
ENGINE_HWY_ENTRY(matmul_iq4_nl_hwy, matmul_iq4_nl)
ENGINE_HWY_ENTRY(matmul_mxfp4_hwy, matmul_mxfp4)
}  // namespace engine
#endif  // HWY_ONCE
