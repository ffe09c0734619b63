// engine_hook_params as a HookSpec.
#ifndef ENGINE_LIB_API_HOOK_PARAMS_H_
#define ENGINE_LIB_API_HOOK_PARAMS_H_

#include "engine.h"
#include "lib/base/status.h"
#include "lib/session/hooks.h"

namespace engine::api {

// Copies all but the capture buffers. kArgument: a pointer and its count that do not go together, kTooNew.
// Everything that needs a model or a session is left to Hooks::add().
absl::StatusOr<HookSpec> read_hook(const engine_hook_params* params);
// The site and the layers only: what a plan is made from.
absl::StatusOr<HookSpec> read_hook_site(const engine_hook_params* params);

}  // namespace engine::api

#endif  // ENGINE_LIB_API_HOOK_PARAMS_H_
