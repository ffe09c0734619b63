// What an engine_session is, for the files of the API that work on one.
#ifndef ENGINE_LIB_API_SESSION_HANDLE_H_
#define ENGINE_LIB_API_SESSION_HANDLE_H_

#include <memory>

#include "engine.h"
#include "lib/api/api_common.h"
#include "lib/contract/plan.h"
#include "lib/session/session.h"
#include "lib/session/speculation.h"

struct engine_session {
  const engine_model* model;
  engine::PlanKey key;  // without hooks
  std::unique_ptr<engine::Session> session;
  engine::Speculation speculation{};
};

namespace engine::api {

// Parameters of a session, checked.
struct SessionChoice {
  PlanKey key;
  uint32_t n_threads = 0;  // as asked for; the runner decides
  int32_t sequence = 0;
};
absl::StatusOr<SessionChoice> read_session_params(const engine_model& model,
                                                  const engine_session_params* params);

// The threads of a session, or how many they would be.
absl::StatusOr<std::unique_ptr<ThreadRunner>> make_runner(const engine_model& model,
                                                          uint32_t n_threads);
absl::StatusOr<uint32_t> thread_count_of(const engine_model& model, uint32_t n_threads);

// Puts a hook set into a key; equal sets give equal keys.
void set_hook_sites(std::vector<SiteMask> layer_sites, SiteMask global_sites, PlanKey* key);

// Compiles and binds the plan for a hook set.
absl::Status replan(engine_session* session, std::vector<SiteMask> layer_sites,
                    SiteMask global_sites);

// The session of a handle, or kArgument.
absl::StatusOr<Session*> session_of(engine_session* handle);
absl::StatusOr<const Session*> session_of(const engine_session* handle);

}  // namespace engine::api

#endif  // ENGINE_LIB_API_SESSION_HANDLE_H_
