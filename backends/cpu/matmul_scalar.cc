// Scalar matmul rows, the oracle of all other rows: block formats by the rules of block_rules.h, and the
// definition of the float formats' dot product.
#include <cmath>
#include <cstdint>

#include "backends/cpu/block_rules.h"
#include "lib/base/half.h"
#include "lib/contract/kernel.h"
#include "lib/quant/blocks.h"

namespace engine {
namespace {

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
KernelEntry matmul_iq4_nl_scalar(Target) { return &matmul_blocks<Symmetric32, BlockIQ4_NL>; }
KernelEntry matmul_iq4_xs_scalar(Target) { return &matmul_blocks<Symmetric256, BlockIQ4_XS>; }
KernelEntry matmul_tq1_0_scalar(Target) { return &matmul_blocks<Symmetric256, BlockTQ1_0>; }
KernelEntry matmul_tq2_0_scalar(Target) { return &matmul_blocks<Symmetric256, BlockTQ2_0>; }
KernelEntry matmul_mxfp4_scalar(Target) { return &matmul_blocks<Symmetric32, BlockMXFP4>; }

}  // namespace engine
