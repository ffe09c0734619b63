// Matrix products of packed strips on int8 tiles (AMX): 16 tokens by 16 rows at a time.
//
// A piece of a packed strip, four columns of 16 rows, is one row of a tile already, so weights are the second matrix
// and tokens the rows of the first. Products are exact integers and the float sequence is that of the vector rows, so
// every output has their bits.
#if defined(ENGINE_BACKENDS_CPU_ROWS16_AMX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ENGINE_BACKENDS_CPU_ROWS16_AMX_INL_H_
#undef ENGINE_BACKENDS_CPU_ROWS16_AMX_INL_H_
#else
#define ENGINE_BACKENDS_CPU_ROWS16_AMX_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "backends/cpu/amx_tiles.h"
#include "backends/cpu/rows16_formats256-inl.h"
#include "backends/cpu/rows16_formats32-inl.h"

#if ENGINE_HWY_FMA_TARGET
HWY_BEFORE_NAMESPACE();
namespace engine::HWY_NAMESPACE::rows16 {

constexpr int kTileTokens = 16;
constexpr int kTileRowBytes = 64;
constexpr int kTileBytes = 1024;

// Each rule has: its format and activations; the columns of a block and of a tile; the planes, matrices of int8 whose
// weighted sum is the block; whether planes are signed; kDirect: the pieces are a plane as they are; unpack, which
// writes the planes [kPlanes][columns / 4][64]; and Factors, of 16 rows, with add(x, dots, acc): the float sequence.

// scale * weight of a sub-block does not fit a byte, but splits into two planes that do:
//   unsigned: scale = 8 * (scale >> 3) + (scale & 7); 7 * 31 <= 255. Two bytes are multiplied at once, without a carry.
//   signed:   product = 64 * (product >> 6) + (product & 63); the first lies in [-64, 64].
template <class F>
struct Tiles256 {
  using Format = F;
  using Act = ActQ8x256;
  static constexpr int kColumns = 256;
  static constexpr int kTileColumns = 64;
  static constexpr bool kSigned = F::kSignedScale;
  static constexpr bool kDirect = false;
  static constexpr int kPlanes = !kSigned && F::kMaxWeight * F::kMaxScale <= 255 ? 1 : 2;
  static constexpr int kPlaneShift = kSigned ? 6 : 3;
  static constexpr int kPlaneBytes = kColumns * kRows;
  static constexpr int kSubBlocks = 256 / F::kSubColumns;
  static constexpr int kVectors = kSubBlocks / 4;

  static HWY_INLINE void unpack(const uint8_t* body, uint8_t* planes) {
    HWY_UNROLL(1)
    for (int part = 0; part < kParts; ++part) {
      unpack_from<0>(body, part, F::load_scales(body, part), planes);
    }
  }

  struct Factors {
    VF32 d, dmin;
    VI16 min[8];  // of two sums of 16 columns

    HWY_INLINE Factors(const BlockPlace& place, int part) : d(load_halves(place.halves, part)) {
      if constexpr (F::kHasMin) {
        dmin = load_halves(place.halves + kHalvesBytes, part);
        load_mins<0>(F::load_scales(place.body, part));
      }
    }
    HWY_INLINE VF32 add(const Act& x, const VI32 (&dots)[kPlanes], VF32 acc) const {
      VI32 sum = dots[0];
      if constexpr (kPlanes == 2) sum = hn::Add(hn::ShiftLeft<kPlaneShift>(dots[0]), dots[1]);
      const VF32 dx = hn::Set(DF32(), x.d);
      acc = hn::MulAdd(hn::Mul(d, dx), hn::ConvertTo(DF32(), sum), acc);
      if constexpr (F::kHasMin) {
        VI32 mins = hn::Zero(DI32());
        HWY_UNROLL(8)
        for (int i = 0; i < 8; ++i) mins = add_pairs(mins, min[i], load_sums(x.sum16 + 2 * i));
        acc = hn::NegMulAdd(hn::Mul(dmin, dx), hn::ConvertTo(DF32(), mins), acc);
      }
      return acc;
    }

   private:
    template <int i>
    HWY_INLINE void load_mins(const Scales<kVectors>& scales) {
      min[i] = for_two_sums<kVectors, i, false>(scales.min);
      if constexpr (i < 7) load_mins<i + 1>(scales);
    }
  };

 private:
  template <int j>
  static HWY_INLINE void unpack_from(const uint8_t* body, int part, const Scales<kVectors>& scales,
                                     uint8_t* planes) {
    const VI16 scale = two_bytes<j % 4, j % 4, kSigned>(scales.scale[j / 4]);
    uint8_t* out = planes + j * F::kSubColumns * kRows + part * 4 * kLanes;
    HWY_UNROLL(8)
    for (int k = 0; k < F::kSubColumns / 4; ++k, out += kPieceBytes) {
      const VI16 w = hn::BitCast(DI16(), F::template weights<j>(body, part, k));
      if constexpr (kSigned) {
        const VI16 offset = hn::Set(DI16(), 1 << F::kOffsetShift);
        const VI16 low = hn::And(w, hn::Set(DI16(), 255));
        const VI16 high = hn::BitCast(DI16(), hn::ShiftRight<8>(hn::BitCast(DU16(), w)));
        store_split(hn::Mul(hn::Sub(low, offset), scale), hn::Mul(hn::Sub(high, offset), scale),
                    out);
      } else if constexpr (kPlanes == 2) {
        store(hn::Mul(w, hn::ShiftRight<3>(scale)), out);
        store(hn::Mul(w, hn::And(scale, hn::Set(DI16(), 7))), out + kPlaneBytes);
      } else {
        store(hn::Mul(w, scale), out);
      }
    }
    if constexpr (j + 1 < kSubBlocks) unpack_from<j + 1>(body, part, scales, planes);
  }

  // The planes of the products of even and of odd columns.
  static HWY_INLINE void store_split(VI16 even, VI16 odd, uint8_t* out) {
    const VI16 byte = hn::Set(DI16(), 255);
    const VI16 low = hn::Set(DI16(), 63);
    store(hn::Or(hn::And(hn::ShiftRight<6>(even), byte), hn::ShiftLeft<8>(hn::ShiftRight<6>(odd))),
          out);
    store(hn::Or(hn::And(even, low), hn::ShiftLeft<8>(hn::And(odd, low))), out + kPlaneBytes);
  }
  static HWY_INLINE void store(VI16 v, uint8_t* out) {
    hn::StoreU(hn::BitCast(DU8(), v), DU8(), out);
  }
};

template <class F>
struct Tiles32 {
  using Format = F;
  using Act = ActQ8x32;
  static constexpr int kColumns = 32;
  static constexpr int kTileColumns = 32;
  static constexpr bool kSigned = true;
  static constexpr bool kDirect = F::kDirect;
  static constexpr int kPlanes = 1;
  static constexpr int kPlaneBytes = kColumns * kRows;

  static HWY_INLINE void unpack(const uint8_t* body, uint8_t* planes) {
    HWY_UNROLL(1)
    for (int part = 0; part < kParts; ++part) {
      unpack_from<0>(body, part, planes + part * 4 * kLanes);
    }
  }

  struct Factors {
    VF32 d, m;

    HWY_INLINE Factors(const BlockPlace& place, int part) : d(load_d<F>(place.halves, part)) {
      if constexpr (F::kHasMin) m = load_halves(place.halves + kHalvesBytes, part);
    }
    HWY_INLINE VF32 add(const Act& x, const VI32 (&dots)[1], VF32 acc) const {
      const VF32 dx = hn::Set(DF32(), x.d);
      acc = hn::MulAdd(hn::Mul(d, dx), hn::ConvertTo(DF32(), dots[0]), acc);
      if constexpr (F::kHasMin) {
        acc = hn::MulAdd(hn::Mul(m, dx), hn::Set(DF32(), static_cast<float>(x.sum)), acc);
      }
      return acc;
    }
  };

 private:
  template <int k>
  static HWY_INLINE void unpack_from(const uint8_t* body, int part, uint8_t* out) {
    const VU8 w = F::template weights<k>(body, part);
    hn::StoreU(hn::Sub(w, hn::Set(DU8(), static_cast<uint8_t>(F::kOffset))), DU8(),
               out + k * kPieceBytes);
    if constexpr (k < 7) unpack_from<k + 1>(body, part, out);
  }
};

// The tile registers: sums of S strips by plane, then two that take turns for tokens and two for weights.
constexpr int kTokenTile = 4;
constexpr int kWeightTile = 6;

template <class Rule>
HWY_INLINE TileConfig tile_config(int n_tokens) {
  TileConfig config;
  for (int i = 0; i < 8; ++i) {
    config.rows[i] = static_cast<uint8_t>(i < kWeightTile ? n_tokens : Rule::kTileColumns / 4);
    config.row_bytes[i] =
        i == kTokenTile || i == kTokenTile + 1 ? Rule::kTileColumns : kTileRowBytes;
  }
  return config;
}

// What is multiplied: a group of tokens with one block of S strips.
template <class Rule, int S>
struct BlockOperands {
  const int8_t* tokens;  // activations of the block of the first token
  int64_t token_stride_bytes;
  const uint8_t* weights[S];  // planes
};

// Multiplies into the sums from tile column kStep on; register kStep * ... of a strip and plane is its number.
template <class Rule, int S, int kStep, int kSum, class Tiles>
HWY_INLINE void multiply_from(const BlockOperands<Rule, S>& in, Tiles& tiles) {
  constexpr int kSums = S * Rule::kPlanes;
  constexpr int kTokens = kTokenTile + kStep % 2;
  constexpr int kWeights = kWeightTile + kSum % 2;
  if constexpr (kStep == 0) tiles.template zero<kSum>();
  if constexpr (kSum == 0) {
    tiles.template load<kTokens>(in.tokens + kStep * Rule::kTileColumns, in.token_stride_bytes);
  }
  const uint8_t* plane =
      in.weights[kSum / Rule::kPlanes] + kSum % Rule::kPlanes * Rule::kPlaneBytes;
  tiles.template load<kWeights>(plane + kStep * Rule::kTileColumns * kRows, kTileRowBytes);
  tiles.template multiply<kSum, kTokens, kWeights, Rule::kSigned>();
  if constexpr (kSum + 1 < kSums) {
    multiply_from<Rule, S, kStep, kSum + 1>(in, tiles);
  } else if constexpr ((kStep + 1) * Rule::kTileColumns < Rule::kColumns) {
    multiply_from<Rule, S, kStep + 1, 0>(in, tiles);
  }
}

template <int kSums, int kSum = 0, class Tiles>
HWY_INLINE void store_sums(int32_t (*sums)[kTileBytes / 4], Tiles& tiles) {
  tiles.template store<kSum>(sums[kSum], kTileRowBytes);
  if constexpr (kSum + 1 < kSums) store_sums<kSums, kSum + 1>(sums, tiles);
}

// Tokens whose accumulators lie on the stack at once.
constexpr int kMaxTileTokens = 128;

// The outputs of S neighbouring strips for the tokens t0 to t0 + n - 1; n <= kMaxTileTokens. The tiles are configured
// for min(n, 16) tokens. With more, the last group of 16 overlaps the one before it and computes the same numbers.
template <class Rule, int S, class Tiles>
HWY_INLINE void tile_strips(const MatmulArgs& args, int64_t strip0, int64_t t0, int n,
                            Tiles& tiles) {
  using Act = typename Rule::Act;
  constexpr int kSums = S * Rule::kPlanes;
  constexpr int kLines = kRows * static_cast<int>(sizeof(typename Rule::Format::Block)) / 64;
  alignas(64) uint8_t planes[S][Rule::kDirect ? 64 : Rule::kPlanes * Rule::kPlaneBytes];
  alignas(64) int32_t sums[2][kSums][kTileBytes / 4];
  alignas(64) float acc[kMaxTileTokens / kTileTokens][S][kTileTokens][kRows];
  const int n_groups = (n + kTileTokens - 1) / kTileTokens;
  const int group_size = n < kTileTokens ? n : kTileTokens;
  const int64_t n_blocks = args.cols / Rule::kColumns;
  const auto first_of = [&](int g) { return t0 + std::min(g * kTileTokens, n - group_size); };
  const uint8_t* act = static_cast<const uint8_t*>(args.act);
  std::memset(acc, 0, static_cast<size_t>(n_groups) * sizeof(acc[0]));

  BlockPlace place[S];
  const auto finish = [&](int g, int64_t b) HWY_ATTR {
    const uint8_t* x = act + first_of(g) * args.act_stride_bytes + b * int64_t{sizeof(Act)};
    HWY_UNROLL(2)
    for (int s = 0; s < S; ++s) {
      HWY_UNROLL(1)
      for (int part = 0; part < kParts; ++part) {
        const typename Rule::Factors factors(place[s], part);
        HWY_UNROLL(1)
        for (int t = 0; t < group_size; ++t) {
          const int at = t * kRows + part * kLanes;
          VI32 dots[Rule::kPlanes];
          HWY_UNROLL(2)
          for (int p = 0; p < Rule::kPlanes; ++p) {
            dots[p] = hn::Load(DI32(), &sums[g % 2][s * Rule::kPlanes + p][at]);
          }
          float* a = &acc[g][s][t][part * kLanes];
          const Act& row = *reinterpret_cast<const Act*>(x + t * args.act_stride_bytes);
          hn::Store(factors.add(row, dots, hn::Load(DF32(), a)), DF32(), a);
        }
      }
    }
  };

  for (int64_t b = 0; b < n_blocks; ++b) {
    BlockOperands<Rule, S> in;
    in.token_stride_bytes = args.act_stride_bytes;
    HWY_UNROLL(2)
    for (int s = 0; s < S; ++s) {
      place[s] = place_of<typename Rule::Format>(
          args.weights + (strip0 + s) * kRows * args.row_bytes, b, n_blocks);
      if constexpr (!Rule::kDirect) Rule::unpack(place[s].body, planes[s]);
      in.weights[s] = Rule::kDirect ? place[s].body : planes[s];
    }
    // The float work of a group follows the products of the next one, which the tile unit does meanwhile.
    for (int g = 0; g < n_groups; ++g) {
      in.tokens = reinterpret_cast<const Act*>(act + first_of(g) * args.act_stride_bytes)[b].q;
      multiply_from<Rule, S, 0, 0>(in, tiles);
      HWY_UNROLL(2)
      for (int s = 0; s < S; ++s) {  // the next block, a part of it with each group
        for (int i = g * kLines / n_groups; i < (g + 1) * kLines / n_groups; ++i) {
          __builtin_prefetch(place[s].body + (kLines + i) * 64, 0, 2);
        }
      }
      if (g > 0) finish(g - 1, b);
      store_sums<kSums>(sums[g % 2], tiles);
    }
    finish(n_groups - 1, b);
  }

  for (int g = 0; g < n_groups; ++g) {
    for (int s = 0; s < S; ++s) {
      const int64_t r = (strip0 + s) * kRows;
      const int64_t n_rows = std::min<int64_t>(kRows, args.row_end - r);
      for (int t = 0; t < group_size; ++t) {
        std::memcpy(args.out + (first_of(g) + t) * args.out_stride + r, acc[g][s][t],
                    static_cast<size_t>(n_rows) * sizeof(float));
      }
    }
  }
}

// Activations of this many bytes stay in the second-level cache (2 MB on Sapphire Rapids) while the strips pass: half
// of it (shared design notes: 7 to 10 % are lost beyond).
constexpr int64_t kTileChunkBytes = 1024 * 1024;

// All strips and tokens of a call, in chunks of tokens of nearly the same size.
template <class Rule, class Tiles>
HWY_INLINE void for_tile_strips(const void* raw_args, Tiles& tiles) {
  const MatmulArgs& args = *static_cast<const MatmulArgs*>(raw_args);
  const int64_t first = args.row_begin / kRows;
  const int64_t last = (args.row_end + kRows - 1) / kRows;
  const int64_t fitting = kTileChunkBytes / args.act_stride_bytes / kTileTokens * kTileTokens;
  const int64_t most = std::clamp<int64_t>(fitting, kTileTokens, kMaxTileTokens);
  const int64_t n_chunks = (args.n_tokens + most - 1) / most;
  const int64_t even = (args.n_tokens + n_chunks - 1) / n_chunks;
  const int64_t chunk = (even + kTileTokens - 1) / kTileTokens * kTileTokens;
  int configured = 0;
  for (int64_t t = 0; t < args.n_tokens; t += chunk) {
    const int n = static_cast<int>(std::min(chunk, args.n_tokens - t));
    if (configured != std::min(n, kTileTokens)) {
      configured = std::min(n, kTileTokens);
      tiles.configure(tile_config<Rule>(configured));
    }
    int64_t s = first;
    for (; s + 2 <= last; s += 2) tile_strips<Rule, 2>(args, s, t, n, tiles);
    if (s < last) tile_strips<Rule, 1>(args, s, t, n, tiles);
  }
  tiles.release();
}

}  // namespace engine::HWY_NAMESPACE::rows16
HWY_AFTER_NAMESPACE();
#endif  // ENGINE_HWY_FMA_TARGET

#endif  // per-target include guard
