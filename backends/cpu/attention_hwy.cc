// Vector rows of attention: the float sequence of AttentionArgs, lanes being positions for K and
// head dimensions for V.
// clang-format off: the order matters, foreach_target.h includes this file once per target
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/attention_hwy.cc"
#include "backends/cpu/hwy_targets.h"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
// clang-format on

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "backends/cpu/lane_tree-inl.h"
#include "backends/cpu/math-inl.h"
#include "backends/cpu/math_scalar.h"
#include "lib/contract/kv_block.h"

#if ENGINE_HWY_FMA_TARGET
HWY_BEFORE_NAMESPACE();
namespace engine::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

HWY_INLINE VF load(const hwy::float16_t* from) {
  const hn::Rebind<hwy::float16_t, DF> dh;
  return hn::PromoteTo(DF(), hn::LoadU(dh, from));
}
HWY_INLINE VF load(const float* from) { return hn::LoadU(DF(), from); }
HWY_INLINE VF load_n(const hwy::float16_t* from, size_t n) {
  const hn::Rebind<hwy::float16_t, DF> dh;
  return hn::PromoteTo(DF(), hn::LoadN(dh, from, n));
}
HWY_INLINE VF load_n(const float* from, size_t n) { return hn::LoadN(DF(), from, n); }
// Codes of q8_0; exact.
using DI8 = hn::Rebind<int8_t, DF>;
HWY_INLINE VF from_codes(hn::Vec<DI8> codes) {
  const hn::RebindToSigned<DF> di;
  return hn::ConvertTo(DF(), hn::PromoteTo(di, codes));
}
HWY_INLINE VF load(const int8_t* from) { return from_codes(hn::LoadU(DI8(), from)); }
HWY_INLINE VF load_n(const int8_t* from, size_t n) { return from_codes(hn::LoadN(DI8(), from, n)); }
HWY_INLINE VF broadcast(const hwy::float16_t* from) {
  const hn::Rebind<hwy::float16_t, DF> dh;
  return hn::PromoteTo(DF(), hn::Set(dh, *from));
}

// The query heads of one token that share a KV head. Keys and values are loaded once for all of them; each
// has its own sums, so the float sequence is that of one query.
template <int kQ, class Stored>
struct Heads {
  const AttentionArgs& args;
  const float* q[kQ];
  int64_t kv_head;

  const Stored* k_page(int64_t position) const {  // [Dk][64]
    const uint8_t* page = args.kv.pages[position / kKvPagePositions];
    return reinterpret_cast<const Stored*>(page + args.kv.k_offset_bytes) +
           kv_head * args.head_dim_k * kKvPagePositions;
  }
  const Stored* v_row(int64_t position) const {  // [Dv]
    const uint8_t* page = args.kv.pages[position / kKvPagePositions];
    return reinterpret_cast<const Stored*>(page + args.kv.v_offset_bytes) +
           (kv_head * kKvPagePositions + position % kKvPagePositions) * args.head_dim_v;
  }
  // Of q8_0, from the position on.
  const hwy::float16_t* k_scales(int64_t position) const {  // [ceil(Dk / 32)][64]
    return reinterpret_cast<const hwy::float16_t*>(
        q8_key(args.kv, args.n_kv_heads, args.head_dim_k, kv_head, position).scales);
  }
  const hwy::float16_t* v_scales(int64_t position) const {  // [ceil(Dv / 32)]
    return reinterpret_cast<const hwy::float16_t*>(
        q8_value(args.kv, args.n_kv_heads, args.head_dim_v, kv_head, position).scales);
  }
};

template <class Stored>
constexpr bool kHasScales = std::is_same_v<Stored, int8_t>;

// Accumulators that fit the registers, a load and a factor beside them: 32 of AVX-512 and NEON, 16 of AVX2.
constexpr int kAccumulators = HWY_MAX_BYTES == 32 ? 8 : 16;

// Dots with kVectors * kLanesF neighbouring positions of one page, from `position` on.
template <int kQ, int kVectors, class Stored>
HWY_INLINE void dot_positions(const Heads<kQ, Stored>& heads, int64_t position, float* scores) {
  const DF d;
  constexpr int kLanes = static_cast<int>(kLanesF);
  const int64_t slot = position % kKvPagePositions;
  const Stored* k = heads.k_page(position) + slot;
  const hwy::float16_t* scales_at = nullptr;
  if constexpr (kHasScales<Stored>) scales_at = heads.k_scales(position);
  VF scales[kVectors];
  VF sums[kQ][kVectors];
  HWY_UNROLL(4)
  for (int i = 0; i < kQ; ++i) {
    HWY_UNROLL(8)
    for (int v = 0; v < kVectors; ++v) sums[i][v] = hn::Zero(d);
  }
  for (int64_t dim = 0; dim < heads.args.head_dim_k; ++dim, k += kKvPagePositions) {
    if constexpr (kHasScales<Stored>) {
      if (dim % kKvBlock == 0) {
        HWY_UNROLL(8)
        for (int v = 0; v < kVectors; ++v) scales[v] = load(scales_at + v * kLanes);
        scales_at += kKvPagePositions;
      }
    }
    VF keys[kVectors];
    HWY_UNROLL(8)
    for (int v = 0; v < kVectors; ++v) {
      keys[v] = load(k + v * kLanes);
      if constexpr (kHasScales<Stored>) keys[v] = hn::Mul(keys[v], scales[v]);
    }
    HWY_UNROLL(4)
    for (int i = 0; i < kQ; ++i) {
      const VF factor = hn::Set(d, heads.q[i][dim]);
      HWY_UNROLL(8)
      for (int v = 0; v < kVectors; ++v) sums[i][v] = hn::MulAdd(factor, keys[v], sums[i][v]);
    }
  }
  HWY_UNROLL(4)
  for (int i = 0; i < kQ; ++i) {
    HWY_UNROLL(8)
    for (int v = 0; v < kVectors; ++v) {
      hn::Store(sums[i][v], d, scores + i * kAttentionSplit + v * kLanes);
    }
  }
}

// Raw dots of the 16-position groups that cover [begin, end); scores[i][0] belongs to position `base`.
template <int kQ, class Stored>
HWY_INLINE void dot_groups(const Heads<kQ, Stored>& heads, int64_t base, int64_t begin, int64_t end,
                           float* scores) {
  constexpr int kLanes = static_cast<int>(kLanesF);
  constexpr int kPageVectors = static_cast<int>(kKvPagePositions) / kLanes;
  constexpr int kFit = kAccumulators / kQ > kPageVectors ? kPageVectors : kAccumulators / kQ;
  // A divisor of the page: 1, 2, 4 or 8 vectors.
  constexpr int kVectors = kFit >= 8 ? 8 : kFit >= 4 ? 4 : kFit >= 2 ? 2 : 1;
  for (int64_t j = begin / kVirtualLanes * kVirtualLanes; j < end;) {
    const int64_t slot = j % kKvPagePositions;
    if (slot % (kVectors * kLanes) == 0 && end - j > kVectors * kLanes - kVirtualLanes) {
      dot_positions<kQ, kVectors>(heads, j, scores + (j - base));
      j += kVectors * kLanes;
    } else {
      dot_positions<kQ, 1>(heads, j, scores + (j - base));
      j += kLanes;
    }
  }
}

// Turns raw dots into scores, with -inf for positions outside [begin, end), and returns the
// largest.
HWY_INLINE float finish_scores(const AttentionArgs& args, int64_t base, int64_t begin, int64_t end,
                               float* scores) {
  const DF d;
  const hn::RebindToSigned<DF> di;
  const VF minus_inf = hn::Set(d, -std::numeric_limits<float>::infinity());
  const VF scale = hn::Set(d, args.scale);
  const VF cap = hn::Set(d, args.softcap);
  const auto first = hn::Set(di, static_cast<int32_t>(begin - base));
  const auto past = hn::Set(di, static_cast<int32_t>(end - base));
  VF max = minus_inf;
  const int64_t groups_end = (end - base + kVirtualLanes - 1) / kVirtualLanes * kVirtualLanes;
  for (int64_t j = (begin - base) / kVirtualLanes * kVirtualLanes; j < groups_end; j += kLanesF) {
    VF s = hn::Mul(hn::Load(d, scores + j), scale);
    if (args.softcap > 0.0f) s = softcap_v(d, s, cap);
    const auto index = hn::Iota(di, static_cast<int32_t>(j));
    const auto seen = hn::And(hn::Ge(index, first), hn::Lt(index, past));
    s = hn::IfThenElse(hn::RebindMask(d, seen), s, minus_inf);
    hn::Store(s, d, scores + j);
    max = hn::Max(max, s);
  }
  return hn::ReduceMax(d, max);
}

// scores = exp(scores - max); returns their sum by the lane tree. exp(-inf) = +0 adds nothing to a
// lane.
HWY_INLINE float exponentiate(int64_t begin, int64_t end, float max, float* scores) {
  const DF d;
  const VF max_v = hn::Set(d, max);
  VF lanes[kTreeVectors];
  for (size_t v = 0; v < kTreeVectors; ++v) lanes[v] = hn::Zero(d);
  for (int64_t j = begin / kVirtualLanes * kVirtualLanes; j < end; j += kVirtualLanes) {
    for (size_t v = 0; v < kTreeVectors; ++v) {
      float* at = scores + j + static_cast<int64_t>(v * kLanesF);
      const VF e = exp_v(d, hn::Sub(hn::Load(d, at), max_v));
      hn::Store(e, d, at);
      lanes[v] = hn::Add(lanes[v], e);
    }
  }
  return lane_tree_sum_v(lanes);
}

// o[i][dim ..] = sum over the positions of [begin, end) of weight * v, for kVectors vectors of dimensions.
// `count` is the dimensions left; below a vector's width the last one is loaded in part.
template <int kQ, int kVectors, class Stored>
HWY_INLINE void weigh_dims(const Heads<kQ, Stored>& heads, int64_t begin, int64_t end, int64_t dim,
                           int64_t count, const float* weights, float* o, int64_t o_stride) {
  const DF d;
  constexpr int kLanes = static_cast<int>(kLanesF);
  const int64_t dv = heads.args.head_dim_v;
  VF sums[kQ][kVectors];
  HWY_UNROLL(4)
  for (int i = 0; i < kQ; ++i) {
    HWY_UNROLL(8)
    for (int v = 0; v < kVectors; ++v) sums[i][v] = hn::Zero(d);
  }
  for (int64_t j = begin; j < end;) {
    const int64_t page_end = std::min(end, (j / kKvPagePositions + 1) * kKvPagePositions);
    const Stored* v = heads.v_row(j) + dim;
    const hwy::float16_t* scales_at = nullptr;
    if constexpr (kHasScales<Stored>) scales_at = heads.v_scales(j);
    for (; j < page_end; ++j, v += dv) {
      VF values[kVectors];
      if (kVectors == 1 && count < kLanes) {
        values[0] = load_n(v, static_cast<size_t>(count));
      } else {
        HWY_UNROLL(8)
        for (int n = 0; n < kVectors; ++n) values[n] = load(v + n * kLanes);
      }
      if constexpr (kHasScales<Stored>) {  // a vector never spans two blocks
        HWY_UNROLL(8)
        for (int n = 0; n < kVectors; ++n) {
          values[n] = hn::Mul(values[n], broadcast(scales_at + (dim + n * kLanes) / kKvBlock));
        }
        scales_at += kv_blocks(dv);
      }
      HWY_UNROLL(4)
      for (int i = 0; i < kQ; ++i) {
        const VF weight = hn::Set(d, weights[i * kAttentionSplit + (j - begin)]);
        HWY_UNROLL(8)
        for (int n = 0; n < kVectors; ++n) {
          sums[i][n] = hn::MulAdd(weight, values[n], sums[i][n]);
        }
      }
    }
  }
  HWY_UNROLL(4)
  for (int i = 0; i < kQ; ++i) {
    HWY_UNROLL(8)
    for (int n = 0; n < kVectors; ++n) hn::Store(sums[i][n], d, o + i * o_stride + n * kLanes);
  }
}

template <int kQ, class Stored>
HWY_INLINE void weigh_values(const Heads<kQ, Stored>& heads, int64_t begin, int64_t end,
                             const float* weights, float* o, int64_t o_stride) {
  constexpr int kLanes = static_cast<int>(kLanesF);
  constexpr int kVectors = kAccumulators / kQ >= 8 ? 8 : kAccumulators / kQ >= 4 ? 4 : 2;
  const int64_t dv = heads.args.head_dim_v;
  int64_t dim = 0;
  for (; dim + kVectors * kLanes <= dv; dim += kVectors * kLanes) {
    weigh_dims<kQ, kVectors>(heads, begin, end, dim, dv - dim, weights, o + dim, o_stride);
  }
  for (; dim < dv; dim += kLanes) {
    weigh_dims<kQ, 1>(heads, begin, end, dim, dv - dim, weights, o + dim, o_stride);
  }
}

struct SplitResult {
  float max;
  float sum;
};

// One split: positions [begin, end) of one absolute block of kAttentionSplit. Fills o[i], padded to vectors.
template <int kQ, class Stored>
HWY_INLINE void attend_split(const Heads<kQ, Stored>& heads, int64_t begin, int64_t end,
                             float* scores, float* o, int64_t o_stride, SplitResult* results) {
  const int64_t base = begin / kAttentionSplit * kAttentionSplit;
  dot_groups(heads, base, begin, end, scores);
  for (int i = 0; i < kQ; ++i) {
    float* row = scores + i * kAttentionSplit;
    results[i].max = finish_scores(heads.args, base, begin, end, row);
    results[i].sum = exponentiate(begin - base, end - base, results[i].max, row);
  }
  weigh_values(heads, begin, end, scores + (begin - base), o, o_stride);
}

// Adds split b to the running result: the merge of AttentionArgs.
HWY_INLINE void merge_split(const SplitResult& b, const float* o_b, int64_t head_dim_v,
                            SplitResult* running, float* o) {
  const DF d;
  const float max = b.max > running->max ? b.max : running->max;
  const float a = math::exp_f32(running->max - max);
  const float c = math::exp_f32(b.max - max);
  running->sum = std::fma(running->sum, a, b.sum * c);
  running->max = max;
  const VF a_v = hn::Set(d, a);
  const VF c_v = hn::Set(d, c);
  for (int64_t i = 0; i < head_dim_v; i += kLanesF) {
    const VF scaled = hn::Mul(hn::Load(d, o_b + i), c_v);
    hn::Store(hn::MulAdd(hn::Load(d, o + i), a_v, scaled), d, o + i);
  }
}

// kQ query heads of token t from head h on.
template <int kQ, class Stored>
void attend(const AttentionArgs& args, int64_t t, int64_t h) {
  const DF d;
  const int64_t n = kLanesF;
  const int64_t dv = args.head_dim_v;
  const int64_t o_stride = (dv + 15) / 16 * 16;
  float* scores = args.scratch;
  float* o = scores + kQ * kAttentionSplit;
  float* o_b = o + kQ * o_stride;
  Heads<kQ, Stored> heads{args, {}, h / (args.n_heads / args.n_kv_heads)};
  for (int i = 0; i < kQ; ++i) {
    heads.q[i] = args.q + t * args.q_stride + (h + i) * args.head_dim_k;
  }
  const int64_t end = args.first_position + t + 1;
  const int64_t begin = args.window > 0 ? std::max<int64_t>(0, end - args.window) : 0;
  SplitResult running[kQ], split[kQ];
  for (int64_t b = begin; b < end;) {
    const int64_t b_end = std::min(end, (b / kAttentionSplit + 1) * kAttentionSplit);
    if (b == begin) {
      attend_split(heads, b, b_end, scores, o, o_stride, running);
    } else {
      attend_split(heads, b, b_end, scores, o_b, o_stride, split);
      for (int i = 0; i < kQ; ++i) {
        merge_split(split[i], o_b + i * o_stride, dv, &running[i], o + i * o_stride);
      }
    }
    b = b_end;
  }
  for (int q = 0; q < kQ; ++q) {
    const float* sink = args.sinks != nullptr ? args.sinks + h + q : nullptr;
    const VF inv = hn::Set(d, math::attention_inverse(running[q].max, running[q].sum, sink));
    const float* from = o + q * o_stride;
    float* out = args.out + t * args.out_stride + (h + q) * dv;
    int64_t i = 0;
    for (; i + n <= dv; i += n) hn::StoreU(hn::Mul(hn::Load(d, from + i), inv), d, out + i);
    const size_t rest = static_cast<size_t>(dv - i);
    if (rest > 0) hn::StoreN(hn::Mul(hn::Load(d, from + i), inv), d, out + i, rest);
  }
}

template <class Stored>
void attention(const void* raw_args) {
  const AttentionArgs& args = *static_cast<const AttentionArgs*>(raw_args);
  const int64_t per_kv = args.n_heads / args.n_kv_heads;
  for (int64_t item = args.item_begin; item < args.item_end;) {
    const int64_t t = item / args.n_heads;
    const int64_t h = item % args.n_heads;
    const int64_t left = std::min(args.item_end - item, per_kv - h % per_kv);
    const int64_t n_queries = std::min<int64_t>(left, kAttentionQueries);
    switch (n_queries) {
      case 1: attend<1, Stored>(args, t, h); break;
      case 2: attend<2, Stored>(args, t, h); break;
      case 3: attend<3, Stored>(args, t, h); break;
      default: attend<4, Stored>(args, t, h); break;
    }
    item += n_queries;
  }
}

void attention_f16(const void* raw_args) { attention<hwy::float16_t>(raw_args); }
void attention_f32(const void* raw_args) { attention<float>(raw_args); }
void attention_q8_0(const void* raw_args) { attention<int8_t>(raw_args); }

}  // namespace engine::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // ENGINE_HWY_FMA_TARGET

#if HWY_ONCE
namespace engine {
ENGINE_HWY_ENTRY(attention_f16_hwy, attention_f16)
ENGINE_HWY_ENTRY(attention_f32_hwy, attention_f32)
ENGINE_HWY_ENTRY(attention_q8_0_hwy, attention_q8_0)
}  // namespace engine
#endif  // HWY_ONCE
