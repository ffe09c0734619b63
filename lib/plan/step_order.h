// Puts plan steps into an order that respects what their program steps need.
#ifndef ENGINE_LIB_PLAN_STEP_ORDER_H_
#define ENGINE_LIB_PLAN_STEP_ORDER_H_

#include <vector>

#include "lib/base/status.h"
#include "lib/contract/plan.h"
#include "lib/plan/section_flow.h"

namespace engine {

// `groups` hold fused steps only; every program step in none of them becomes a kSingle. Among the steps
// that could run next the one with the first program step runs. kInternal when groups wait for each other.
absl::StatusOr<std::vector<PlanStep>> order_steps(const SectionFlow& flow,
                                                  std::vector<PlanStep> groups);

}  // namespace engine

#endif  // ENGINE_LIB_PLAN_STEP_ORDER_H_
