// The parts of a plan that need no lifetimes: counts, kernels, splits, fusion bits.
#include "lib/plan/plan_check.h"

#include "absl/strings/str_cat.h"
#include "lib/contract/derive.h"
#include "lib/plan/kernel_choice.h"
#include "lib/plan/section_flow.h"
#include "lib/plan/split.h"

namespace engine {
namespace {

absl::Status fault(const std::string& where, std::string_view what) {
  return error(Code::kPlan, absl::StrCat("plan check: ", where, ": ", what));
}

class PlanCheck {
 public:
  PlanCheck(const Program& program, const Plan& plan)
      : program_(program),
        plan_(plan),
        carried_(carried_slots(program)),
        choice_(program, plan.key) {}

  absl::Status run() {
    const PlanKey& key = plan_.key;
    if (!key.layer_sites.empty() && key.layer_sites.size() != program_.layers.size()) {
      return fault("key", "hook sites of another number of layers");
    }
    if (plan_.decode.n_tokens != 1 || plan_.decode.n_head_rows != 1 ||
        plan_.prefill.n_tokens != key.prefill_chunk || plan_.prefill.n_head_rows < 1 ||
        plan_.prefill.n_head_rows > key.prefill_chunk) {
      return fault("forms", "wrong numbers of tokens");
    }
    ENGINE_RETURN_IF_ERROR(form(plan_.decode, "decode"));
    ENGINE_RETURN_IF_ERROR(form(plan_.prefill, "prefill"));
    ENGINE_RETURN_IF_ERROR(tensors());
    const KvLayout kv = kv_layout(program_.kv, key.kv);
    if (kv.page_bytes != plan_.kv.page_bytes || kv.k_offset_bytes != plan_.kv.k_offset_bytes ||
        kv.v_offset_bytes != plan_.kv.v_offset_bytes ||
        kv.bytes_per_position != plan_.kv.bytes_per_position ||
        kv.page_positions != plan_.kv.page_positions) {
      return fault("kv", "another layout than that of the program");
    }
    return absl::OkStatus();
  }

 private:
  absl::Status form(const PlanForm& form, const std::string& name) {
    if (form.layers.size() != program_.layers.size()) return fault(name, "wrong number of layers");
    const PlanKey& key = plan_.key;
    ENGINE_RETURN_IF_ERROR(section(program_.preamble, form.preamble, key.global_sites,
                                   form.n_tokens, name + " preamble"));
    for (size_t l = 0; l < form.layers.size(); ++l) {
      const std::string where = absl::StrCat(name, " layer ", l);
      const PlanLayer& layer = form.layers[l];
      ENGINE_RETURN_IF_ERROR(section(program_.layers[l], layer.steps,
                                     key.sites(static_cast<int32_t>(l)), form.n_tokens, where));
      ENGINE_RETURN_IF_ERROR(fusions(layer, where));
    }
    ENGINE_RETURN_IF_ERROR(section(program_.final_steps, form.final_steps, key.global_sites,
                                   form.n_head_rows, name + " final"));
    absl::Status arena = check_arena(program_, form, key);
    return arena.ok() ? arena : fault(name, arena.message());
  }

  absl::Status section(const std::vector<Step>& section, const std::vector<PlanStep>& steps,
                       SiteMask active, int64_t n_rows, const std::string& where) {
    ENGINE_RETURN_IF_ERROR(check_section(program_, section, steps, active, carried_, where));
    for (const PlanStep& step : steps) {
      if (step.kernels.size() != step.steps.size()) return fault(where, "a step lacks kernels");
      for (size_t part = 0; part < step.steps.size(); ++part) {
        const Step& program_step = section[static_cast<size_t>(step.steps[part])];
        ENGINE_ASSIGN_OR_RETURN(const Resolved* resolved, choice_.resolve(program_step));
        if (resolved->row_index != step.kernels[part]) {
          return fault(
              where, absl::StrCat(
                         "step ", step.steps[part], " (", op_name(program_step.op),
                         ") has another kernel than resolve_kernel gives: ", resolved->row->name));
        }
      }
      if (step.split != choose_split(program_, section, step, n_rows, plan_.key)) {
        return fault(where, absl::StrCat("step ", step.steps.front(), " has a wrong split"));
      }
      const uint32_t allowed = plan_.key.mode == Mode::kPlannedFused ? plan_.key.fusions : 0;
      if ((step.fusions & ~allowed) != 0) return fault(where, "a fusion that is not allowed");
      if ((step.kind == StepKind::kSingle) != (step.fusions == 0)) {
        return fault(where, "a fused step without a fusion, or a single one with");
      }
    }
    return absl::OkStatus();
  }

  static absl::Status fusions(const PlanLayer& layer, const std::string& where) {
    uint32_t bits = 0;
    for (const PlanStep& step : layer.steps) bits |= step.fusions;
    if (bits != layer.fusions) return fault(where, "its fusion bits are not those of its steps");
    for (int f = 0; f < kNumFusions; ++f) {
      if ((bits >> f & 1) == 0 && layer.why_off[static_cast<size_t>(f)].empty()) {
        return fault(where, absl::StrCat("F", f + 1, " is off without a reason"));
      }
    }
    return absl::OkStatus();
  }

  absl::Status tensors() {
    for (const TensorChoice& tensor : plan_.tensors) {
      const auto n_weights = static_cast<int32_t>(program_.weights.size());
      if (tensor.weight < 0 || tensor.weight >= n_weights)
        return fault("tensors", "no such weight");
    }
    const auto has = [&](const Step& step, int32_t row) {
      for (const TensorChoice& tensor : plan_.tensors) {
        if (tensor.weight == step.weight && tensor.op == step.op) return tensor.kernel == row;
      }
      return false;
    };
    const auto section = [&](const std::vector<Step>& steps) -> absl::Status {
      for (const Step& step : steps) {
        if (step.weight < 0) continue;
        ENGINE_ASSIGN_OR_RETURN(const Resolved* resolved, choice_.resolve(step));
        if (!has(step, resolved->row_index)) {
          return fault("tensors",
                       absl::StrCat(program_.weights[static_cast<size_t>(step.weight)].name,
                                    " has no entry or another kernel"));
        }
      }
      return absl::OkStatus();
    };
    ENGINE_RETURN_IF_ERROR(section(program_.preamble));
    for (const std::vector<Step>& layer : program_.layers) ENGINE_RETURN_IF_ERROR(section(layer));
    return section(program_.final_steps);
  }

  const Program& program_;
  const Plan& plan_;
  const std::vector<bool> carried_;
  KernelChoice choice_;
};

}  // namespace

absl::Status check_plan(const Program& program, const Plan& plan) {
  return PlanCheck(program, plan).run();
}

}  // namespace engine
