// Which values of a plan step reach the arena, and which stay in the thread's scratch.
#ifndef ENGINE_LIB_PLAN_STEP_PARTS_H_
#define ENGINE_LIB_PLAN_STEP_PARTS_H_

#include <vector>

#include "lib/contract/plan.h"
#include "lib/contract/step.h"

namespace engine {

// Whether the result of the part-th program step of `step` is stored in its slot. What is not stored can
// be read by later parts of the same step only.
bool part_is_stored(const std::vector<Step>& section, const PlanStep& step, size_t part);

}  // namespace engine

#endif  // ENGINE_LIB_PLAN_STEP_PARTS_H_
