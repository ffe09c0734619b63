// The kernel table: every row of every backend, in table order.
#include "backends/cpu/cpu_kernels.h"
#include "lib/contract/kernel.h"

namespace engine {

std::span<const KernelRow> kernel_rows() {
#define ENGINE_KERNEL_ROW(name, key, cost, entry) KernelRow{#name, key, cost, entry},
  static constexpr KernelRow kRows[] = {
#include "backends/cpu/cpu_kernels.inc"
  };
#undef ENGINE_KERNEL_ROW
  return kRows;
}

}  // namespace engine
