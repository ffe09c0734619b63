// engine.h, session: fork.
#include <memory>
#include <utility>
#include <vector>

#include "lib/api/session_handle.h"

using engine::Code;

extern "C" {

int32_t engine_session_fork(const engine_session* session, uint32_t flags, engine_session** fork,
                            engine_error* error) {
  return engine::api::guard(error, [&]() -> absl::Status {
    if (fork == nullptr) return engine::error(Code::kArgument, "the handle pointer is NULL");
    *fork = nullptr;
    ENGINE_ASSIGN_OR_RETURN(const engine::Session* const s, engine::api::session_of(session));
    if ((flags & ~uint32_t{ENGINE_FORK_WITHOUT_HOOKS}) != 0) {
      return engine::error(Code::kTooNew, "unknown bits in flags");
    }
    ENGINE_ASSIGN_OR_RETURN(auto made, s->make_fork((flags & ENGINE_FORK_WITHOUT_HOOKS) == 0));
    std::vector<engine::SiteMask> layers;
    engine::SiteMask global = 0;
    made->hooks().masks(&layers, &global);
    auto handle = std::make_unique<engine_session>(
        engine_session{session->model, session->key, std::move(made), {}});
    ENGINE_RETURN_IF_ERROR(engine::api::replan(handle.get(), std::move(layers), global));
    *fork = handle.release();
    return absl::OkStatus();
  });
}

}  // extern "C"
