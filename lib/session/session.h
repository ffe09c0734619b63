// One sequence: appends tokens, hands out logits, rewinds, cancels, carries hooks.
#ifndef ENGINE_LIB_SESSION_SESSION_H_
#define ENGINE_LIB_SESSION_SESSION_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>

#include "lib/base/host_memory.h"
#include "lib/base/status.h"
#include "lib/base/thread_runner.h"
#include "lib/contract/plan.h"
#include "lib/contract/step.h"
#include "lib/session/hooks.h"
#include "lib/session/interpreter.h"
#include "lib/session/kv_cache.h"
#include "lib/session/profile.h"
#include "lib/session/reference.h"

namespace engine {

struct SessionOptions {
  HostMemory memory;
  int32_t sequence = 0;
  // Told after every chunk of a decode of more than one chunk; may be null.
  void (*progress)(void* user, uint64_t done, uint64_t total) = nullptr;
  void* progress_user = nullptr;
  Profile::ClockFn clock = nullptr;  // nullptr = the monotonic clock
  void* clock_user = nullptr;
};

// Serial: one call at a time, except cancel(), which is safe from any thread and from a signal handler.
class Session {
 public:
  // `program` and what `packed` points to must outlive the session. kPlan when the plan does not fit the program
  // or the runner, kMemory.
  static absl::StatusOr<std::unique_ptr<Session>> create(const Program& program,
                                                         PackedWeights packed,
                                                         std::unique_ptr<ThreadRunner> runner,
                                                         std::shared_ptr<const Plan> plan,
                                                         const SessionOptions& options);

  // Takes another plan of the same key but for its hook set. The one before stays on failure.
  absl::Status bind(std::shared_ptr<const Plan> plan);

  // Appends ids. logits: nullptr, or [n_vocab] for the last token, or [ids][n_vocab] when `all_rows`.
  // On any error the session is as before the call.
  absl::Status decode(std::span<const int32_t> ids, float* logits, bool all_rows);
  absl::Status truncate(int64_t n);
  // Final norm and head on rows [n_rows][n_embd]; logits [n_rows][n_vocab].
  absl::Status unembed(const float* rows, int64_t n_rows, float* logits);
  void cancel();

  Hooks& hooks() { return hooks_; }
  const Hooks& hooks() const { return hooks_; }
  void tokens_are(TokenKind kind) { token_kind_ = kind; }
  // Inside decode() or unembed(), that is: asked from a hook callback.
  bool in_call() const { return run_state_.load() != kIdle; }

  absl::Status start_profile();
  void stop_profile();
  const Profile* profile() const { return profile_.get(); }

  int64_t position() const { return position_; }
  const Plan& plan() const { return *plan_; }
  const std::shared_ptr<const Plan>& shared_plan() const { return plan_; }
  uint32_t n_threads() const { return runner_->n_threads(); }
  uint64_t decoded_tokens() const { return decoded_tokens_; }
  uint64_t kv_bytes() const { return kv_.allocated_bytes(); }
  std::span<const uint64_t> kernel_counts() const {
    return is_reference() ? reference_.counts() : interpreter_.counts();
  }
  std::span<const uint64_t> fusion_counts() const { return interpreter_.fusion_counts(); }
  const Program& program() const { return program_; }

 private:
  enum RunState : int { kIdle, kRunning, kCancelAsked };

  Session(const Program& program, PackedWeights packed, std::unique_ptr<ThreadRunner> runner,
          std::shared_ptr<const Plan> plan, const SessionOptions& options);
  bool is_reference() const { return plan_->key.mode == Mode::kReference; }
  absl::Status check_ids(std::span<const int32_t> ids) const;
  absl::Status run(std::span<const int32_t> ids, float* logits, bool all_rows);
  absl::Status run_chunk(std::span<const int32_t> ids, int64_t first_position);
  absl::Status run_head(int64_t chunk, int64_t first_row, int64_t n_rows, float* logits);

  const Program& program_;
  const SessionOptions options_;
  std::unique_ptr<ThreadRunner> runner_;
  std::shared_ptr<const Plan> plan_;
  KvCache kv_;
  Hooks hooks_;
  Reference reference_;
  Interpreter interpreter_;
  std::unique_ptr<Profile> profile_;
  bool measuring_ = false;
  int64_t position_ = 0;
  uint64_t decoded_tokens_ = 0;
  TokenKind token_kind_ = TokenKind::kAuto;
  std::atomic<int> run_state_{kIdle};
  static_assert(std::atomic<int>::is_always_lock_free, "cancel() must be safe in a signal handler");
};

}  // namespace engine

#endif  // ENGINE_LIB_SESSION_SESSION_H_
