// Entries of the norm, rope, KV, attention and element-wise rows of the CPU backend, for the kernel table.
#ifndef ENGINE_BACKENDS_CPU_POINTWISE_KERNELS_H_
#define ENGINE_BACKENDS_CPU_POINTWISE_KERNELS_H_

#include "lib/contract/kernel.h"

namespace engine {

constexpr KernelKey plain_key(Op op) {
  return KernelKey{op, Format::kF32, Layout::kNone, ActType::kF32, KvType::kF16};
}
constexpr KernelKey kv_key(Op op, KvType kv) {
  return KernelKey{op, Format::kF32, Layout::kNone, ActType::kF32, kv};
}

// Each gives the kernel of its row for a target; pointwise_kernels.inc names the rows.
KernelEntry rms_norm_scalar(Target target);
KernelEntry add_scalar(Target target);
KernelEntry gated_act_scalar(Target target);
KernelEntry softcap_scalar(Target target);
KernelEntry check_finite_scalar(Target target);
KernelEntry rope_angles_scalar(Target target);
KernelEntry rope_scalar(Target target);
KernelEntry kv_store_f16_scalar(Target target);
KernelEntry kv_store_f32_scalar(Target target);
KernelEntry attention_f16_scalar(Target target);
KernelEntry attention_f32_scalar(Target target);

KernelEntry rms_norm_hwy(Target target);
KernelEntry add_hwy(Target target);
KernelEntry gated_act_hwy(Target target);
KernelEntry softcap_hwy(Target target);
KernelEntry check_finite_hwy(Target target);
KernelEntry rope_hwy(Target target);
KernelEntry kv_store_f16_hwy(Target target);
KernelEntry kv_store_f32_hwy(Target target);
KernelEntry attention_f16_hwy(Target target);
KernelEntry attention_f32_hwy(Target target);

}  // namespace engine

#endif  // ENGINE_BACKENDS_CPU_POINTWISE_KERNELS_H_
