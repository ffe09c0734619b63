// Which operations of a layer run as one step, under the fusions that are allowed and the hooks that are
// active (plan-and-hooks.md section 4).
#ifndef ENGINE_LIB_PLAN_FUSE_H_
#define ENGINE_LIB_PLAN_FUSE_H_

#include "lib/base/status.h"
#include "lib/contract/plan.h"
#include "lib/contract/step.h"

namespace engine {

// The steps of a layer with their fusions; no kernels, no splits. In a mode other than kPlannedFused every
// operation is a step.
absl::StatusOr<PlanLayer> fuse_layer(const Program& program, int32_t layer, const PlanKey& key);

// The final steps likewise: F1 is the only fusion that they know.
absl::StatusOr<PlanLayer> fuse_final(const Program& program, const PlanKey& key);

}  // namespace engine

#endif  // ENGINE_LIB_PLAN_FUSE_H_
