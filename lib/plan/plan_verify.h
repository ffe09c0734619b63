// Is a stored plan what this library would decide here and now?
#ifndef ENGINE_LIB_PLAN_PLAN_VERIFY_H_
#define ENGINE_LIB_PLAN_PLAN_VERIFY_H_

#include <string>
#include <string_view>

#include "lib/base/status.h"
#include "lib/contract/step.h"
#include "lib/model/model_load.h"

namespace engine {

// The hash, the overlaps of the stored regions, then a new compilation for what the plan says it was made
// for, compared value by value; provenance.time is not. The whole file is read when the plan has its full
// hash. Any text may be given: kArgument (no plan, or damaged), kTooNew (another schema), kPlan (differs;
// names the first difference and both values), kMemory. Never throws.
absl::Status verify_plan(std::string_view json, const Model& model, const Program& program,
                         const std::string& engine_version);

}  // namespace engine

#endif  // ENGINE_LIB_PLAN_PLAN_VERIFY_H_
