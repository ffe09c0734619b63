// The attention sites: dots page by page, then soft-cap, window and softmax.
#include "lib/session/attention_probe.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "lib/base/det_math.h"
#include "lib/base/half.h"
#include "lib/contract/kv_block.h"

namespace engine {
namespace {

constexpr float kMinusInf = -std::numeric_limits<float>::infinity();
constexpr int64_t kLanes = 16;

float load(uint16_t half) { return f16_to_f32(half); }
float load(float value) { return value; }

// out[j] = q · k[.][j] for the first n positions of a page; k: [head_dim][kKvPagePositions].
template <class Stored>
void dot_page(const float* q, int64_t head_dim, const Stored* k, int64_t n, float* out) {
  std::fill(out, out + n, 0.0f);
  for (int64_t d = 0; d < head_dim; ++d) {
    const Stored* row = k + d * kKvPagePositions;
    for (int64_t j = 0; j < n; ++j) out[j] = std::fma(q[d], load(row[j]), out[j]);
  }
}

// The same of kQ8_0, from the first position of the page on.
void dot_page(const float* q, int64_t head_dim, const Q8Vector& k, int64_t n, float* out) {
  std::fill(out, out + n, 0.0f);
  for (int64_t d = 0; d < head_dim; ++d) {
    const int8_t* row = k.codes + d * k.stride;
    const uint16_t* scale = k.scales + d / kKvBlock * k.scale_stride;
    for (int64_t j = 0; j < n; ++j) {
      out[j] = std::fma(q[d], f16_to_f32(scale[j]) * static_cast<float>(row[j]), out[j]);
    }
  }
}

void softmax(int64_t n, const float* sink, float* s) {
  float max = sink != nullptr ? *sink : kMinusInf;
  for (int64_t j = 0; j < n; ++j) max = s[j] > max ? s[j] : max;
  float lanes[kLanes] = {};
  for (int64_t j = 0; j < n; ++j) {
    s[j] = static_cast<float>(det_exp(static_cast<double>(s[j] - max)));
    lanes[j % kLanes] += s[j];
  }
  for (int64_t w = kLanes / 2; w > 0; w /= 2) {
    for (int64_t i = 0; i < w; ++i) lanes[i] += lanes[i + w];
  }
  if (sink != nullptr) lanes[0] += static_cast<float>(det_exp(static_cast<double>(*sink - max)));
  for (int64_t j = 0; j < n; ++j) s[j] /= lanes[0];
}

}  // namespace

KvAttentionProbe::KvAttentionProbe(const Step& step, const KvLayer& kv, KvType type,
                                   const KvGeometry& geometry, int64_t first_position,
                                   const QueryRows& queries, const float* sinks)
    : step_(step),
      kv_(kv),
      type_(type),
      geometry_(geometry),
      first_position_(first_position),
      queries_(queries),
      sinks_(sinks) {}

void KvAttentionProbe::scores(int64_t row, int64_t head, float* out) const {
  const int64_t n = first_position_ + row + 1;
  const int64_t begin = step_.window > 0 ? std::max<int64_t>(0, n - step_.window) : 0;
  const int64_t kv_head = head / (step_.heads / geometry_.n_kv_heads);
  const float* q = queries_.query(row, head);
  const int64_t k_floats = geometry_.head_dim_k * kKvPagePositions;
  for (int64_t at = begin / kKvPagePositions * kKvPagePositions; at < n; at += kKvPagePositions) {
    const uint8_t* k = kv_.pages[at / kKvPagePositions] + kv_.k_offset_bytes;
    const int64_t n_page = std::min(kKvPagePositions, n - at);
    const int64_t Dk = geometry_.head_dim_k;
    switch (type_) {
      case KvType::kF16:
        dot_page(q, Dk, reinterpret_cast<const uint16_t*>(k) + kv_head * k_floats, n_page,
                 out + at);
        break;
      case KvType::kF32:
        dot_page(q, Dk, reinterpret_cast<const float*>(k) + kv_head * k_floats, n_page, out + at);
        break;
      case KvType::kQ8_0:
        dot_page(q, Dk, q8_key(kv_, geometry_.n_kv_heads, Dk, kv_head, at), n_page, out + at);
        break;
    }
  }
  std::fill(out, out + begin, kMinusInf);
  for (int64_t j = begin; j < n; ++j) {
    out[j] *= step_.scale;
    if (step_.cap > 0.0f) {
      out[j] = step_.cap * static_cast<float>(det_tanh(static_cast<double>(out[j] / step_.cap)));
    }
  }
}

void attention_row(Site site, const AttentionProbe& probe, int64_t row, int64_t position,
                   std::span<const int32_t> heads, int64_t n_heads, int64_t n_ctx, float* out) {
  const bool is_pattern = site == Site::kAttnPattern;
  std::fill(out, out + n_heads * n_ctx, 0.0f);
  const int64_t n = position + 1;
  for (const int32_t head : heads) {
    float* scores = out + head * n_ctx;
    probe.scores(row, head, scores);
    if (is_pattern) {
      softmax(n, probe.sinks() != nullptr ? probe.sinks() + head : nullptr, scores);
    } else {
      std::fill(scores + n, scores + n_ctx, kMinusInf);
    }
  }
}

}  // namespace engine
