// Steps of a submitted call, on either thread.
#include "lib/session/completion.h"

#include <new>
#include <system_error>
#include <utility>

#include "lib/base/block_signals.h"
#include "lib/base/float_state.h"

namespace engine {

absl::StatusOr<std::unique_ptr<Completion>> Completion::submit(Session* session,
                                                               std::span<const int32_t> ids,
                                                               const LogitRows& logits,
                                                               bool on_thread) {
  std::unique_ptr<Completion> made(new Completion(session, ids));
  ENGINE_RETURN_IF_ERROR(made->call_.begin(session, made->ids_));
  made->call_.want(logits);
  if (!on_thread) return made;
  try {
    const BlockSignals block;
    made->thread_ = std::thread([completion = made.get()] { completion->work(); });
  } catch (const std::system_error&) {
    return error(Code::kMemory, "cannot start a thread");
  }
  return made;
}

Completion::~Completion() {
  if (thread_.joinable()) {
    if (!is_done_.load()) session_->cancel();
    thread_.join();
  }
}

// All of it; an exception must not leave the thread.
void Completion::work() {
  try {
    while (!is_done_.load(std::memory_order_relaxed)) {
      const FloatStateGuard guard;
      const absl::Status status = call_.step();
      if (!status.ok() || call_.is_through()) finish(status);
    }
  } catch (const std::bad_alloc&) {
    finish(error(Code::kMemory, "out of memory"));
  }
}

void Completion::finish(absl::Status status) {
  status_ = std::move(status);
  if (status_.ok()) {
    call_.commit();
  } else {
    call_.end();
  }
  is_done_.store(true, std::memory_order_release);
}

bool Completion::poll() {
  if (is_done_.load(std::memory_order_acquire)) return true;
  if (thread_.joinable()) return false;
  const FloatStateGuard guard;
  const absl::Status status = call_.step();
  if (!status.ok() || call_.is_through()) finish(status);
  return is_done_.load(std::memory_order_relaxed);
}

absl::Status Completion::wait() {
  if (thread_.joinable()) thread_.join();
  while (!poll()) {
  }
  return status_;
}

}  // namespace engine
