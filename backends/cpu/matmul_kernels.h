// Entries of the matmul, quantise and embed rows of the CPU backend, for the kernel table.
#ifndef ENGINE_BACKENDS_CPU_MATMUL_KERNELS_H_
#define ENGINE_BACKENDS_CPU_MATMUL_KERNELS_H_

#include "lib/contract/kernel.h"

namespace engine {

constexpr KernelKey matmul_key(Format format, ActType act) {
  return KernelKey{Op::kMatmul, format, Layout::kStored, act, KvType::kF16};
}
constexpr KernelKey embed_key(Format format) {
  return KernelKey{Op::kEmbed, format, Layout::kStored, ActType::kF32, KvType::kF16};
}
constexpr KernelKey quantize_key(ActType act) {
  return KernelKey{Op::kQuantize, Format::kF32, Layout::kNone, act, KvType::kF16};
}

// Each gives the kernel of its row for a target; matmul_kernels.inc names the rows.
KernelEntry matmul_f32_scalar(Target target);
KernelEntry matmul_f16_scalar(Target target);
KernelEntry matmul_bf16_scalar(Target target);
KernelEntry matmul_q4_0_scalar(Target target);
KernelEntry matmul_q4_1_scalar(Target target);
KernelEntry matmul_q5_0_scalar(Target target);
KernelEntry matmul_q5_1_scalar(Target target);
KernelEntry matmul_q8_0_scalar(Target target);
KernelEntry matmul_q2_k_scalar(Target target);
KernelEntry matmul_q3_k_scalar(Target target);
KernelEntry matmul_q4_k_scalar(Target target);
KernelEntry matmul_q5_k_scalar(Target target);
KernelEntry matmul_q6_k_scalar(Target target);

KernelEntry quantize_q8x32_scalar(Target target);
KernelEntry quantize_q8x256_scalar(Target target);

KernelEntry embed_f32_scalar(Target target);
KernelEntry embed_f16_scalar(Target target);
KernelEntry embed_bf16_scalar(Target target);
KernelEntry embed_q4_0_scalar(Target target);
KernelEntry embed_q4_1_scalar(Target target);
KernelEntry embed_q5_0_scalar(Target target);
KernelEntry embed_q5_1_scalar(Target target);
KernelEntry embed_q8_0_scalar(Target target);
KernelEntry embed_q2_k_scalar(Target target);
KernelEntry embed_q3_k_scalar(Target target);
KernelEntry embed_q4_k_scalar(Target target);
KernelEntry embed_q5_k_scalar(Target target);
KernelEntry embed_q6_k_scalar(Target target);

}  // namespace engine

#endif  // ENGINE_BACKENDS_CPU_MATMUL_KERNELS_H_
