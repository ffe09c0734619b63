// Blocks of KvType::kQ8_0: where they lie in a page, and the scalar arithmetic that contract/op.h states.
#ifndef ENGINE_LIB_CONTRACT_KV_BLOCK_H_
#define ENGINE_LIB_CONTRACT_KV_BLOCK_H_

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "lib/base/half.h"
#include "lib/contract/op.h"

namespace engine {

// d, as f16 bits, of a block whose largest |x| is max; infinite when max is too large.
inline uint16_t kv_block_scale(float max) {
  constexpr uint16_t kSmallestNormal = 0x0400;  // 2^-14
  return std::max(f32_to_f16(max / 127.0f), kSmallestNormal);
}

// A head's key or value of one position.
struct Q8Vector {
  int8_t* codes;  // head_dim, `stride` apart
  int64_t stride;
  uint16_t* scales;  // kv_blocks(head_dim), `scale_stride` apart
  int64_t scale_stride;
  float operator[](int64_t d) const {
    return f16_to_f32(scales[d / kKvBlock * scale_stride]) * static_cast<float>(codes[d * stride]);
  }
};

inline Q8Vector q8_key(const KvLayer& kv, int64_t n_kv_heads, int64_t head_dim, int64_t kv_head,
                       int64_t position) {
  const int64_t slot = position % kKvPagePositions;
  uint8_t* const k = kv.pages[position / kKvPagePositions] + kv.k_offset_bytes;
  auto* const scales = reinterpret_cast<uint16_t*>(k + n_kv_heads * head_dim * kKvPagePositions);
  return {reinterpret_cast<int8_t*>(k) + kv_head * head_dim * kKvPagePositions + slot,
          kKvPagePositions, scales + kv_head * kv_blocks(head_dim) * kKvPagePositions + slot,
          kKvPagePositions};
}

inline Q8Vector q8_value(const KvLayer& kv, int64_t n_kv_heads, int64_t head_dim, int64_t kv_head,
                         int64_t position) {
  const int64_t row = kv_head * kKvPagePositions + position % kKvPagePositions;
  uint8_t* const v = kv.pages[position / kKvPagePositions] + kv.v_offset_bytes;
  auto* const scales = reinterpret_cast<uint16_t*>(v + n_kv_heads * head_dim * kKvPagePositions);
  return {reinterpret_cast<int8_t*>(v) + row * head_dim, 1, scales + row * kv_blocks(head_dim), 1};
}

// Stores head_dim values. False: x is not finite, or a scale is not; what was stored then means nothing.
inline bool store_kv_blocks(const float* x, int64_t head_dim, const Q8Vector& out) {
  bool finite = true;
  for (int64_t b = 0; b < kv_blocks(head_dim); ++b) {
    const int64_t begin = b * kKvBlock, end = std::min(head_dim, begin + kKvBlock);
    float max = 0.0f;
    for (int64_t i = begin; i < end; ++i) {
      finite = finite && std::isfinite(x[i]);
      max = std::max(max, std::fabs(x[i]));
    }
    const uint16_t scale = kv_block_scale(max);
    finite = finite && std::isfinite(f16_to_f32(scale));
    out.scales[b * out.scale_stride] = scale;
    const float inverse = 1.0f / f16_to_f32(scale);
    for (int64_t i = begin; i < end; ++i) {
      out.codes[i * out.stride] =
          finite ? static_cast<int8_t>(std::nearbyint(x[i] * inverse)) : int8_t{0};
    }
  }
  return finite;
}

}  // namespace engine

#endif  // ENGINE_LIB_CONTRACT_KV_BLOCK_H_
