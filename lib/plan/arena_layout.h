// Where the values of a form lie: lifetimes in folded time, then offsets in one arena.
#ifndef ENGINE_LIB_PLAN_ARENA_LAYOUT_H_
#define ENGINE_LIB_PLAN_ARENA_LAYOUT_H_

#include <cstdint>

#include "lib/contract/plan.h"
#include "lib/contract/step.h"

namespace engine {

inline constexpr int64_t kArenaAlignBytes = 64;

// The time of the i-th plan step of each section is the section's begin + i.
struct FoldedTime {
  int32_t layers_begin = 0;
  int32_t final_begin = 0;
  int32_t end = 0;
};
FoldedTime folded_time(const PlanForm& form);

// Largest step_scratch_bytes of the form's steps.
int64_t thread_scratch_bytes(const Program& program, const PlanForm& form);

// Tokens that a slot holds: n_head_rows where only the final steps use it, else n_tokens.
int64_t slot_rows(const Program& program, int32_t slot, const PlanForm& form);

// For a form whose steps are complete. Regions are placed from the largest to the smallest, each in the
// smallest gap that its lifetime leaves.
Arena lay_out(const Program& program, const PlanForm& form, uint32_t n_threads);

}  // namespace engine

#endif  // ENGINE_LIB_PLAN_ARENA_LAYOUT_H_
