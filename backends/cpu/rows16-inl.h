// Strips of 16 packed rows (lib/quant/pack.h) for the vector matmul rows: loads, exact integer dots with a lane
// per row, and the walk over strips, blocks and tokens.
//
// A piece of 64 bytes holds four columns of 16 rows: one vector of 512 bits, or kParts narrower ones. No number
// ever moves between lanes, so the result does not depend on the width. Loops over arrays of vectors are
// unrolled (HWY_UNROLL): only then do the arrays stay in registers.
#if defined(ENGINE_BACKENDS_CPU_ROWS16_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ENGINE_BACKENDS_CPU_ROWS16_INL_H_
#undef ENGINE_BACKENDS_CPU_ROWS16_INL_H_
#else
#define ENGINE_BACKENDS_CPU_ROWS16_INL_H_
#endif

#include <cstdint>
#include <cstring>

#include "backends/cpu/hwy_targets.h"
#include "hwy/highway.h"
#include "lib/contract/op.h"
#include "lib/quant/blocks.h"

#if ENGINE_HWY_FMA_TARGET
HWY_BEFORE_NAMESPACE();
namespace engine::HWY_NAMESPACE::rows16 {
namespace hn = hwy::HWY_NAMESPACE;

using DU8 = hn::CappedTag<uint8_t, 64>;
using DI8 = hn::RebindToSigned<DU8>;
using DU16 = hn::RepartitionToWide<DU8>;
using DI16 = hn::RebindToSigned<DU16>;
using DU32 = hn::RepartitionToWide<DU16>;
using DI32 = hn::RebindToSigned<DU32>;
using DF32 = hn::RebindToFloat<DI32>;
using VU8 = hn::Vec<DU8>;
using VI8 = hn::Vec<DI8>;
using VI16 = hn::Vec<DI16>;
using VI32 = hn::Vec<DI32>;
using VF32 = hn::Vec<DF32>;

constexpr int kRows = 16;
constexpr int kPieceBytes = 64;
constexpr int kHalvesBytes = 32;
constexpr int kLanes = static_cast<int>(hn::MaxLanes(DI32()));  // rows of a vector
constexpr int kParts = kRows / kLanes;                          // vectors of a piece

// AVX-512 VNNI adds four u8 * i8 products to an int32 in one step and without saturation. Elsewhere pairs of
// products are added in int16, which holds a few of them, see steps_of_int16.
constexpr bool kVnni = HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3_DL;

// How many sums of two products of weights up to `max_weight` with activations up to 127 an int16 holds.
constexpr int steps_of_int16(int max_weight) { return 32767 / (2 * 127 * max_weight); }

// Piece `i` of a body, the rows of part `part`.
HWY_INLINE VU8 load_piece(const uint8_t* body, int part, int i) {
  return hn::LoadU(DU8(), body + i * kPieceBytes + part * 4 * kLanes);
}

HWY_INLINE VF32 load_halves(const uint8_t* halves, int part) {
  const hn::Rebind<hwy::float16_t, DF32> d16;
  return hn::PromoteTo(
      DF32(), hn::LoadU(d16, reinterpret_cast<const hwy::float16_t*>(halves) + part * kLanes));
}

// The scales of a block, from its field d: halves, or one byte each (mxfp4_scale of lib/quant/blocks.h).
template <class Format>
HWY_INLINE VF32 load_d(const uint8_t* halves, int part) {
  if constexpr (sizeof(Format::Block::d) == 1) {
    const hn::Rebind<uint8_t, DU32> d8;
    const auto x = hn::PromoteTo(DU32(), hn::LoadU(d8, halves + part * kLanes));
    const auto one = hn::Set(DU32(), 1);
    const auto subnormal = hn::ShiftLeft<21>(hn::Add(x, one));  // 1 << 21, 2 << 21
    const auto normal = hn::ShiftLeft<23>(hn::Sub(x, one));
    return hn::BitCast(DF32(), hn::IfThenElse(hn::Le(x, one), subnormal, normal));
  } else {
    return load_halves(halves, part);
  }
}

// Four activations, the same in every lane.
HWY_INLINE VI8 load_act(const int8_t* q) {
  int32_t four;
  std::memcpy(&four, q, sizeof(four));
  return hn::BitCast(DI8(), hn::Set(DI32(), four));
}

// Two sums of activations, the same in every lane.
HWY_INLINE VI16 load_sums(const int16_t* sums) {
  int32_t two;
  std::memcpy(&two, sums, sizeof(two));
  return hn::BitCast(DI16(), hn::Set(DI32(), two));
}

// kIq4Values of each byte, 0 to 15; kAdd128: plus 128.
template <bool kAdd128>
HWY_INLINE VU8 look_up_iq4(VU8 index) {
  const VU8 table = hn::LoadDup128(DU8(), reinterpret_cast<const uint8_t*>(kIq4Values));
  return hn::TableLookupBytes(kAdd128 ? hn::Xor(table, hn::Set(DU8(), 0x80)) : table, index);
}

// Shifts within bytes; what crosses a byte border is garbage that the caller masks. Negative: to the left.
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
// low | (high & mask)
HWY_INLINE VU8 or_bits(VU8 low, VU8 high, int mask) {
  return hn::OrAnd(low, high, hn::Set(DU8(), static_cast<uint8_t>(mask)));
}

// sum + a0 * b0 + a1 * b1 of each lane.
HWY_INLINE VI32 add_pairs(VI32 sum, VI16 a, VI16 b) {
  if constexpr (kVnni) {  // one instruction, and only here it keeps the order of the lanes
    VI32 unused = hn::Zero(DI32());
    return hn::ReorderWidenMulAccumulate(DI32(), a, b, sum, unused);
  } else {
    return hn::Add(sum, hn::WidenMulPairwiseAdd(DI32(), a, b));
  }
}

// Pairs of products of signed weights, -127 to 127 (-128 too where x is not -128), with activations, added in int16:
// where w is 0 the sign is undefined, and the product is 0 all the same.
HWY_INLINE VI16 signed_products(VU8 w, VI8 x) {
  const VI8 signed_w = hn::BitCast(DI8(), w);
  return hn::SatWidenMulPairwiseAdd(DI16(), hn::BitCast(DU8(), hn::Abs(signed_w)),
                                    hn::IfNegativeThenNegOrUndefIfZero(signed_w, x));
}

// Bytes a and b of each lane as two int16.
template <int a, int b, bool kSigned>
HWY_INLINE VI16 two_bytes(VU8 v) {
  constexpr uint8_t kNone = 0x80;
  alignas(16) static constexpr uint8_t kUnsigned[16] = {a,      kNone, b,      kNone, a + 4, kNone,
                                                        b + 4,  kNone, a + 8,  kNone, b + 8, kNone,
                                                        a + 12, kNone, b + 12, kNone};
  alignas(16) static constexpr uint8_t kTwice[16] = {a,      a,      b,      b,     a + 4, a + 4,
                                                     b + 4,  b + 4,  a + 8,  a + 8, b + 8, b + 8,
                                                     a + 12, a + 12, b + 12, b + 12};
  if constexpr (kSigned) {
    const VU8 twice = hn::TableLookupBytes(v, hn::LoadDup128(DU8(), kTwice));
    return hn::ShiftRight<8>(hn::BitCast(DI16(), twice));
  } else {
    return hn::BitCast(DI16(), hn::TableLookupBytesOr0(v, hn::LoadDup128(DU8(), kUnsigned)));
  }
}

// Byte b of each lane as a factor of the lane's dot.
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3_DL
using Scale = VI32;
template <int b, bool kSigned>
HWY_INLINE Scale scale_of(VU8 v) {
  if constexpr (kSigned) {
    return hn::ShiftRight<24>(hn::ShiftLeft<24 - 8 * b>(hn::BitCast(DI32(), v)));
  } else {
    const auto shifted = hn::ShiftRight<8 * b>(hn::BitCast(DU32(), v));
    return hn::BitCast(DI32(), b == 3 ? shifted : hn::And(shifted, hn::Set(DU32(), 255)));
  }
}
#else
using Scale = VI16;  // twice in a lane
template <int b, bool kSigned>
HWY_INLINE Scale scale_of(VU8 v) {
  return two_bytes<b, b, kSigned>(v);
}
#endif

// Streams of one core, and how far ahead of it lines are asked for; perf/README.md has the numbers. Zen 4's own
// prefetch keeps up with one stream as long as the kernel waits for memory; with more tokens the pace is the
// kernel's, and asking early helps. Sapphire Rapids gains from two streams and from asking always; Zen 1, the oldest
// machine measured, by half from asking always. Into the second-level cache: the first has too few places for what is
// on its way.
constexpr bool kTwoStreams = HWY_ARCH_X86 && HWY_TARGET == HWY_AVX3_SPR;
constexpr bool kAskAlways = HWY_ARCH_X86 && HWY_TARGET >= HWY_AVX2;
template <int T>
constexpr int kPrefetchAhead = kTwoStreams  ? 3072
                               : T > 2      ? 6144
                               : kAskAlways ? 1024
                                            : 0;

// Asks for the lines `first` to `last` - 1 behind p, at the distance above. Going past the array is harmless.
template <int T>
HWY_INLINE void prefetch_lines(const uint8_t* p, int first, int last) {
  if constexpr (kPrefetchAhead < T >> 0) {
    for (int i = first; i < last; ++i) {
      __builtin_prefetch(p + kPrefetchAhead<T> + i * 64, 0, 2);
    }
  }
}

// Keeps the compiler from moving loads across: GCC otherwise loads much too early, and spills. Costs no instruction.
HWY_INLINE void order_loads() { asm volatile("" ::: "memory"); }

// A place in a strip: the halves and the body of one block.
struct BlockPlace {
  const uint8_t* halves;
  const uint8_t* body;
};

// Blocks go together until their fields fill 64 bytes: one field of halves in pairs (two are d and a minimum, or d and
// bits of scales), one of bytes in fours.
template <class Format>
HWY_INLINE BlockPlace place_of(const uint8_t* strip, int64_t block, int64_t n_blocks) {
  using Block = typename Format::Block;
  constexpr int64_t kBytes = kRows * int64_t{sizeof(Block)};
  constexpr bool kTwo = Format::kHasMin || requires { Format::kScalesInHalves; };
  constexpr int64_t kFields = (kTwo ? 2 : 1) * kRows * int64_t{sizeof(Block::d)};
  constexpr int64_t kTogether = kPieceBytes / kFields;
  const int64_t in_group = block % kTogether;
  const uint8_t* group = strip + (block - in_group) * kBytes;
  const int64_t left = n_blocks - (block - in_group);
  const int64_t n = left < kTogether ? left : kTogether;
  return {group + in_group * kFields, group + n * kFields + in_group * (kBytes - kFields)};
}

// Up to this many bytes activations stay in a first-level cache of 32 KB (K = 2048: 2.5 KB do, 8192: 10 KB do not).
constexpr int64_t kActStayBytes = 4096;

// The outputs of S strips for the tokens t0 to t0 + T - 1. Rule::block<T>(place, part, x, acc) adds
// one block.
template <class Rule, int S, int T>
HWY_INLINE void strips(const MatmulArgs& args, int64_t strip0, int64_t strip_step, int64_t t0) {
  using Act = typename Rule::Act;
  using Format = typename Rule::Format;
  const int64_t n_blocks = args.cols / Rule::kColumns;
  const uint8_t* act = static_cast<const uint8_t*>(args.act) + t0 * args.act_stride_bytes;
  VF32 acc[S][kParts][T];
  HWY_UNROLL(8)
  for (int s = 0; s < S; ++s) {
    HWY_UNROLL(8)
    for (int p = 0; p < kParts; ++p) {
      HWY_UNROLL(8)
      for (int t = 0; t < T; ++t) acc[s][p][t] = hn::Zero(DF32());
    }
  }
  // Long rows of activations are driven out of the first-level cache by the weights of a strip.
  const bool is_long = T <= 2 && n_blocks * int64_t{sizeof(Act)} > kActStayBytes;
  for (int64_t b = 0; b < n_blocks; ++b) {
    const Act* x[T];
    HWY_UNROLL(8)
    for (int t = 0; t < T; ++t) {
      x[t] = reinterpret_cast<const Act*>(act + t * args.act_stride_bytes) + b;
      if (is_long) {
        for (size_t i = 0; i < sizeof(Act); i += 64) {
          __builtin_prefetch(reinterpret_cast<const uint8_t*>(x[t] + 1) + i, 0, 3);
        }
      }
    }
    HWY_UNROLL(8)
    for (int s = 0; s < S; ++s) {
      const uint8_t* strip = args.weights + (strip0 + s * strip_step) * kRows * args.row_bytes;
      const BlockPlace place = place_of<Format>(strip, b, n_blocks);
      HWY_UNROLL(1)  // the body is long
      for (int p = 0; p < kParts; ++p) {
        Rule::template block<T>(place, p, x, acc[s][p]);
      }
    }
  }
  HWY_UNROLL(8)
  for (int s = 0; s < S; ++s) {
    const int64_t r = (strip0 + s * strip_step) * kRows;
    HWY_UNROLL(8)
    for (int p = 0; p < kParts; ++p) {
      const int64_t n = args.row_end - r - p * kLanes;
      HWY_UNROLL(8)
      for (int t = 0; t < T; ++t) {
        float* out = args.out + (t0 + t) * args.out_stride + r + p * kLanes;
        if (n >= kLanes) {
          hn::StoreU(acc[s][p][t], DF32(), out);
        } else if (n > 0) {
          hn::StoreN(acc[s][p][t], DF32(), out, static_cast<size_t>(n));
        }
      }
    }
  }
}

// Activations of this many bytes stay in the second-level cache while the strips pass.
constexpr int64_t kTokenChunkBytes = 512 * 1024;

// All strips and tokens of a call. Weights are read once for each chunk of tokens; the later groups of tokens of a
// strip find them in the cache.
template <class Rule>
HWY_INLINE void for_strips(const void* raw_args) {
  const MatmulArgs& args = *static_cast<const MatmulArgs*>(raw_args);
  const int64_t first = args.row_begin / kRows;
  const int64_t last = (args.row_end + kRows - 1) / kRows;
  if (args.n_tokens == 1) {
    int64_t s = first;
    if constexpr (kTwoStreams) {
      const int64_t half = (last - first) / 2;
      for (; s < first + half; ++s) strips<Rule, 2, 1>(args, s, half, 0);
      s += half;
    }
    for (; s < last; ++s) strips<Rule, 1, 1>(args, s, 0, 0);
    return;
  }
  const int64_t fitting = kTokenChunkBytes / args.act_stride_bytes / 8 * 8;
  const int64_t chunk = fitting < 16 ? 16 : fitting;
  for (int64_t chunk_begin = 0; chunk_begin < args.n_tokens; chunk_begin += chunk) {
    const int64_t chunk_end =
        args.n_tokens - chunk_begin < chunk ? args.n_tokens : chunk_begin + chunk;
    for (int64_t s = first; s < last; ++s) {
      int64_t t = chunk_begin;
      if constexpr (kVnni) {
        for (; t + 8 <= chunk_end; t += 8) strips<Rule, 1, 8>(args, s, 0, t);
      }
      for (; t + 4 <= chunk_end; t += 4) strips<Rule, 1, 4>(args, s, 0, t);
      if (t + 2 <= chunk_end) {
        strips<Rule, 1, 2>(args, s, 0, t);
        t += 2;
      }
      if (t < chunk_end) strips<Rule, 1, 1>(args, s, 0, t);
    }
  }
}

}  // namespace engine::HWY_NAMESPACE::rows16
HWY_AFTER_NAMESPACE();
#endif  // ENGINE_HWY_FMA_TARGET

#endif  // per-target include guard
