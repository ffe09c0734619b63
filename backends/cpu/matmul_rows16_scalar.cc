// Scalar matmul rows on packed strips: the oracle of the vector rows on them. A block is unpacked and then goes
// through the rules of the stored layout.
#include "backends/cpu/block_rules.h"
#include "lib/contract/kernel.h"
#include "lib/quant/pack.h"

namespace engine {
namespace {

// One accumulator per output from 0, blocks in increasing order.
template <class Rule, class Block, Format kFormat>
void matmul_rows16(const void* raw_args) {
  const MatmulArgs& args = *static_cast<const MatmulArgs*>(raw_args);
  const uint8_t* act = static_cast<const uint8_t*>(args.act);
  for (int64_t r = args.row_begin; r < args.row_end; ++r) {
    for (int64_t t = 0; t < args.n_tokens; ++t) {
      const auto* x = reinterpret_cast<const typename Rule::Act*>(act + t * args.act_stride_bytes);
      float acc = 0;
      for (int64_t b = 0; b < args.cols / Rule::kElements; ++b) {
        Block block;
        unpack_block(kFormat, args.weights, args.cols, r, b, reinterpret_cast<uint8_t*>(&block));
        typename Rule::Weights weights;
        decode(block, &weights);
        acc = Rule::step(weights, x[b], acc);
      }
      args.out[t * args.out_stride + r] = acc;
    }
  }
}

}  // namespace

KernelEntry matmul_q4_0_rows16_scalar(Target) {
  return &matmul_rows16<Symmetric32, BlockQ4_0, Format::kQ4_0>;
}
KernelEntry matmul_q4_1_rows16_scalar(Target) {
  return &matmul_rows16<Affine32, BlockQ4_1, Format::kQ4_1>;
}
KernelEntry matmul_q5_0_rows16_scalar(Target) {
  return &matmul_rows16<Symmetric32, BlockQ5_0, Format::kQ5_0>;
}
KernelEntry matmul_q5_1_rows16_scalar(Target) {
  return &matmul_rows16<Affine32, BlockQ5_1, Format::kQ5_1>;
}
KernelEntry matmul_q8_0_rows16_scalar(Target) {
  return &matmul_rows16<Symmetric32, BlockQ8_0, Format::kQ8_0>;
}
KernelEntry matmul_q2_k_rows16_scalar(Target) {
  return &matmul_rows16<Affine256, BlockQ2_K, Format::kQ2_K>;
}
KernelEntry matmul_q3_k_rows16_scalar(Target) {
  return &matmul_rows16<Symmetric256, BlockQ3_K, Format::kQ3_K>;
}
KernelEntry matmul_q4_k_rows16_scalar(Target) {
  return &matmul_rows16<Affine256, BlockQ4_K, Format::kQ4_K>;
}
KernelEntry matmul_q5_k_rows16_scalar(Target) {
  return &matmul_rows16<Affine256, BlockQ5_K, Format::kQ5_K>;
}
KernelEntry matmul_q6_k_rows16_scalar(Target) {
  return &matmul_rows16<Symmetric256, BlockQ6_K, Format::kQ6_K>;
}
KernelEntry matmul_iq4_nl_rows16_scalar(Target) {
  return &matmul_rows16<Symmetric32, BlockIQ4_NL, Format::kIQ4_NL>;
}
KernelEntry matmul_mxfp4_rows16_scalar(Target) {
  return &matmul_rows16<Symmetric32, BlockMXFP4, Format::kMXFP4>;
}
KernelEntry matmul_iq4_xs_rows16_scalar(Target) {
  return &matmul_rows16<Symmetric256, BlockIQ4_XS, Format::kIQ4_XS>;
}

}  // namespace engine
