// Scalar matmul rows: the definition of every weight format's dot product and the oracle of all
// other rows.
#include <cmath>
#include <cstdint>

#include "lib/base/half.h"
#include "lib/contract/kernel.h"
#include "lib/quant/blocks.h"

namespace engine {
namespace {

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

int32_t nibble32(const uint8_t* qs, int e) { return e < 16 ? qs[e] & 15 : qs[e - 16] >> 4; }
int32_t bit32(const uint8_t* qh, int e) { return (qh[e / 8] >> (e % 8)) & 1; }

void decode(const BlockQ4_0& block, Weights32* out) {
  out->d = f16_to_f32(block.d);
  for (int e = 0; e < 32; ++e) out->q[e] = nibble32(block.qs, e) - 8;
}

void decode(const BlockQ5_0& block, Weights32* out) {
  out->d = f16_to_f32(block.d);
  for (int e = 0; e < 32; ++e) out->q[e] = nibble32(block.qs, e) + 16 * bit32(block.qh, e) - 16;
}

void decode(const BlockQ8_0& block, Weights32* out) {
  out->d = f16_to_f32(block.d);
  for (int e = 0; e < 32; ++e) out->q[e] = block.qs[e];
}

void decode(const BlockQ4_1& block, Weights32* out) {
  out->d = f16_to_f32(block.d);
  out->m = f16_to_f32(block.m);
  for (int e = 0; e < 32; ++e) out->q[e] = nibble32(block.qs, e);
}

void decode(const BlockQ5_1& block, Weights32* out) {
  out->d = f16_to_f32(block.d);
  out->m = f16_to_f32(block.m);
  for (int e = 0; e < 32; ++e) out->q[e] = nibble32(block.qs, e) + 16 * bit32(block.qh, e);
}

void decode(const BlockQ2_K& block, Weights256* out) {
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

void decode(const BlockQ3_K& block, Weights256* out) {
  out->d = f16_to_f32(block.d);
  int8_t scales[16];
  unpack_q3_k_scales(block.scales, scales);
  for (int j = 0; j < 16; ++j) out->scale[j] = scales[j];
  for (int e = 0; e < 256; ++e) {
    const int32_t low = (block.qs[32 * (e / 128) + e % 32] >> (2 * (e % 128 / 32))) & 3;
    out->q[e] = low - ((block.hmask[e % 32] >> (e / 32)) & 1 ? 0 : 4);
  }
}

void decode_k4_scales(const uint8_t* packed, Weights256* out) {
  const K4Scales scales = unpack_k4_scales(packed);
  for (int j = 0; j < 16; ++j) {
    out->scale[j] = scales.scale[j / 2];
    out->min[j] = scales.min[j / 2];
  }
}

void decode(const BlockQ4_K& block, Weights256* out) {
  out->d = f16_to_f32(block.d);
  out->dmin = f16_to_f32(block.dmin);
  decode_k4_scales(block.scales, out);
  for (int e = 0; e < 256; ++e) {
    out->q[e] = (block.qs[32 * (e / 64) + e % 32] >> (4 * (e / 32 % 2))) & 15;
  }
}

void decode(const BlockQ5_K& block, Weights256* out) {
  out->d = f16_to_f32(block.d);
  out->dmin = f16_to_f32(block.dmin);
  decode_k4_scales(block.scales, out);
  for (int e = 0; e < 256; ++e) {
    const int32_t low = (block.qs[32 * (e / 64) + e % 32] >> (4 * (e / 32 % 2))) & 15;
    out->q[e] = low + 16 * ((block.qh[e % 32] >> (e / 32)) & 1);
  }
}

void decode(const BlockQ6_K& block, Weights256* out) {
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

int32_t dot(const int32_t* w, const int8_t* x, int n) {
  int32_t sum = 0;
  for (int i = 0; i < n; ++i) sum += w[i] * x[i];
  return sum;
}

// Q4_0, Q5_0, Q8_0. Float sequence per block:
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
// (Q5_K and Q6_K are the largest), so int32 holds it, and it is exact in any order.
int32_t scaled_dot(const Weights256& w, const ActQ8x256& x) {
  int32_t sum = 0;
  for (int j = 0; j < 16; ++j) sum += w.scale[j] * dot(w.q + 16 * j, x.q + 16 * j, 16);
  return sum;
}

// Q3_K, Q6_K. Float sequence per block, I = sum of scale * (sum of q * x):
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

constexpr int64_t kTokensAtOnce = 8;  // one decode of a block serves this many tokens

// One accumulator per output from 0, blocks in increasing order.
template <class Rule, class Block>
void matmul_blocks(const void* raw_args) {
  const MatmulArgs& args = *static_cast<const MatmulArgs*>(raw_args);
  const uint8_t* act = static_cast<const uint8_t*>(args.act);
  const int64_t n_blocks = args.cols / Rule::kElements;
  for (int64_t r = args.row_begin; r < args.row_end; ++r) {
    const Block* row = reinterpret_cast<const Block*>(args.weights + r * args.row_bytes);
    for (int64_t t0 = 0; t0 < args.n_tokens; t0 += kTokensAtOnce) {
      const int64_t t_end = t0 + kTokensAtOnce < args.n_tokens ? t0 + kTokensAtOnce : args.n_tokens;
      float acc[kTokensAtOnce] = {};
      for (int64_t b = 0; b < n_blocks; ++b) {
        typename Rule::Weights weights;
        decode(row[b], &weights);
        for (int64_t t = t0; t < t_end; ++t) {
          const auto* x =
              reinterpret_cast<const typename Rule::Act*>(act + t * args.act_stride_bytes);
          acc[t - t0] = Rule::step(weights, x[b], acc[t - t0]);
        }
      }
      for (int64_t t = t0; t < t_end; ++t) args.out[t * args.out_stride + r] = acc[t - t0];
    }
  }
}

float to_f32(float value) { return value; }
struct Half {
  uint16_t bits;
};
struct Bf16 {
  uint16_t bits;
};
float to_f32(Half value) { return f16_to_f32(value.bits); }
float to_f32(Bf16 value) { return bf16_to_f32(value.bits); }

// F32, F16, BF16. Float sequence: 16 lanes from 0, lane i takes k = i, i + 16, ... in increasing
// order,
//   lane = fma(w, x, lane)
// then for width = 8, 4, 2, 1: lane[i] = lane[i] + lane[i + width] for i < width; the result is
// lane[0].
template <class Element>
void matmul_floats(const void* raw_args) {
  const MatmulArgs& args = *static_cast<const MatmulArgs*>(raw_args);
  const uint8_t* act = static_cast<const uint8_t*>(args.act);
  for (int64_t r = args.row_begin; r < args.row_end; ++r) {
    const Element* w = reinterpret_cast<const Element*>(args.weights + r * args.row_bytes);
    for (int64_t t = 0; t < args.n_tokens; ++t) {
      const float* x = reinterpret_cast<const float*>(act + t * args.act_stride_bytes);
      float lane[16] = {};
      for (int64_t k = 0; k < args.cols; ++k)
        lane[k % 16] = std::fma(to_f32(w[k]), x[k], lane[k % 16]);
      for (int width = 8; width > 0; width /= 2) {
        for (int i = 0; i < width; ++i) lane[i] += lane[i + width];
      }
      args.out[t * args.out_stride + r] = lane[0];
    }
  }
}

}  // namespace

KernelEntry matmul_f32_scalar(Target) { return &matmul_floats<float>; }
KernelEntry matmul_f16_scalar(Target) { return &matmul_floats<Half>; }
KernelEntry matmul_bf16_scalar(Target) { return &matmul_floats<Bf16>; }
KernelEntry matmul_q4_0_scalar(Target) { return &matmul_blocks<Symmetric32, BlockQ4_0>; }
KernelEntry matmul_q4_1_scalar(Target) { return &matmul_blocks<Affine32, BlockQ4_1>; }
KernelEntry matmul_q5_0_scalar(Target) { return &matmul_blocks<Symmetric32, BlockQ5_0>; }
KernelEntry matmul_q5_1_scalar(Target) { return &matmul_blocks<Affine32, BlockQ5_1>; }
KernelEntry matmul_q8_0_scalar(Target) { return &matmul_blocks<Symmetric32, BlockQ8_0>; }
KernelEntry matmul_q2_k_scalar(Target) { return &matmul_blocks<Affine256, BlockQ2_K>; }
KernelEntry matmul_q3_k_scalar(Target) { return &matmul_blocks<Symmetric256, BlockQ3_K>; }
KernelEntry matmul_q4_k_scalar(Target) { return &matmul_blocks<Affine256, BlockQ4_K>; }
KernelEntry matmul_q5_k_scalar(Target) { return &matmul_blocks<Affine256, BlockQ5_K>; }
KernelEntry matmul_q6_k_scalar(Target) { return &matmul_blocks<Symmetric256, BlockQ6_K>; }

}  // namespace engine
