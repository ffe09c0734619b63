// What differs between the steps and fusions of one section of two stored plans.
#ifndef ENGINE_LIB_PLAN_SECTION_DIFF_H_
#define ENGINE_LIB_PLAN_SECTION_DIFF_H_

#include <string>
#include <vector>

#include "lib/plan/plan_tree.h"

namespace engine {

// steps: arrays of steps; fusions: arrays of fusions; any may be nullptr. Lines without the section's name.
std::vector<std::string> diff_section(const Json* steps_a, const Json* fusions_a,
                                      const Json* steps_b, const Json* fusions_b);

}  // namespace engine

#endif  // ENGINE_LIB_PLAN_SECTION_DIFF_H_
