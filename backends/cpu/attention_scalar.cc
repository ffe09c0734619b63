// Scalar rows of attention: the float sequence of AttentionArgs.
#include <algorithm>
#include <cmath>
#include <type_traits>

#include "backends/cpu/cpu_kernels.h"
#include "backends/cpu/lane_tree.h"
#include "backends/cpu/math_scalar.h"
#include "lib/base/half.h"
#include "lib/contract/kv_block.h"

namespace engine {
namespace {

float load(uint16_t half) { return f16_to_f32(half); }
float load(float value) { return value; }

// A key, or value, of a position: dimension d lies at [d * stride].
template <class Stored>
struct KvVector {
  const Stored* values;
  int64_t stride;
  float operator[](int64_t d) const { return load(values[d * stride]); }
};

template <class Stored>
auto key_at(const AttentionArgs& args, int64_t kv_head, int64_t j) {
  const int64_t dk = args.head_dim_k;
  if constexpr (std::is_same_v<Stored, int8_t>) {
    return q8_key(args.kv, args.n_kv_heads, dk, kv_head, j);
  } else {
    const uint8_t* at = args.kv.pages[j / kKvPagePositions] + args.kv.k_offset_bytes;
    const int64_t first = kv_head * dk * kKvPagePositions + j % kKvPagePositions;
    return KvVector<Stored>{reinterpret_cast<const Stored*>(at) + first, kKvPagePositions};
  }
}

template <class Stored>
auto value_at(const AttentionArgs& args, int64_t kv_head, int64_t j) {
  const int64_t dv = args.head_dim_v;
  if constexpr (std::is_same_v<Stored, int8_t>) {
    return q8_value(args.kv, args.n_kv_heads, dv, kv_head, j);
  } else {
    const uint8_t* at = args.kv.pages[j / kKvPagePositions] + args.kv.v_offset_bytes;
    const int64_t row = kv_head * kKvPagePositions + j % kKvPagePositions;
    return KvVector<Stored>{reinterpret_cast<const Stored*>(at) + row * dv, 1};
  }
}

// One split: positions [begin, end) of one absolute block of kAttentionSplit. Fills o[0 .. Dv).
template <class Stored>
void attend_split(const AttentionArgs& args, const float* q, int64_t kv_head, int64_t begin,
                  int64_t end, float* scores, float* o, float* max_out, float* sum_out) {
  float max = -INFINITY;
  for (int64_t j = begin; j < end; ++j) {
    const auto k = key_at<Stored>(args, kv_head, j);
    float s = 0.0f;
    for (int64_t d = 0; d < args.head_dim_k; ++d) s = std::fma(q[d], k[d], s);
    s *= args.scale;
    if (args.softcap > 0.0f) s = math::softcap_f32(s, args.softcap);
    scores[j - begin] = s;
    if (s > max) max = s;
  }
  float lanes[kVirtualLanes] = {};
  std::fill(o, o + args.head_dim_v, 0.0f);
  for (int64_t j = begin; j < end; ++j) {
    const auto v = value_at<Stored>(args, kv_head, j);
    const float e = math::exp_f32(scores[j - begin] - max);
    lanes[j % kVirtualLanes] += e;
    for (int64_t d = 0; d < args.head_dim_v; ++d) o[d] = std::fma(e, v[d], o[d]);
  }
  *max_out = max;
  *sum_out = lane_tree_sum(lanes);
}

template <class Stored>
void attention(const void* raw_args) {
  const AttentionArgs& args = *static_cast<const AttentionArgs*>(raw_args);
  const int64_t dv_padded = (args.head_dim_v + 15) / 16 * 16;
  float* scores = args.scratch;
  float* o = scores + kAttentionSplit;
  float* o_b = o + dv_padded;
  for (int64_t item = args.item_begin; item < args.item_end; ++item) {
    const int64_t t = item / args.n_heads;
    const int64_t h = item % args.n_heads;
    const int64_t kv_head = h / (args.n_heads / args.n_kv_heads);
    const float* q = args.q + t * args.q_stride + h * args.head_dim_k;
    const int64_t position = args.first_position + t;
    const int64_t end = position + 1;
    const int64_t begin = args.window > 0 ? std::max<int64_t>(0, end - args.window) : 0;
    float max = 0.0f;
    float sum = 0.0f;
    for (int64_t b = begin; b < end;) {
      const int64_t b_end = std::min(end, (b / kAttentionSplit + 1) * kAttentionSplit);
      if (b == begin) {
        attend_split<Stored>(args, q, kv_head, b, b_end, scores, o, &max, &sum);
      } else {
        float max_b;
        float sum_b;
        attend_split<Stored>(args, q, kv_head, b, b_end, scores, o_b, &max_b, &sum_b);
        const float merged = max_b > max ? max_b : max;
        const float a = math::exp_f32(max - merged);
        const float c = math::exp_f32(max_b - merged);
        sum = std::fma(sum, a, sum_b * c);
        for (int64_t d = 0; d < args.head_dim_v; ++d) o[d] = std::fma(o[d], a, o_b[d] * c);
        max = merged;
      }
      b = b_end;
    }
    const float inv =
        math::attention_inverse(max, sum, args.sinks != nullptr ? args.sinks + h : nullptr);
    float* out = args.out + t * args.out_stride + h * args.head_dim_v;
    for (int64_t d = 0; d < args.head_dim_v; ++d) out[d] = o[d] * inv;
  }
}

}  // namespace

KernelEntry attention_f16_scalar(Target) { return &attention<uint16_t>; }
KernelEntry attention_f32_scalar(Target) { return &attention<float>; }
KernelEntry attention_q8_0_scalar(Target) { return &attention<int8_t>; }

}  // namespace engine
