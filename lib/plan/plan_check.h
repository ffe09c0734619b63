// Proves that a plan may be obeyed: nothing of what compile derived is believed.
#ifndef ENGINE_LIB_PLAN_PLAN_CHECK_H_
#define ENGINE_LIB_PLAN_PLAN_CHECK_H_

#include <string>
#include <vector>

#include "lib/base/status.h"
#include "lib/contract/plan.h"
#include "lib/contract/step.h"

namespace engine {

// Everything below, on both forms; kernels against resolve_kernel; fusion bits and reasons. Any fault is
// kPlan and says where.
absl::Status check_plan(const Program& program, const Plan& plan);

// One section: every program step is there once, in an order that its values allow; fused steps have the
// shape of their kind; no step reads a value that a fusion keeps from it; every active site fires once, in
// the program's order, on a value that is stored and that nobody uses within the step that makes it.
// where: "layer 3", for messages. carried: carried_slots of the program.
absl::Status check_section(const Program& program, const std::vector<Step>& section,
                           const std::vector<PlanStep>& steps, SiteMask active,
                           const std::vector<bool>& carried, const std::string& where);

// The memory of one form: lifetimes derived anew from its steps; regions that overlap in bytes do not in
// time; alignment, sizes, bounds, thread scratch. A plan of mode kReference has none.
absl::Status check_arena(const Program& program, const PlanForm& form, const PlanKey& key);

}  // namespace engine

#endif  // ENGINE_LIB_PLAN_PLAN_CHECK_H_
