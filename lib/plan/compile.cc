// Fusion, kernels, splits and layout for both forms, then the check.
#include "lib/plan/compile.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/contract/derive.h"
#include "lib/plan/arena_layout.h"
#include "lib/plan/fuse.h"
#include "lib/plan/kernel_choice.h"
#include "lib/plan/plan_check.h"
#include "lib/plan/section_flow.h"
#include "lib/plan/split.h"
#include "lib/plan/step_order.h"

namespace engine {
namespace {

// Sizes of a form then stay below 2^63 bytes.
constexpr uint32_t kMaxThreads = 1u << 16;
constexpr int64_t kMaxChunk = int64_t{1} << 31;
constexpr int64_t kHeadRows = 8;  // logits rows at once in a prefill: V floats each

absl::Status check_sites(const SiteShapes& shapes, SiteMask active, const std::string& where) {
  if ((active >> kNumSites) != 0) return error(Code::kArgument, "a hook site of an unknown number");
  for (const SiteInfo& info : site_table()) {
    if ((active & site_bit(info.site)) == 0) continue;
    if (!shapes[static_cast<size_t>(info.site)].present()) {
      return error(Code::kArgument, absl::StrCat(where, " has no hook site ", info.name));
    }
  }
  return absl::OkStatus();
}

absl::Status check_key(const Program& program, const PlanKey& key) {
  if (key.n_threads < 1 || key.prefill_chunk < 1 || key.n_ctx < 1) {
    return error(Code::kArgument, "n_threads, prefill_chunk and n_ctx must be at least 1");
  }
  if (key.n_threads > kMaxThreads || key.prefill_chunk > kMaxChunk) {
    return error(Code::kArgument, "n_threads or prefill_chunk is too large");
  }
  if (!key.layer_sites.empty() && key.layer_sites.size() != program.layers.size()) {
    return error(Code::kArgument, absl::StrCat("hook sites of ", key.layer_sites.size(),
                                               " layers for a model of ", program.layers.size()));
  }
  for (size_t l = 0; l < key.layer_sites.size(); ++l) {
    ENGINE_RETURN_IF_ERROR(
        check_sites(program.layer_sites[l], key.layer_sites[l], absl::StrCat("layer ", l)));
  }
  return check_sites(program.global_sites, key.global_sites, "the model outside its layers");
}

absl::Status set_kernels(const std::vector<Step>& section, KernelChoice* choice,
                         std::vector<PlanStep>* steps) {
  for (PlanStep& step : *steps) {
    for (const int32_t i : step.steps) {
      ENGINE_ASSIGN_OR_RETURN(const Resolved* resolved,
                              choice->resolve(section[static_cast<size_t>(i)]));
      step.kernels.push_back(resolved->row_index);
    }
  }
  return absl::OkStatus();
}

void set_splits(const Program& program, const std::vector<Step>& section, int64_t n_rows,
                const PlanKey& key, std::vector<PlanStep>* steps) {
  for (PlanStep& step : *steps) step.split = choose_split(program, section, step, n_rows, key);
}

void finish_form(const Program& program, const PlanKey& key, PlanForm* form) {
  set_splits(program, program.preamble, form->n_tokens, key, &form->preamble);
  for (size_t l = 0; l < form->layers.size(); ++l) {
    set_splits(program, program.layers[l], form->n_tokens, key, &form->layers[l].steps);
  }
  set_splits(program, program.final_steps, form->n_head_rows, key, &form->final_steps);
  if (key.mode == Mode::kReference) {
    form->arena.slot_region.assign(program.slots.size(), -1);
  } else {
    form->arena = lay_out(program, *form, key.n_threads);
  }
}

absl::StatusOr<std::vector<TensorChoice>> tensor_choices(const Program& program,
                                                         KernelChoice* choice) {
  std::vector<TensorChoice> tensors;
  std::set<std::pair<int32_t, Op>> seen;
  const auto mark = [&](const std::vector<Step>& section) -> absl::Status {
    for (const Step& step : section) {
      if (step.weight < 0 || !seen.emplace(step.weight, step.op).second) continue;
      ENGINE_ASSIGN_OR_RETURN(const Resolved* resolved, choice->resolve(step));
      TensorChoice tensor{step.weight, step.op, resolved->row_index, -1, resolved->reason};
      if (resolved->runner_up != nullptr) {
        tensor.runner_up = static_cast<int32_t>(resolved->runner_up - kernel_rows().data());
      }
      tensors.push_back(std::move(tensor));
    }
    return absl::OkStatus();
  };
  ENGINE_RETURN_IF_ERROR(mark(program.preamble));
  for (const std::vector<Step>& layer : program.layers) ENGINE_RETURN_IF_ERROR(mark(layer));
  ENGINE_RETURN_IF_ERROR(mark(program.final_steps));
  std::sort(tensors.begin(), tensors.end(), [](const TensorChoice& a, const TensorChoice& b) {
    return std::make_pair(a.weight, a.op) < std::make_pair(b.weight, b.op);
  });
  return tensors;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Plan>> compile(const Program& program, const PlanKey& key) {
  ENGINE_RETURN_IF_ERROR(check_key(program, key));
  auto plan = std::make_shared<Plan>();
  plan->key = key;
  KernelChoice choice(program, key);
  PlanForm& decode = plan->decode;
  ENGINE_ASSIGN_OR_RETURN(decode.preamble, order_steps(section_flow(program.preamble), {}));
  ENGINE_RETURN_IF_ERROR(set_kernels(program.preamble, &choice, &decode.preamble));
  for (size_t l = 0; l < program.layers.size(); ++l) {
    ENGINE_ASSIGN_OR_RETURN(PlanLayer layer, fuse_layer(program, static_cast<int32_t>(l), key));
    ENGINE_RETURN_IF_ERROR(set_kernels(program.layers[l], &choice, &layer.steps));
    decode.layers.push_back(std::move(layer));
  }
  ENGINE_ASSIGN_OR_RETURN(PlanLayer final_steps, fuse_final(program, key));
  decode.final_steps = std::move(final_steps.steps);
  ENGINE_RETURN_IF_ERROR(set_kernels(program.final_steps, &choice, &decode.final_steps));
  if (!key.kernel_pattern.empty() && !choice.any_forced()) {
    return error(Code::kPlan, absl::StrCat("the kernel pattern ", key.kernel_pattern,
                                           " matches no kernel of this model on target ",
                                           target_name(key.target)));
  }
  plan->prefill = decode;
  plan->prefill.n_tokens = key.prefill_chunk;
  // The reference takes one row of logits at a time.
  plan->prefill.n_head_rows = std::min(key.prefill_chunk, kHeadRows);
  finish_form(program, key, &plan->decode);
  finish_form(program, key, &plan->prefill);
  ENGINE_ASSIGN_OR_RETURN(plan->tensors, tensor_choices(program, &choice));
  plan->kv = kv_layout(program.kv, key.kv);
  ENGINE_RETURN_IF_ERROR(check_plan(program, *plan));
  return plan;
}

}  // namespace engine
