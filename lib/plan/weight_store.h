// The packed copies of a model's weights: made once, when the first plan wants them, shared by all sessions.
#ifndef ENGINE_LIB_PLAN_WEIGHT_STORE_H_
#define ENGINE_LIB_PLAN_WEIGHT_STORE_H_

#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

#include "lib/base/host_memory.h"
#include "lib/base/status.h"
#include "lib/base/thread_runner.h"
#include "lib/contract/packed.h"
#include "lib/contract/plan.h"
#include "lib/contract/step.h"

namespace engine {

class WeightStore {
 public:
  // Told the bytes packed so far and in all, from one thread at a time, every few megabytes.
  using ProgressFn = std::function<void(uint64_t done, uint64_t total)>;
  // Copies stored bytes of a weight, given their address in the program, from wherever they lie; any thread.
  using ReadFn = std::function<absl::Status(const uint8_t* stored, uint64_t n_bytes, uint8_t* out)>;

  // Any thread; waits for a packing that is under way. Packs what the plan's kernels want in another layout
  // than stored, in parallel, in the order of use. The views are per weight of the program and live as long as
  // the store. kMemory: what was packed
  // by earlier calls stays.
  absl::StatusOr<PackedWeights> prepare(const Program& program, const Plan& plan,
                                        ThreadRunner* runner, const HostMemory& memory,
                                        const ProgressFn& progress, const ReadFn& read);

  uint64_t packed_bytes() const;

  // What prepare() would hold for a plan, given nothing packed before, and what it takes while it packs; what the
  // plan's kernels read as it is stored.
  struct Need {
    uint64_t packed_bytes = 0;
    uint64_t buffer_bytes = 0;
    uint64_t stored_bytes = 0;
  };
  static Need need(const Program& program, const Plan& plan);

 private:
  mutable std::mutex mutex_;
  std::vector<AlignedBuffer> blocks_;  // of one prepare() each, the weights in the order of use
  PackedWeights views_;
};

}  // namespace engine

#endif  // ENGINE_LIB_PLAN_WEIGHT_STORE_H_
