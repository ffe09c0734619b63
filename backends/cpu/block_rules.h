// The definition of every block format's dot product: how a block is decoded, and its float sequence
// (numerics.md rule 1). Used by the scalar matmul rows, the oracles of all others.
#ifndef ENGINE_BACKENDS_CPU_BLOCK_RULES_H_
#define ENGINE_BACKENDS_CPU_BLOCK_RULES_H_

#include <cmath>
#include <cstdint>

#include "lib/base/half.h"
#include "lib/quant/activation.h"
#include "lib/quant/blocks.h"

namespace engine {

// A decoded 32-element block: value = d * q + m.
struct Weights32 {
  float d;
  float m;
  int32_t q[32];
};

// A decoded 256-element block with scales and minimums per 16 elements: value = d * scale * q -
// dmin * min.
struct Weights256 {
  float d;
  float dmin;
  int32_t scale[16];
  int32_t min[16];
  int32_t q[256];
};

inline int32_t nibble32(const uint8_t* qs, int e) { return e < 16 ? qs[e] & 15 : qs[e - 16] >> 4; }
inline int32_t bit32(const uint8_t* qh, int e) { return (qh[e / 8] >> (e % 8)) & 1; }

inline void decode(const BlockQ4_0& block, Weights32* out) {
  out->d = f16_to_f32(block.d);
  for (int e = 0; e < 32; ++e) out->q[e] = nibble32(block.qs, e) - 8;
}

inline void decode(const BlockQ5_0& block, Weights32* out) {
  out->d = f16_to_f32(block.d);
  for (int e = 0; e < 32; ++e) out->q[e] = nibble32(block.qs, e) + 16 * bit32(block.qh, e) - 16;
}

inline void decode(const BlockQ8_0& block, Weights32* out) {
  out->d = f16_to_f32(block.d);
  for (int e = 0; e < 32; ++e) out->q[e] = block.qs[e];
}

inline void decode(const BlockQ4_1& block, Weights32* out) {
  out->d = f16_to_f32(block.d);
  out->m = f16_to_f32(block.m);
  for (int e = 0; e < 32; ++e) out->q[e] = nibble32(block.qs, e);
}

inline void decode(const BlockQ5_1& block, Weights32* out) {
  out->d = f16_to_f32(block.d);
  out->m = f16_to_f32(block.m);
  for (int e = 0; e < 32; ++e) out->q[e] = nibble32(block.qs, e) + 16 * bit32(block.qh, e);
}

inline void decode(const BlockQ2_K& block, Weights256* out) {
  out->d = f16_to_f32(block.d);
  out->dmin = f16_to_f32(block.dmin);
  for (int j = 0; j < 16; ++j) {
    out->scale[j] = block.scales[j] & 15;
    out->min[j] = block.scales[j] >> 4;
  }
  for (int e = 0; e < 256; ++e) {
    out->q[e] = (block.qs[32 * (e / 128) + e % 32] >> (2 * (e % 128 / 32))) & 3;
  }
}

inline void decode(const BlockQ3_K& block, Weights256* out) {
  out->d = f16_to_f32(block.d);
  int8_t scales[16];
  unpack_q3_k_scales(block.scales, scales);
  for (int j = 0; j < 16; ++j) out->scale[j] = scales[j];
  for (int e = 0; e < 256; ++e) {
    const int32_t low = (block.qs[32 * (e / 128) + e % 32] >> (2 * (e % 128 / 32))) & 3;
    out->q[e] = low - ((block.hmask[e % 32] >> (e / 32)) & 1 ? 0 : 4);
  }
}

inline void decode_k4_scales(const uint8_t* packed, Weights256* out) {
  const K4Scales scales = unpack_k4_scales(packed);
  for (int j = 0; j < 16; ++j) {
    out->scale[j] = scales.scale[j / 2];
    out->min[j] = scales.min[j / 2];
  }
}

inline void decode(const BlockQ4_K& block, Weights256* out) {
  out->d = f16_to_f32(block.d);
  out->dmin = f16_to_f32(block.dmin);
  decode_k4_scales(block.scales, out);
  for (int e = 0; e < 256; ++e) {
    out->q[e] = (block.qs[32 * (e / 64) + e % 32] >> (4 * (e / 32 % 2))) & 15;
  }
}

inline void decode(const BlockQ5_K& block, Weights256* out) {
  out->d = f16_to_f32(block.d);
  out->dmin = f16_to_f32(block.dmin);
  decode_k4_scales(block.scales, out);
  for (int e = 0; e < 256; ++e) {
    const int32_t low = (block.qs[32 * (e / 64) + e % 32] >> (4 * (e / 32 % 2))) & 15;
    out->q[e] = low + 16 * ((block.qh[e % 32] >> (e / 32)) & 1);
  }
}

inline void decode(const BlockQ6_K& block, Weights256* out) {
  out->d = f16_to_f32(block.d);
  for (int j = 0; j < 16; ++j) out->scale[j] = block.scales[j];
  for (int e = 0; e < 256; ++e) {
    const int h = e / 128;
    const int k = e % 128 / 32;
    const int l = e % 32;
    const int32_t low = (block.ql[64 * h + l + 32 * (k & 1)] >> (k < 2 ? 0 : 4)) & 15;
    out->q[e] = low + 16 * ((block.qh[32 * h + l] >> (2 * k)) & 3) - 32;
  }
}

inline void decode(const BlockIQ4_NL& block, Weights32* out) {
  out->d = f16_to_f32(block.d);
  for (int e = 0; e < 32; ++e) out->q[e] = kIq4Values[nibble32(block.qs, e)];
}

inline void decode(const BlockMXFP4& block, Weights32* out) {
  out->d = mxfp4_scale(block.d);
  for (int e = 0; e < 32; ++e) out->q[e] = kMxfp4Values[nibble32(block.qs, e)];
}

inline void decode(const BlockIQ4_XS& block, Weights256* out) {
  out->d = f16_to_f32(block.d);
  int8_t scales[8];
  unpack_iq4_xs_scales(block, scales);
  for (int j = 0; j < 16; ++j) out->scale[j] = scales[j / 2];
  for (int e = 0; e < 256; ++e) {
    out->q[e] = kIq4Values[nibble32(block.qs + 16 * (e / 32), e % 32)];
  }
}

inline void decode(const BlockTQ1_0& block, Weights256* out) {
  out->d = f16_to_f32(block.d);
  for (int32_t& scale : out->scale) scale = 1;
  for (int e = 0; e < 256; ++e) out->q[e] = tq1_trit(block, e) - 1;
}

inline void decode(const BlockTQ2_0& block, Weights256* out) {
  out->d = f16_to_f32(block.d);
  for (int32_t& scale : out->scale) scale = 1;
  for (int e = 0; e < 256; ++e) {
    out->q[e] = ((block.qs[32 * (e / 128) + e % 32] >> (2 * (e % 128 / 32))) & 3) - 1;
  }
}

inline int32_t dot(const int32_t* w, const int8_t* x, int n) {
  int32_t sum = 0;
  for (int i = 0; i < n; ++i) sum += w[i] * x[i];
  return sum;
}

// Q4_0, Q5_0, Q8_0, IQ4_NL, MXFP4. Float sequence per block:
//   acc = fma(d_w * d_x, float(sum of q * x), acc)
struct Symmetric32 {
  using Weights = Weights32;
  using Act = ActQ8x32;
  static constexpr int kElements = 32;
  static float step(const Weights32& w, const ActQ8x32& x, float acc) {
    return std::fma(w.d * x.d, static_cast<float>(dot(w.q, x.q, 32)), acc);
  }
};

// Q4_1, Q5_1. Float sequence per block:
//   acc = fma(d_w * d_x, float(sum of q * x), acc)
//   acc = fma(m_w * d_x, float(sum of x), acc)
struct Affine32 {
  using Weights = Weights32;
  using Act = ActQ8x32;
  static constexpr int kElements = 32;
  static float step(const Weights32& w, const ActQ8x32& x, float acc) {
    acc = std::fma(w.d * x.d, static_cast<float>(dot(w.q, x.q, 32)), acc);
    return std::fma(w.m * x.d, static_cast<float>(x.sum), acc);
  }
};

// Sum over the sub-blocks of scale * (sum of q * x). At most 256 * 63 * 127 * 128 < 2^31 in size
// (Q5_K and Q6_K are the largest; IQ4_XS stays below 256 * 32 * 127 * 127),
// so int32 holds it, and it is exact in any order.
inline int32_t scaled_dot(const Weights256& w, const ActQ8x256& x) {
  int32_t sum = 0;
  for (int j = 0; j < 16; ++j) sum += w.scale[j] * dot(w.q + 16 * j, x.q + 16 * j, 16);
  return sum;
}

// Q3_K, Q6_K, IQ4_XS, TQ1_0, TQ2_0. Float sequence per block, I = sum of scale * (sum of q * x):
//   acc = fma(d_w * d_x, float(I), acc)
struct Symmetric256 {
  using Weights = Weights256;
  using Act = ActQ8x256;
  static constexpr int kElements = 256;
  static float step(const Weights256& w, const ActQ8x256& x, float acc) {
    return std::fma(w.d * x.d, static_cast<float>(scaled_dot(w, x)), acc);
  }
};

// Q2_K, Q4_K, Q5_K. Float sequence per block, I as above and M = sum of min * (sum of x):
//   acc = fma(d_w * d_x, float(I), acc)
//   acc = fma(-(dmin_w * d_x), float(M), acc)
struct Affine256 {
  using Weights = Weights256;
  using Act = ActQ8x256;
  static constexpr int kElements = 256;
  static float step(const Weights256& w, const ActQ8x256& x, float acc) {
    int32_t mins = 0;
    for (int j = 0; j < 16; ++j) mins += w.min[j] * x.sum16[j];
    acc = std::fma(w.d * x.d, static_cast<float>(scaled_dot(w, x)), acc);
    return std::fma(-(w.dmin * x.d), static_cast<float>(mins), acc);
  }
};

}  // namespace engine

#endif  // ENGINE_BACKENDS_CPU_BLOCK_RULES_H_
