// Lowers a model to its op sequence (plan-and-hooks.md section 1): the input of every execution mode.
#ifndef ENGINE_LIB_PLAN_LOWER_H_
#define ENGINE_LIB_PLAN_LOWER_H_

#include "lib/base/status.h"
#include "lib/contract/step.h"
#include "lib/model/model_load.h"

namespace engine {

// The result points into the model's weights and must not outlive it. kPlan when a weight's format and
// width do not fit any activation type.
absl::StatusOr<Program> lower(const Model& model);

}  // namespace engine

#endif  // ENGINE_LIB_PLAN_LOWER_H_
