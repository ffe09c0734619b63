// The PlanKey that a stored plan was made for.
#ifndef ENGINE_LIB_PLAN_PLAN_KEY_READ_H_
#define ENGINE_LIB_PLAN_PLAN_KEY_READ_H_

#include "lib/base/status.h"
#include "lib/contract/plan.h"
#include "lib/contract/step.h"
#include "lib/plan/plan_tree.h"

namespace engine {

// kArgument naming the place of a value that is missing or impossible.
absl::StatusOr<PlanKey> read_plan_key(const Json& tree, const Program& program);

// The value at a path of object keys; nullptr where there is none.
const Json* find_value(const Json& tree, std::initializer_list<const char*> path);

}  // namespace engine

#endif  // ENGINE_LIB_PLAN_PLAN_KEY_READ_H_
