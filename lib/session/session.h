// One sequence: appends tokens, hands out logits, rewinds, forks, cancels, carries hooks.
#ifndef ENGINE_LIB_SESSION_SESSION_H_
#define ENGINE_LIB_SESSION_SESSION_H_

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
#include "lib/session/hooks.h"
#include "lib/session/interpreter.h"
#include "lib/session/kv_cache.h"
#include "lib/session/prefix_store.h"
#include "lib/session/profile.h"
#include "lib/session/reference.h"
#include "lib/session/sequence_rows.h"
#include "lib/session/token_history.h"

namespace engine {

class SessionCall;

struct SessionOptions {
  HostMemory memory;
  int32_t sequence = 0;
  // Told in calls of more than one token: after every chunk, and every 50 ms (mode reference: chunks only), with
  // tokens that never go back; may be null. From any thread of the call.
  void (*progress)(void* user, uint64_t done, uint64_t total) = nullptr;
  void* progress_user = nullptr;
  Profile::ClockFn clock = nullptr;  // nullptr = the monotonic clock
  void* clock_user = nullptr;
  PrefixStore* prefixes =
      nullptr;  // where its full pages go, and come from; may be null; outlives the session
};

// Serial: one call at a time, except cancel(), which is safe from any thread and from a signal handler.
class Session {
 public:
  // `program` and what `packed` points to must outlive the session. kPlan when the plan does not fit the program
  // or the runner, kMemory.
  static absl::StatusOr<std::unique_ptr<Session>> create(const Program& program,
                                                         const PackedWeights& packed,
                                                         std::shared_ptr<ThreadRunner> runner,
                                                         std::shared_ptr<const Plan> plan,
                                                         const SessionOptions& options);

  // A session that has the same tokens and goes on as this one would, but for captures, which belong to the
  // memory of who registered them; without hooks if so asked. It shares pages until one of the two writes them,
  // the threads, and scratch memory until both are in a call at once. kState inside a call, kMemory.
  absl::StatusOr<std::unique_ptr<Session>> make_fork(bool with_hooks) const;

  // Takes another plan of the same key but for its hook set. The one before stays on failure.
  absl::Status bind(std::shared_ptr<const Plan> plan);

  // Appends ids. logits: nullptr, or [n_vocab] for the last token, or [ids][n_vocab] when `all_rows`.
  // On any error the session is as before the call.
  absl::Status decode(std::span<const int32_t> ids, float* logits, bool all_rows);
  // The same for tokens of that kind, whatever tokens_are() said.
  absl::Status decode_as(TokenKind kind, std::span<const int32_t> ids, float* logits,
                         bool all_rows);
  absl::Status truncate(int64_t n);
  // Of an empty session: takes the longest known beginning of ids, in whole pages and without the last id, as a
  // part of a prompt that goes on, and tells how many positions that were. Only what was computed under the hooks
  // that write now. kState, kArgument, kContextFull (by ids).
  absl::StatusOr<int64_t> take_prefix(std::span<const int32_t> ids);
  // Final norm and head on rows [n_rows][n_embd]; logits [n_rows][n_vocab].
  absl::Status unembed(const float* rows, int64_t n_rows, float* logits);
  void cancel();

  // A cache as this session would need it; then what it holds in place of what it has: pages of cache, one history of
  // at most n_ctx tokens, the position of generated token 0. Not inside a call.
  KvCache empty_cache() const {
    return {program_.kv, kv_.type(), plan_->key.n_ctx, options_.memory};
  }
  void replace(const KvCache& cache, TokenHistory history, int64_t prompt_end);

  Hooks& hooks() { return hooks_; }
  const Hooks& hooks() const { return hooks_; }
  void tokens_are(TokenKind kind) { token_kind_ = kind; }
  TokenKind token_kind() const { return token_kind_; }
  // Inside decode() or unembed(), that is: asked from a hook callback.
  bool in_call() const { return run_state_.load() != kIdle; }

  absl::Status start_profile();
  void stop_profile();
  const Profile* profile() const { return profile_.get(); }

  int64_t position() const { return history_.size(); }
  const TokenHistory& history() const { return history_; }
  const Plan& plan() const { return *plan_; }
  const std::shared_ptr<const Plan>& shared_plan() const { return plan_; }
  uint32_t n_threads() const { return runner_->n_threads(); }
  uint64_t decoded_tokens() const { return decoded_tokens_; }
  const KvCache& kv() const { return kv_; }
  std::span<const uint64_t> kernel_counts() const {
    return is_reference() ? reference_.counts() : counters_.kernels;
  }
  std::span<const uint64_t> fusion_counts() const { return counters_.fusions; }
  const Program& program() const { return program_; }

  // Of the host's clock.
  uint64_t now_ns() const { return clock()(options_.clock_user); }

 private:
  friend class SessionCall;
  friend class BatchRun;
  enum RunState : int { kIdle, kRunning, kCancelAsked };

  Session(const Program& program, std::shared_ptr<ThreadRunner> runner,
          std::shared_ptr<const Plan> plan, const SessionOptions& options);
  bool is_reference() const { return plan_->key.mode == Mode::kReference; }
  absl::Status check_ids(std::span<const int32_t> ids) const;
  void publish_pages();
  void add_full_pages();
  PrefixStore::Kind page_kind() const {
    return {kv_.type(), program_.rope_tables(plan_->key.n_ctx)};
  }
  // A chunk of a call, layers and wanted logits.
  absl::Status run_planned(SessionCall* call, int64_t first, int64_t n);
  absl::Status run_reference(SessionCall* call, int64_t first, int64_t n);
  template <class F>
  absl::Status for_head_rows(SessionCall* call, int64_t first, int64_t chunk, F&& head) const;
  Profile::ClockFn clock() const;
  // Takes the interpreter for a call; one of its own where another session is in a call of the shared one.
  absl::Status enter_interpreter();

  const Program& program_;
  const SessionOptions options_;
  const std::shared_ptr<ThreadRunner> runner_;
  std::shared_ptr<const Plan> plan_;
  KvCache kv_;
  Hooks hooks_;
  Reference reference_;
  std::shared_ptr<Interpreter> interpreter_;  // nullptr in the reference mode
  std::shared_ptr<Interpreter>
      batch_interpreter_;       // for the hooks of a batch that this session led
  AlignedBuffer batch_logits_;  // of such a batch
  RunCounters counters_;
  std::unique_ptr<Profile> profile_;
  bool measuring_ = false;
  TokenHistory history_;  // with room for n_ctx tokens
  std::vector<PrefixStore::PageId>
      published_;  // the first full pages, as far as the store has them
  uint64_t decoded_tokens_ = 0;
  TokenKind token_kind_ = TokenKind::kAuto;
  std::atomic<int> run_state_{kIdle};
  static_assert(std::atomic<int>::is_always_lock_free, "cancel() must be safe in a signal handler");
};

}  // namespace engine

#endif  // ENGINE_LIB_SESSION_SESSION_H_
