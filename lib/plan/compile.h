// The plan compiler: program and key in, immutable plan out; and the cache of a model's plans.
#ifndef ENGINE_LIB_PLAN_COMPILE_H_
#define ENGINE_LIB_PLAN_COMPILE_H_

#include <memory>

#include "lib/base/status.h"
#include "lib/contract/plan.h"
#include "lib/contract/step.h"

namespace engine {

// Every kernel through resolve_kernel. The result is checked (plan_check.h) before it is returned. kPlan: no kernel
// for a step, or a kernel pattern that took no effect.
absl::StatusOr<std::shared_ptr<const Plan>> compile(const Program& program, const PlanKey& key);

}  // namespace engine

#endif  // ENGINE_LIB_PLAN_COMPILE_H_
