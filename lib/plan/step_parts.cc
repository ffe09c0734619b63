// The stored values of each StepKind, as its comment in contract/plan.h says.
#include "lib/plan/step_parts.h"

namespace engine {

bool part_is_stored(const std::vector<Step>& section, const PlanStep& step, size_t part) {
  const bool is_last = part + 1 == step.steps.size();
  const Op op = section[static_cast<size_t>(step.steps[part])].op;
  switch (step.kind) {
    case StepKind::kSingle:
    case StepKind::kMatmulGroup: return true;
    case StepKind::kNormRows: return is_last || op == Op::kAdd || op == Op::kQuantize;
    case StepKind::kGateUp: return is_last || op == Op::kQuantize;
    case StepKind::kMatmulAdd:
    case StepKind::kStoreKv:
    case StepKind::kAttentionQ: return is_last;
  }
  return true;
}

}  // namespace engine
