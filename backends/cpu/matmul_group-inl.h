// Row groups of the vector matmul kernels: loads, exact integer dots and the reduction to one lane
// per row.
//
// Loops over arrays of vectors are unrolled (HWY_UNROLL): only then do the arrays stay in
// registers.
//
// A group is kGroupRows weight rows. A vector holds 16 bytes (one 128-bit part) of kRowsPerVector
// rows: vector v has rows v and v + 4. Integer dots leave four int32 partial sums per row;
// reduce_rows turns the four vectors of a group into one vector with a lane per row, and all float
// work is done on such vectors. So no float is ever summed across lanes and the result does not
// depend on the width.
#if defined(ENGINE_BACKENDS_CPU_MATMUL_GROUP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ENGINE_BACKENDS_CPU_MATMUL_GROUP_INL_H_
#undef ENGINE_BACKENDS_CPU_MATMUL_GROUP_INL_H_
#else
#define ENGINE_BACKENDS_CPU_MATMUL_GROUP_INL_H_
#endif

#include <cstdint>
#include <cstring>

#include "backends/cpu/hwy_targets.h"
#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "lib/contract/op.h"

#if ENGINE_HWY_FMA_TARGET
HWY_BEFORE_NAMESPACE();
namespace engine::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// 256 bits at most: wider vectors would need more rows per group, and decoding is bound by memory.
using DU8 = hn::CappedTag<uint8_t, 32>;
using DI8 = hn::RebindToSigned<DU8>;
using DU16 = hn::RepartitionToWide<DU8>;
using DI16 = hn::RebindToSigned<DU16>;
using DI32 = hn::RepartitionToWide<DI16>;
using DF32 = hn::RebindToFloat<DI32>;
using VU8 = hn::Vec<DU8>;
using VI8 = hn::Vec<DI8>;
using VI16 = hn::Vec<DI16>;
using VI32 = hn::Vec<DI32>;
using VF32 = hn::Vec<DF32>;

constexpr int kRowsPerVector = static_cast<int>(hn::MaxLanes(DU8()) / 16);
constexpr int kVectors = 4;  // per group
constexpr int kGroupRows = kVectors * kRowsPerVector;

// The rows of one group. Past the last row of the matrix part, the last row is repeated.
struct RowGroup {
  const uint8_t* row[kGroupRows];
};

HWY_INLINE VU8 from_parts(hn::Vec<hn::Full128<uint8_t>> part0,
                          hn::Vec<hn::Full128<uint8_t>> part1) {
#if HWY_MAX_BYTES >= 32
  return hn::Combine(DU8(), part1, part0);
#else
  (void)part1;
  return part0;
#endif
}

// 16 bytes at `offset` of each row of vector v.
HWY_INLINE VU8 load_rows(const RowGroup& group, int v, int64_t offset) {
  const hn::Full128<uint8_t> d128;
  const auto part0 = hn::LoadU(d128, group.row[v] + offset);
#if HWY_MAX_BYTES >= 32
  return hn::Combine(DU8(), hn::LoadU(d128, group.row[v + 4] + offset), part0);
#else
  return part0;
#endif
}

// Two numbers per row, from scalar code, as the 16 bytes of the row's part.
struct U64Pair {
  uint64_t low, high;
};
HWY_INLINE VU8 set_rows(U64Pair row0, U64Pair row1) {
  const hn::Full128<uint64_t> d64;
  const hn::Full128<uint8_t> d8;
  return from_parts(hn::BitCast(d8, hn::Dup128VecFromValues(d64, row0.low, row0.high)),
                    hn::BitCast(d8, hn::Dup128VecFromValues(d64, row1.low, row1.high)));
}

template <class T>
HWY_INLINE T load_as(const uint8_t* p) {
  T value;
  std::memcpy(&value, p, sizeof(T));
  return value;
}

// The halves at `offset` of every row, as f32, a lane per row. The conversion is exact. Collecting
// them in scalar registers keeps the vector units free.
HWY_INLINE VF32 load_halves(const RowGroup& group, int64_t offset) {
  const auto four = [&](int first) HWY_ATTR {
    const uint8_t* const* rows = group.row + first;
    return static_cast<uint64_t>(load_as<uint16_t>(rows[0] + offset)) |
           static_cast<uint64_t>(load_as<uint16_t>(rows[1] + offset)) << 16 |
           static_cast<uint64_t>(load_as<uint16_t>(rows[2] + offset)) << 32 |
           static_cast<uint64_t>(load_as<uint16_t>(rows[3] + offset)) << 48;
  };
  const hn::Rebind<hwy::float16_t, DF32> d16;
  const hn::Full128<uint64_t> d64;
  const hn::Full128<hwy::float16_t> d16_full;
  const uint64_t upper = kRowsPerVector == 2 ? four(kGroupRows - 4) : 0;
  const auto bits = hn::BitCast(d16_full, hn::Dup128VecFromValues(d64, four(0), upper));
  return hn::PromoteTo(DF32(), hn::ResizeBitCast(d16, bits));
}

// Sums the four int32 of each row: lane r of the result is row r of the group.
HWY_INLINE VI32 reduce_rows(VI32 v0, VI32 v1, VI32 v2, VI32 v3) {
  const hn::Repartition<int64_t, DI32> d64;
  const VI32 v01 = hn::Add(hn::InterleaveLower(v0, v1), hn::InterleaveUpper(DI32(), v0, v1));
  const VI32 v23 = hn::Add(hn::InterleaveLower(v2, v3), hn::InterleaveUpper(DI32(), v2, v3));
  const auto pair01 = hn::BitCast(d64, v01);
  const auto pair23 = hn::BitCast(d64, v23);
  return hn::Add(hn::BitCast(DI32(), hn::InterleaveLower(pair01, pair23)),
                 hn::BitCast(DI32(), hn::InterleaveUpper(d64, pair01, pair23)));
}

// 16 activations, the same in every part.
HWY_INLINE VI8 load_act(const int8_t* q) { return hn::LoadDup128(DI8(), q); }

// Sums of two neighbouring products: at most 2 * 127 * max(w), which is below 2^15 for weights up
// to 128.
HWY_INLINE VI16 dot_pairs(VU8 w, VI8 x) { return hn::SatWidenMulPairwiseAdd(DI16(), w, x); }

HWY_INLINE VI32 sum_pairs(VI16 a, VI16 b) { return hn::WidenMulPairwiseAdd(DI32(), a, b); }

// w * x = |w| * (x with the sign of w): |w| <= 128 is an unsigned byte, and x, never -128, can be negated. A pair
// is at most 2 * 128 * 127 = 32,512 < 2^15.
HWY_INLINE VI16 dot_signed_pairs(VU8 weights, VI8 x) {
  const VI8 w = hn::BitCast(DI8(), weights);
  // Where w is 0 the sign is undefined, and the product is 0 all the same.
  return dot_pairs(hn::BitCast(DU8(), hn::Abs(w)), hn::IfNegativeThenNegOrUndefIfZero(w, x));
}

// The bytes of a table of 16 that numbers below 16 stand for.
HWY_INLINE VU8 look_up(const int8_t* table, VU8 index) {
  const VU8 values = hn::LoadDup128(DU8(), reinterpret_cast<const uint8_t*>(table));
  return hn::TableLookupBytes(values, index);
}

// Touches the lines of [p, p + bytes) ahead of their use. Going past the array is harmless.
HWY_INLINE void prefetch(const uint8_t* p, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += 64) hwy::Prefetch(p + i);
}

// Stores the lanes of the group's first `n_rows` rows.
HWY_INLINE void store_rows(VF32 acc, int64_t n_rows, float* out) {
  if (n_rows >= kGroupRows) {
    hn::StoreU(acc, DF32(), out);
  } else {
    hn::StoreN(acc, DF32(), out, static_cast<size_t>(n_rows));
  }
}

// Runs Kernel::group<T>(group, next, args, t0, n_rows, out) over all row groups and tokens, at most
// four tokens at a time: the weights of a group stay in the cache between them.
template <class Kernel>
HWY_INLINE void for_groups(const void* raw_args) {
  const MatmulArgs& args = *static_cast<const MatmulArgs*>(raw_args);
  for (int64_t r = args.row_begin; r < args.row_end; r += kGroupRows) {
    const int64_t n_rows = args.row_end - r < kGroupRows ? args.row_end - r : kGroupRows;
    RowGroup group;
    for (int64_t i = 0; i < kGroupRows; ++i) {
      group.row[i] = args.weights + (r + (i < n_rows ? i : n_rows - 1)) * args.row_bytes;
    }
    int64_t t = 0;
    for (; t + 4 <= args.n_tokens; t += 4) Kernel::template group<4>(group, args, t, r, n_rows);
    switch (args.n_tokens - t) {
      case 1: Kernel::template group<1>(group, args, t, r, n_rows); break;
      case 2: Kernel::template group<2>(group, args, t, r, n_rows); break;
      case 3: Kernel::template group<3>(group, args, t, r, n_rows); break;
      default: break;
    }
  }
}

}  // namespace engine::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // ENGINE_HWY_FMA_TARGET

#endif  // per-target include guard
