// Blocks of KvType::kQ8_0: the scalar arithmetic that contract/op.h states.
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

// Stores head_dim values: codes lie `stride` apart, scales of blocks `scale_stride`. False: x is not finite, or a
// scale is not; what was stored then means nothing.
inline bool store_kv_blocks(const float* x, int64_t head_dim, int8_t* codes, int64_t stride,
                            uint16_t* scales, int64_t scale_stride) {
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
    scales[b * scale_stride] = scale;
    const float inverse = 1.0f / f16_to_f32(scale);
    for (int64_t i = begin; i < end; ++i) {
      codes[i * stride] = finite ? static_cast<int8_t>(std::nearbyint(x[i] * inverse)) : int8_t{0};
    }
  }
  return finite;
}

}  // namespace engine

#endif  // ENGINE_LIB_CONTRACT_KV_BLOCK_H_
