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

#include "backends/cpu/lane_tree-inl.h"
#include "backends/cpu/math-inl.h"
#include "backends/cpu/math_scalar.h"

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

// Dots of q with kVectors * kLanesF neighbouring positions of one page. k: [Dk][64] from the first
// one on.
template <size_t kVectors, class Stored>
HWY_INLINE void dot_positions(const float* q, int64_t head_dim_k, const Stored* k, float* scores) {
  const DF d;
  VF sums[kVectors];
  for (size_t v = 0; v < kVectors; ++v) sums[v] = hn::Zero(d);
  for (int64_t i = 0; i < head_dim_k; ++i) {
    const VF factor = hn::Set(d, q[i]);
    const Stored* row = k + i * kKvPagePositions;
    for (size_t v = 0; v < kVectors; ++v) {
      sums[v] = hn::MulAdd(factor, load(row + v * kLanesF), sums[v]);
    }
  }
  for (size_t v = 0; v < kVectors; ++v) hn::Store(sums[v], d, scores + v * kLanesF);
}

// What attend_split reads of the arguments, for one query head.
template <class Stored>
struct Head {
  const AttentionArgs& args;
  const float* q;
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
};

// Raw dots of the 16-position groups that cover [begin, end); scores[0] belongs to position `base`.
template <class Stored>
HWY_INLINE void dot_groups(const Head<Stored>& head, int64_t base, int64_t begin, int64_t end,
                           float* scores) {
  constexpr size_t kPageVectors = kKvPagePositions / kLanesF;
  const int64_t dk = head.args.head_dim_k;
  for (int64_t j = begin / kVirtualLanes * kVirtualLanes; j < end;) {
    const int64_t slot = j % kKvPagePositions;
    const Stored* k = head.k_page(j) + slot;
    if (slot == 0 && end - j > kKvPagePositions - kVirtualLanes) {
      dot_positions<kPageVectors>(head.q, dk, k, scores + (j - base));
      j += kKvPagePositions;
    } else {
      dot_positions<kTreeVectors>(head.q, dk, k, scores + (j - base));
      j += kVirtualLanes;
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

// o[dim ..] = sum over the positions of [begin, end) of weight * v, for kVectors vectors of
// dimensions. `count` is the dimensions left; below a vector's width the last one is loaded in
// part.
template <size_t kVectors, class Stored>
HWY_INLINE void weigh_dims(const Head<Stored>& head, int64_t begin, int64_t end, int64_t dim,
                           int64_t count, const float* weights, float* o) {
  const DF d;
  const int64_t dv = head.args.head_dim_v;
  VF sums[kVectors];
  for (size_t i = 0; i < kVectors; ++i) sums[i] = hn::Zero(d);
  for (int64_t j = begin; j < end;) {
    const int64_t page_end = std::min(end, (j / kKvPagePositions + 1) * kKvPagePositions);
    const Stored* v = head.v_row(j) + dim;
    for (; j < page_end; ++j, v += dv) {
      const VF weight = hn::Set(d, weights[j - begin]);
      if (kVectors == 1 && count < static_cast<int64_t>(kLanesF)) {
        sums[0] = hn::MulAdd(weight, load_n(v, static_cast<size_t>(count)), sums[0]);
      } else {
        for (size_t i = 0; i < kVectors; ++i) {
          sums[i] = hn::MulAdd(weight, load(v + i * kLanesF), sums[i]);
        }
      }
    }
  }
  for (size_t i = 0; i < kVectors; ++i) hn::Store(sums[i], d, o + i * kLanesF);
}

template <class Stored>
HWY_INLINE void weigh_values(const Head<Stored>& head, int64_t begin, int64_t end,
                             const float* weights, float* o) {
  const int64_t n = kLanesF;
  const int64_t dv = head.args.head_dim_v;
  int64_t dim = 0;
  for (; dim + 8 * n <= dv; dim += 8 * n) {
    weigh_dims<8>(head, begin, end, dim, dv - dim, weights, o + dim);
  }
  for (; dim + 4 * n <= dv; dim += 4 * n) {
    weigh_dims<4>(head, begin, end, dim, dv - dim, weights, o + dim);
  }
  for (; dim < dv; dim += n) {
    weigh_dims<1>(head, begin, end, dim, dv - dim, weights, o + dim);
  }
}

struct SplitResult {
  float max;
  float sum;
};

// One split: positions [begin, end) of one absolute block of kAttentionSplit. Fills o, padded to
// vectors.
template <class Stored>
HWY_INLINE SplitResult attend_split(const Head<Stored>& head, int64_t begin, int64_t end,
                                    float* scores, float* o) {
  const int64_t base = begin / kAttentionSplit * kAttentionSplit;
  dot_groups(head, base, begin, end, scores);
  SplitResult result;
  result.max = finish_scores(head.args, base, begin, end, scores);
  result.sum = exponentiate(begin - base, end - base, result.max, scores);
  weigh_values(head, begin, end, scores + (begin - base), o);
  return result;
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

template <class Stored>
void attention(const void* raw_args) {
  const AttentionArgs& args = *static_cast<const AttentionArgs*>(raw_args);
  const DF d;
  const int64_t n = kLanesF;
  const int64_t dv = args.head_dim_v;
  const int64_t heads_per_kv = args.n_heads / args.n_kv_heads;
  float* scores = args.scratch;
  float* o = scores + kAttentionSplit;
  float* o_b = o + (dv + 15) / 16 * 16;
  for (int64_t item = args.item_begin; item < args.item_end; ++item) {
    const int64_t t = item / args.n_heads;
    const int64_t h = item % args.n_heads;
    const Head<Stored> head{args, args.q + t * args.q_stride + h * args.head_dim_k,
                            h / heads_per_kv};
    const int64_t end = args.first_position + t + 1;
    const int64_t begin = args.window > 0 ? std::max<int64_t>(0, end - args.window) : 0;
    SplitResult running{0.0f, 0.0f};
    for (int64_t b = begin; b < end;) {
      const int64_t b_end = std::min(end, (b / kAttentionSplit + 1) * kAttentionSplit);
      if (b == begin) {
        running = attend_split(head, b, b_end, scores, o);
      } else {
        const SplitResult split = attend_split(head, b, b_end, scores, o_b);
        merge_split(split, o_b, dv, &running, o);
      }
      b = b_end;
    }
    const VF inv = hn::Set(d, 1.0f / running.sum);
    float* out = args.out + t * args.out_stride + h * dv;
    int64_t i = 0;
    for (; i + n <= dv; i += n) hn::StoreU(hn::Mul(hn::Load(d, o + i), inv), d, out + i);
    const size_t rest = static_cast<size_t>(dv - i);
    if (rest > 0) hn::StoreN(hn::Mul(hn::Load(d, o + i), inv), d, out + i, rest);
  }
}

void attention_f16(const void* raw_args) { attention<hwy::float16_t>(raw_args); }
void attention_f32(const void* raw_args) { attention<float>(raw_args); }

}  // namespace engine::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // ENGINE_HWY_FMA_TARGET

#if HWY_ONCE
namespace engine {
ENGINE_HWY_ENTRY(attention_f16_hwy, attention_f16)
ENGINE_HWY_ENTRY(attention_f32_hwy, attention_f32)
}  // namespace engine
#endif  // HWY_ONCE
