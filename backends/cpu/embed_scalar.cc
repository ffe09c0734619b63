// Embedding rows of every weight format: decode one row per token with the reference decoder, then
// scale.
#include "lib/contract/kernel.h"
#include "lib/quant/blocks.h"
#include "lib/quant/pack.h"
#include "lib/quant/quant_ref.h"

namespace engine {
namespace {

constexpr size_t kMaxBlockBytes = sizeof(BlockQ6_K);  // the largest

template <Format format>
void embed(const void* raw_args) {
  const EmbedArgs& args = *static_cast<const EmbedArgs*>(raw_args);
  for (int64_t t = 0; t < args.n_tokens; ++t) {
    float* out = args.out + t * args.out_stride;
    dequantize_row(format, args.weights + args.ids[t] * args.row_bytes, args.width, out);
    for (int64_t i = 0; i < args.width; ++i) out[i] *= args.scale;
  }
}

// Of a packed matrix (lib/quant/pack.h): the blocks of the row are put together again first.
template <Format format>
void embed_rows16(const void* raw_args) {
  const EmbedArgs& args = *static_cast<const EmbedArgs*>(raw_args);
  const FormatInfo& info = *format_info(format);
  const auto n = static_cast<int64_t>(info.block_elements);
  uint8_t block[kMaxBlockBytes];
  for (int64_t t = 0; t < args.n_tokens; ++t) {
    float* out = args.out + t * args.out_stride;
    for (int64_t b = 0; b * n < args.width; ++b) {
      unpack_block(format, args.weights, args.width, args.ids[t], b, block);
      dequantize_row(format, block, n, out + b * n);
    }
    for (int64_t i = 0; i < args.width; ++i) out[i] *= args.scale;
  }
}

}  // namespace

KernelEntry embed_f32_scalar(Target) { return &embed<Format::kF32>; }
KernelEntry embed_f16_scalar(Target) { return &embed<Format::kF16>; }
KernelEntry embed_bf16_scalar(Target) { return &embed<Format::kBF16>; }
KernelEntry embed_q4_0_scalar(Target) { return &embed<Format::kQ4_0>; }
KernelEntry embed_q4_1_scalar(Target) { return &embed<Format::kQ4_1>; }
KernelEntry embed_q5_0_scalar(Target) { return &embed<Format::kQ5_0>; }
KernelEntry embed_q5_1_scalar(Target) { return &embed<Format::kQ5_1>; }
KernelEntry embed_q8_0_scalar(Target) { return &embed<Format::kQ8_0>; }
KernelEntry embed_q2_k_scalar(Target) { return &embed<Format::kQ2_K>; }
KernelEntry embed_q3_k_scalar(Target) { return &embed<Format::kQ3_K>; }
KernelEntry embed_q4_k_scalar(Target) { return &embed<Format::kQ4_K>; }
KernelEntry embed_q5_k_scalar(Target) { return &embed<Format::kQ5_K>; }
KernelEntry embed_q6_k_scalar(Target) { return &embed<Format::kQ6_K>; }

KernelEntry embed_iq4_nl_scalar(Target) { return &embed<Format::kIQ4_NL>; }
KernelEntry embed_iq4_xs_scalar(Target) { return &embed<Format::kIQ4_XS>; }
KernelEntry embed_tq1_0_scalar(Target) { return &embed<Format::kTQ1_0>; }
KernelEntry embed_tq2_0_scalar(Target) { return &embed<Format::kTQ2_0>; }
KernelEntry embed_mxfp4_scalar(Target) { return &embed<Format::kMXFP4>; }

KernelEntry embed_q4_0_rows16_scalar(Target) { return &embed_rows16<Format::kQ4_0>; }
KernelEntry embed_q4_1_rows16_scalar(Target) { return &embed_rows16<Format::kQ4_1>; }
KernelEntry embed_q5_0_rows16_scalar(Target) { return &embed_rows16<Format::kQ5_0>; }
KernelEntry embed_q5_1_rows16_scalar(Target) { return &embed_rows16<Format::kQ5_1>; }
KernelEntry embed_q8_0_rows16_scalar(Target) { return &embed_rows16<Format::kQ8_0>; }
KernelEntry embed_q2_k_rows16_scalar(Target) { return &embed_rows16<Format::kQ2_K>; }
KernelEntry embed_q3_k_rows16_scalar(Target) { return &embed_rows16<Format::kQ3_K>; }
KernelEntry embed_q4_k_rows16_scalar(Target) { return &embed_rows16<Format::kQ4_K>; }
KernelEntry embed_q5_k_rows16_scalar(Target) { return &embed_rows16<Format::kQ5_K>; }
KernelEntry embed_q6_k_rows16_scalar(Target) { return &embed_rows16<Format::kQ6_K>; }
KernelEntry embed_iq4_nl_rows16_scalar(Target) { return &embed_rows16<Format::kIQ4_NL>; }
KernelEntry embed_iq4_xs_rows16_scalar(Target) { return &embed_rows16<Format::kIQ4_XS>; }
KernelEntry embed_mxfp4_rows16_scalar(Target) { return &embed_rows16<Format::kMXFP4>; }

}  // namespace engine
