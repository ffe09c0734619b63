// A decode that was submitted and is waited for: done piece by piece by whoever polls, or on a thread of its own.
#ifndef ENGINE_LIB_SESSION_COMPLETION_H_
#define ENGINE_LIB_SESSION_COMPLETION_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "lib/base/status.h"
#include "lib/session/session.h"
#include "lib/session/session_call.h"

namespace engine {

// Until it is done, or gone, the session is in a call. Serial, but for cancel() of the session.
class Completion {
 public:
  // Copies the ids; logits must live until it is done. Errors as of SessionCall::begin, and kMemory when there is no
  // thread.
  static absl::StatusOr<std::unique_ptr<Completion>> submit(Session* session,
                                                            std::span<const int32_t> ids,
                                                            const LogitRows& logits,
                                                            bool on_thread);
  // Cancels what is not done.
  ~Completion();
  Completion(const Completion&) = delete;
  Completion& operator=(const Completion&) = delete;

  // Without a thread: works, for one chunk of tokens. True when done.
  bool poll();
  // Done, with the status of Session::decode.
  absl::Status wait();
  // From any thread and a signal handler: ends it, unless it is done, as Session::cancel() does.
  void cancel() {
    if (!is_done_.load(std::memory_order_acquire)) session_->cancel();
  }

 private:
  Completion(Session* session, std::span<const int32_t> ids)
      : session_(session), ids_(ids.begin(), ids.end()) {}
  void work();
  void finish(absl::Status status);

  Session* const session_;
  const std::vector<int32_t> ids_;
  SessionCall call_;
  absl::Status status_;  // once is_done_
  std::atomic<bool> is_done_{false};
  std::thread thread_;
};

}  // namespace engine

#endif  // ENGINE_LIB_SESSION_COMPLETION_H_
