// What differs between two stored plans, and why, for a person.
#ifndef ENGINE_LIB_PLAN_PLAN_DIFF_H_
#define ENGINE_LIB_PLAN_PLAN_DIFF_H_

#include <string>
#include <string_view>

#include "lib/base/status.h"

namespace engine {

// A line "place: a -> b" per difference, with the reason in brackets where the plans give one; "" when they
// are equal. Layers with the same difference are one line ("layers 0-29: ..."), and so are tensors whose
// names differ in the layer only. Any texts may be given: kArgument (no plan), kTooNew, kMemory. Never throws.
absl::StatusOr<std::string> diff_plans(std::string_view a, std::string_view b);

}  // namespace engine

#endif  // ENGINE_LIB_PLAN_PLAN_DIFF_H_
