// The kernel table's row, and resolve_kernel, the only place that picks a kernel.
#ifndef ENGINE_LIB_CONTRACT_KERNEL_H_
#define ENGINE_LIB_CONTRACT_KERNEL_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "lib/base/status.h"
#include "lib/contract/op.h"

namespace engine {

using KernelEntry = void (*)(const void* args);  // args: the struct of the row's op (contract/op.h)

// CPU targets that a kernel can be compiled for. All of them have fused multiply-add or emulate it
// (scalar: std::fma), so all give the same bits.
enum class Target : uint8_t { kScalar = 0, kNeon, kAvx2, kAvx3, kAvx3Dl, kAvx3Spr, kAmx };
inline constexpr int kNumTargets = 7;
std::string_view target_name(
    Target target);  // "scalar", "neon", "avx2", "avx3", "avx3_dl", "avx3_spr", "amx"

enum class Layout : uint8_t {
  kNone = 0,
  kStored,  // rows of blocks as in the file
  kRows16,  // strips of 16 rows with a lane per row, as lib/quant/pack.h describes
  kAny,     // in what is asked for: whichever layout has the row of least cost
};

// What a kernel is asked for. Fields that an op does not have are left at their defaults.
struct KernelKey {
  Op op;
  Format format = Format::kF32;   // kEmbed, kMatmul: of the weight
  Layout layout = Layout::kNone;  // kEmbed, kMatmul
  ActType act = ActType::kF32;    // kMatmul: of the activations; kQuantize: of the result
  KvType kv = KvType::kF16;       // kKvStore, kAttention
};

struct KernelRow {
  const char* name;  // <op>_<weight>_<act>__<backend>_<variant>
  KernelKey key;
  float cost;  // relative; a scalar reference row costs 100 times its op's best row
  // The entry for a target, nullptr where this row has none. A scalar row serves every target.
  KernelEntry (*entry)(Target target);
};

// The one table, defined by backends/kernel_rows.cc.
std::span<const KernelRow> kernel_rows();

// Targets that this machine runs, best first, the last is kScalar. Defined by backends/cpu.
std::span<const Target> cpu_targets();

struct Resolved {
  const KernelRow* row = nullptr;
  int32_t row_index = -1;
  KernelEntry entry = nullptr;
  std::string reason;                    // why this row, for the plan
  const KernelRow* runner_up = nullptr;  // nullptr: nothing else fits
  bool forced = false;                   // the pattern decided
};

// Hard filter by key and target, then least cost, then table order. kPlan when nothing fits; the
// message names the key. pattern: "" or a name with * for any characters; where rows of the key match it,
// only they are candidates (Resolved.forced).
absl::StatusOr<Resolved> resolve_kernel(const KernelKey& key, Target target,
                                        std::string_view pattern = {});

}  // namespace engine

#endif  // ENGINE_LIB_CONTRACT_KERNEL_H_
