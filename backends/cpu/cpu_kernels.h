// Declares the entry function of every CPU row of the kernel table.
#ifndef ENGINE_BACKENDS_CPU_CPU_KERNELS_H_
#define ENGINE_BACKENDS_CPU_CPU_KERNELS_H_

#include "lib/contract/kernel.h"

namespace engine {

#define ENGINE_KERNEL_ROW(name, key, cost, entry) KernelEntry entry(Target target);
#include "backends/cpu/cpu_kernels.inc"
#undef ENGINE_KERNEL_ROW

}  // namespace engine

#endif  // ENGINE_BACKENDS_CPU_CPU_KERNELS_H_
