// One sequence: appends tokens, hands out logits, rewinds, cancels.
#ifndef ENGINE_LIB_SESSION_SESSION_H_
#define ENGINE_LIB_SESSION_SESSION_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>

#include "lib/base/host_memory.h"
#include "lib/base/status.h"
#include "lib/base/thread_runner.h"
#include "lib/contract/step.h"
#include "lib/session/kv_cache.h"
#include "lib/session/reference.h"

namespace engine {

struct SessionOptions {
  int64_t n_ctx = 0;            // > 0
  int64_t prefill_chunk = 128;  // > 0
  KvType kv_type = KvType::kF16;
  Target target = Target::kScalar;
  HostMemory memory;
  // Told after every chunk of a decode of more than one chunk; may be null.
  void (*progress)(void* user, uint64_t done, uint64_t total) = nullptr;
  void* progress_user = nullptr;
};

// Serial: one call at a time, except cancel(), which is safe from any thread and from a signal handler.
class Session {
 public:
  // `program` must outlive the session.
  Session(const Program& program, std::unique_ptr<ThreadRunner> runner,
          const SessionOptions& options);

  // Appends ids. logits: nullptr, or [n_vocab] for the last token, or [ids][n_vocab] when `all_rows`.
  // On any error the session is as before the call.
  absl::Status decode(std::span<const int32_t> ids, float* logits, bool all_rows);
  absl::Status truncate(int64_t n);
  void cancel();

  int64_t position() const { return position_; }
  const SessionOptions& options() const { return options_; }
  uint32_t n_threads() const { return runner_->n_threads(); }
  uint64_t decoded_tokens() const { return decoded_tokens_; }
  uint64_t kv_bytes() const { return kv_.allocated_bytes(); }
  std::span<const uint64_t> kernel_counts() const { return reference_.counts(); }
  const Program& program() const { return program_; }

 private:
  enum RunState : int { kIdle, kRunning, kCancelAsked };

  absl::Status check_ids(std::span<const int32_t> ids) const;
  absl::Status run(std::span<const int32_t> ids, float* logits, bool all_rows);

  const Program& program_;
  const SessionOptions options_;
  std::unique_ptr<ThreadRunner> runner_;
  KvCache kv_;
  Reference reference_;
  int64_t position_ = 0;
  uint64_t decoded_tokens_ = 0;
  std::atomic<int> run_state_{kIdle};
  static_assert(std::atomic<int>::is_always_lock_free, "cancel() must be safe in a signal handler");
};

}  // namespace engine

#endif  // ENGINE_LIB_SESSION_SESSION_H_
