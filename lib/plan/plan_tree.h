// The JSON tree of a plan and the names that it uses; for the files of plan/ that read or write it.
#ifndef ENGINE_LIB_PLAN_PLAN_TREE_H_
#define ENGINE_LIB_PLAN_PLAN_TREE_H_

#include <string>
#include <string_view>

#include "lib/base/status.h"
#include "lib/contract/plan.h"
#include "lib/contract/step.h"
#include "lib/plan/plan_facts.h"
#include "lib/plan/plan_json.h"
#include "nlohmann/json.hpp"

namespace engine {

using Json = nlohmann::json;

// With "hash". Integers are of the type that parsing gives them, so trees compare equal to parsed ones.
absl::StatusOr<Json> plan_tree(const Program& program, const Plan& plan,
                               const PlanModelFacts& facts, const PlanStamp& stamp);

// Sections of it.
absl::StatusOr<Json> form_tree(const Program& program, const PlanForm& form, const PlanKey& key);
Json model_tree(const PlanModelFacts& facts);
absl::StatusOr<Json> hooks_tree(const Program& program, const PlanKey& key);

// Canonical text; bytes that are not UTF-8 are replaced.
std::string dump_tree(const Json& tree);
// The hash over a tree, whatever it has as "hash" and "provenance.time".
std::string tree_hash(Json tree);

// "F1".."F6" of the bits.
Json fusion_names(uint32_t fusions);

// A stored plan: an object with our schema. kArgument when it is none, kTooNew for another version of the
// schema, kMemory. Never throws; texts nested deeper than any plan are refused before they are read.
absl::StatusOr<Json> parse_plan(std::string_view text);

}  // namespace engine

#endif  // ENGINE_LIB_PLAN_PLAN_TREE_H_
