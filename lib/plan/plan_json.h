// A plan as canonical JSON, schema "engine.plan/1": what the session does, for readers and for verification.
#ifndef ENGINE_LIB_PLAN_PLAN_JSON_H_
#define ENGINE_LIB_PLAN_PLAN_JSON_H_

#include <cstdint>
#include <string>

#include "lib/base/status.h"
#include "lib/contract/plan.h"
#include "lib/contract/step.h"
#include "lib/plan/plan_facts.h"

namespace engine {

inline constexpr char kPlanSchema[] = "engine.plan/1";

struct PlanStamp {
  std::string engine_version;
  int64_t time_s = 0;  // seconds since 1970 UTC, 0 = null in the JSON
};

// One line, keys sorted, no floats (they are texts, shortest form that reads back). "hash" is XXH3-128 over
// the same text without "hash" and "provenance.time". `plan` is of `program`.
absl::StatusOr<std::string> plan_json(const Program& program, const Plan& plan,
                                      const PlanModelFacts& facts, const PlanStamp& stamp);

}  // namespace engine

#endif  // ENGINE_LIB_PLAN_PLAN_JSON_H_
