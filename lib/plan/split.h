// How each step of a form is divided over threads.
#ifndef ENGINE_LIB_PLAN_SPLIT_H_
#define ENGINE_LIB_PLAN_SPLIT_H_

#include <vector>

#include "lib/contract/plan.h"
#include "lib/contract/step.h"

namespace engine {

// Weights below this are read faster by one thread than a launch of several takes.
inline constexpr int64_t kSplitWeightBytes = 64 * 1024;

// For a step that takes n_rows tokens. In mode kReference: what the reference does.
Split choose_split(const Program& program, const std::vector<Step>& section, const PlanStep& step,
                   int64_t n_rows, const PlanKey& key);

}  // namespace engine

#endif  // ENGINE_LIB_PLAN_SPLIT_H_
