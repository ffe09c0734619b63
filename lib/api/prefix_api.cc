// engine.h, prefix cache: its bound, and the prefix of a new session.
#include "lib/api/session_handle.h"

using engine::Code;
using engine::api::guard;

extern "C" {

int32_t engine_model_prefix_cache(const engine_model* model, uint64_t max_bytes) {
  return guard(nullptr, [&]() -> absl::Status {
    if (model == nullptr) return engine::error(Code::kArgument, "the model is NULL");
    if (!model->program) return engine::error(Code::kState, "the model was opened without weights");
    model->prefixes.set_limit(max_bytes);
    return absl::OkStatus();
  });
}

int32_t engine_session_take_prefix(engine_session* session, const int32_t* ids, uint64_t n_ids,
                                   uint64_t* n_taken, engine_error* error) {
  return guard(error, [&]() -> absl::Status {
    if (n_taken == nullptr) return engine::error(Code::kArgument, "the count pointer is NULL");
    *n_taken = 0;
    ENGINE_ASSIGN_OR_RETURN(engine::Session* const s, engine::api::session_of(session));
    if (ids == nullptr) return engine::error(Code::kArgument, "the ids are NULL");
    ENGINE_ASSIGN_OR_RETURN(const int64_t n, s->take_prefix({ids, n_ids}));
    *n_taken = static_cast<uint64_t>(n);
    return absl::OkStatus();
  });
}

}  // extern "C"
