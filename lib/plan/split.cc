// One token: only matmuls and the attention have work for several threads. More: everything per token.
#include "lib/plan/split.h"

#include "lib/contract/derive.h"

namespace engine {
namespace {

Split batched_split(const Step& first, StepKind kind) {
  switch (kind) {
    case StepKind::kMatmulGroup:
    case StepKind::kMatmulAdd:
    case StepKind::kGateUp: return Split::kRows;
    case StepKind::kAttentionQ: return Split::kItems;
    case StepKind::kNormRows:
    case StepKind::kStoreKv: return Split::kTokens;
    case StepKind::kSingle: break;
  }
  switch (first.op) {
    case Op::kMoeMatmul:
    case Op::kMatmul: return Split::kRows;
    case Op::kAttention: return Split::kItems;
    case Op::kEmbed:
    case Op::kRopeAngles:
    case Op::kCheckFinite: return Split::kNone;
    default: return Split::kTokens;
  }
}

// The reference spreads these only, and only where a call has several tokens.
bool reference_spreads(Op op) {
  return op == Op::kMatmul || op == Op::kMoeMatmul || op == Op::kAttention || op == Op::kQuantize ||
         op == Op::kGatedAct;
}

}  // namespace

Split choose_split(const Program& program, const std::vector<Step>& section, const PlanStep& step,
                   int64_t n_rows, const PlanKey& key) {
  if (key.n_threads <= 1) return Split::kNone;
  const Step& first = section[static_cast<size_t>(step.steps.front())];
  const Split split = batched_split(first, step.kind);
  if (key.mode == Mode::kReference) {
    return n_rows > 1 && reference_spreads(first.op) ? split : Split::kNone;
  }
  if (n_rows > 1) return split;
  if (split == Split::kTokens) return Split::kNone;
  if (split == Split::kItems) return split;
  int64_t weight_bytes = 0;
  for (const int32_t i : step.steps) {
    weight_bytes += step_weight_bytes(program, section[static_cast<size_t>(i)]);
  }
  return weight_bytes >= kSplitWeightBytes ? split : Split::kNone;
}

}  // namespace engine
