// Executes a bound plan: the token loop of the modes planned and planned-fused.
#ifndef ENGINE_LIB_SESSION_INTERPRETER_H_
#define ENGINE_LIB_SESSION_INTERPRETER_H_

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "lib/base/host_memory.h"
#include "lib/base/status.h"
#include "lib/base/thread_runner.h"
#include "lib/contract/plan.h"
#include "lib/contract/step.h"
#include "lib/session/bound_plan.h"
#include "lib/session/hooks.h"
#include "lib/session/kv_cache.h"
#include "lib/session/profile.h"

namespace engine {

// All decisions were made before: the loop calls one function per step. It takes no lock, looks up no name
// and allocates nothing.
class Interpreter {
 public:
  // All references must outlive the interpreter.
  Interpreter(const Program& program, PackedWeights packed, KvCache* kv, ThreadRunner* runner,
              Hooks* hooks, HostMemory memory);

  // Takes a plan; on failure the one before stays. Needed before anything runs.
  absl::Status bind(std::shared_ptr<const Plan> plan);
  const BoundPlan* bound() const { return bound_.get(); }

  // As Reference::run_layers and run_head. At most the plan's prefill_chunk ids. n_rows rows of logits from row
  // `first_row` of the last run_layers on, at most n_head_rows of its form.
  absl::Status run_layers(std::span<const int32_t> ids, int64_t first_position,
                          bool (*should_stop)(void*), void* stop_data);
  absl::Status run_head(int64_t first_row, int64_t n_rows, float* logits);
  // Final steps on rows of the caller, [n_rows][n_embd]; no hooks. Spoils the rows of the last run_layers.
  absl::Status unembed(const float* rows, int64_t n_rows, float* logits);

  std::span<const uint64_t> counts() const { return counts_; }
  std::span<const uint64_t> fusion_counts() const { return fusion_counts_; }
  void set_profile(Profile* profile) { profile_ = profile; }
  // Labels of one form for a profile.
  std::vector<ProfileLabel> labels(bool prefill) const;

 private:
  absl::Status run_step(const BoundStep& step, ExecContext& context, const HookRows& rows);
  absl::Status fire_before(const BoundStep& step, ExecContext& context, const HookRows& rows);
  absl::Status fire_after(const BoundStep& step, const HookRows& rows);
  absl::Status run_final(const HookRows& rows, uint8_t* residual, float* logits);
  void prepare(ExecContext* context, const HookRows& rows) const;

  const Program& program_;
  const PackedWeights packed_;
  KvCache* const kv_;
  ThreadRunner* const runner_;
  Hooks* const hooks_;
  const HostMemory memory_;
  std::unique_ptr<BoundPlan> bound_;
  BoundForm* form_ = nullptr;  // of the last run_layers
  HookRows rows_;              // of the last run_layers
  bool silent_ = false;        // fire no hooks
  std::vector<uint64_t> counts_;
  std::array<uint64_t, kNumFusions> fusion_counts_{};
  Profile* profile_ = nullptr;
};

}  // namespace engine

#endif  // ENGINE_LIB_SESSION_INTERPRETER_H_
