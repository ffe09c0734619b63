// The keys of a program are few (tens), so a list is searched.
#include "lib/plan/kernel_choice.h"

#include "lib/contract/derive.h"

namespace engine {
namespace {

bool same(const KernelKey& a, const KernelKey& b) {
  return a.op == b.op && a.format == b.format && a.layout == b.layout && a.act == b.act &&
         a.kv == b.kv;
}

}  // namespace

KernelChoice::KernelChoice(const Program& program, const PlanKey& key)
    : program_(program),
      target_(key.target),
      kv_(key.kv),
      packed_(key.packed && key.mode != Mode::kReference),
      pattern_(key.kernel_pattern) {}

bool KernelChoice::head_packs(int32_t weight) {
  for (const Step& step : program_.final_steps) {
    if (step.op != Op::kMatmul || step.weight != weight) continue;
    const auto head = resolve(step);
    KernelKey embed{.op = Op::kEmbed,
                    .format = program_.weights[static_cast<size_t>(weight)].format};
    embed.layout = Layout::kRows16;
    return head.ok() && (*head)->row->key.layout == Layout::kRows16 &&
           resolve_kernel(embed, target_).ok();
  }
  return false;
}

absl::StatusOr<const Resolved*> KernelChoice::resolve(const Step& step) {
  KernelKey key = kernel_key(program_, step, kv_);
  if (packed_ && (step.op == Op::kMatmul || step.op == Op::kMoeMatmul)) key.layout = Layout::kAny;
  if (packed_ && key.op == Op::kEmbed && head_packs(step.weight)) key.layout = Layout::kRows16;
  for (const auto& [known, resolved] : known_) {
    if (same(known, key)) return resolved.get();
  }
  ENGINE_ASSIGN_OR_RETURN(Resolved resolved, resolve_kernel(key, target_, pattern_));
  any_forced_ = any_forced_ || resolved.forced;
  known_.emplace_back(key, std::make_unique<Resolved>(std::move(resolved)));
  return known_.back().second.get();
}

}  // namespace engine
