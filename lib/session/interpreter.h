// Executes a bound plan: the token loop of the modes planned and planned-fused.
#ifndef ENGINE_LIB_SESSION_INTERPRETER_H_
#define ENGINE_LIB_SESSION_INTERPRETER_H_

#include <atomic>
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
#include "lib/session/profile.h"
#include "lib/session/sequence_rows.h"

namespace engine {

// All decisions were made before: the loop calls one function per step. It takes no lock, looks up no name
// and allocates nothing. It has no state of a sequence, so sessions that obey one plan may share it, and one
// call may carry rows of several: each weight is read once for all of them.
class Interpreter {
 public:
  // `program` and what `packed` points to must outlive it. kPlan when the plan does not fit, kMemory.
  static absl::StatusOr<std::shared_ptr<Interpreter>> create(std::shared_ptr<const Plan> plan,
                                                             const Program& program,
                                                             const PackedWeights& packed,
                                                             std::shared_ptr<ThreadRunner> runner,
                                                             const HostMemory& memory);
  // Another one, with memory of its own and the same threads.
  absl::StatusOr<std::shared_ptr<Interpreter>> with_plan(std::shared_ptr<const Plan> plan) const;

  // One call at a time: false, at once, while another thread is between enter() and leave().
  bool try_enter() { return !busy_.exchange(true, std::memory_order_acquire); }
  void leave() { busy_.store(false, std::memory_order_release); }

  // Preamble and layers for the rows of all sequences, at most the plan's prefill_chunk, whose pages must be
  // reserved. A sequence that fails, or is asked to stop, gets a status and disturbs no other.
  void run_layers(std::span<SequenceRows> sequences);
  // Final steps for rows of the last run_layers from `first_row` on, which the sequences tell about; their own
  // first_row counts from there. logits: [rows][n_vocab]; at most n_head_rows of the form.
  void run_head(std::span<SequenceRows> sequences, int64_t first_row, float* logits);
  // Final steps on rows of the caller, [n_rows][n_embd]; no hooks. Spoils the rows of the last run_layers.
  absl::Status unembed(const float* rows, int64_t n_rows, float* logits, RunCounters* counters);

  const Plan& plan() const { return bound_->plan(); }
  const std::shared_ptr<const Plan>& shared_plan() const { return bound_->shared_plan(); }
  const std::shared_ptr<ThreadRunner>& runner() const { return runner_; }
  // Labels of one form for a profile.
  std::vector<ProfileLabel> labels(bool prefill) const;

 private:
  Interpreter(const Program& program, const PackedWeights& packed,
              std::shared_ptr<ThreadRunner> runner, const HostMemory& memory);
  void run_steps(const std::vector<BoundStep>& steps, ExecContext& context);
  void run_step(const BoundStep& step, ExecContext& context);
  void tell_progress(const BoundStep& step, const ExecContext& context) const;
  absl::Status fire_before(const BoundStep& step, const ExecContext& context, SequenceRows& s);
  absl::Status fire_after(const BoundStep& step, SequenceRows& s);
  ExecContext context_of(std::span<SequenceRows> sequences) const;
  void aim_final(uint8_t* residual, float* logits);

  const Program& program_;
  const PackedWeights packed_;
  const std::shared_ptr<ThreadRunner> runner_;
  const HostMemory memory_;
  std::unique_ptr<BoundPlan> bound_;
  BoundForm* form_ = nullptr;  // of the last run_layers
  std::atomic<bool> busy_{false};
};

}  // namespace engine

#endif  // ENGINE_LIB_SESSION_INTERPRETER_H_
