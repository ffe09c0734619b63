// engine.h, session: decodes that are submitted and waited for.
#include <memory>
#include <utility>

#include "lib/api/session_handle.h"
#include "lib/session/completion.h"

using engine::Code;
using engine::api::guard;

struct engine_completion {
  std::unique_ptr<engine::Completion> completion;
};

extern "C" {

int32_t engine_session_submit(engine_session* session, const int32_t* ids, uint64_t n_ids,
                              float* logits, uint32_t flags, engine_completion** completion,
                              engine_error* error) {
  return guard(error, [&]() -> absl::Status {
    if (completion == nullptr) return engine::error(Code::kArgument, "the handle pointer is NULL");
    *completion = nullptr;
    ENGINE_ASSIGN_OR_RETURN(engine::Session* const s, engine::api::session_of(session));
    if (ids == nullptr) return engine::error(Code::kArgument, "the ids are NULL");
    if ((flags & ~uint32_t{ENGINE_SUBMIT_THREAD}) != 0) {
      return engine::error(Code::kTooNew, "unknown bits in flags");
    }
    auto handle = std::make_unique<engine_completion>();
    ENGINE_ASSIGN_OR_RETURN(handle->completion,
                            engine::Completion::submit(s, {ids, n_ids}, {logits, false, nullptr},
                                                       (flags & ENGINE_SUBMIT_THREAD) != 0));
    *completion = handle.release();
    return absl::OkStatus();
  });
}

int32_t engine_completion_poll(engine_completion* completion, int32_t* done) {
  return guard(nullptr, [&]() -> absl::Status {
    if (completion == nullptr || done == nullptr) {
      return engine::error(Code::kArgument, "a pointer is NULL");
    }
    *done = completion->completion->poll() ? 1 : 0;
    return absl::OkStatus();
  });
}

int32_t engine_completion_wait(engine_completion* completion, engine_error* error) {
  return guard(error, [&]() -> absl::Status {
    if (completion == nullptr) return engine::error(Code::kArgument, "the completion is NULL");
    return completion->completion->wait();
  });
}

void engine_completion_cancel(engine_completion* completion) {
  if (completion != nullptr) completion->completion->cancel();
}

void engine_completion_destroy(engine_completion* completion) { delete completion; }

}  // extern "C"
