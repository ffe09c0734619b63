// check_plan: accepts what compile makes, with any hooks, and sees every planted damage.
#include "lib/plan/plan_check.h"

#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "catch2/catch_test_macros.hpp"
#include "tests/unit/toy_plan.h"

namespace engine {
namespace {

struct Damage {
  const char* what;  // in the message
  std::function<void(const Program&, Plan&)> plant;
};

// The region of the slot of that name.
Region& region(const Program& program, PlanForm& form, const std::string& name) {
  for (Region& r : form.arena.regions) {
    if (r.slot >= 0 && program.slots[static_cast<size_t>(r.slot)].name == name) return r;
  }
  FAIL("no region " << name);
  return form.arena.regions.front();
}

PlanStep& step_of(PlanLayer& layer, StepKind kind) {
  for (PlanStep& step : layer.steps) {
    if (step.kind == kind) return step;
  }
  FAIL("no step of kind " << step_kind_name(kind));
  return layer.steps.front();
}

}  // namespace

TEST_CASE("plans of random hook sets pass the check") {
  std::mt19937 random(7);
  const auto toys = plan_toys();
  for (const auto& [name, toy] : toys) {
    const auto model = make_plan_toy(toy);
    const Program& program = model->program;
    for (int round = 0; round < 200; ++round) {
      PlanKey key = toy_key(Mode::kPlannedFused, 1 + random() % 4);
      key.fusions = random() % 3 == 0 ? random() & kAllFusions : uint32_t{kAllFusions};
      key.layer_sites.resize(program.layers.size(), 0);
      const uint32_t density = 1 + random() % 12;
      for (const SiteInfo& info : site_table()) {
        for (size_t l = 0; l < program.layers.size(); ++l) {
          const auto& shape = program.layer_sites[l][static_cast<size_t>(info.site)];
          if (shape.present() && random() % density == 0) key.layer_sites[l] |= site_bit(info.site);
        }
        const auto& shape = program.global_sites[static_cast<size_t>(info.site)];
        if (shape.present() && random() % density == 0) key.global_sites |= site_bit(info.site);
      }
      const auto plan = compile(program, key);
      INFO(name << ": " << plan.status().message());
      REQUIRE(plan.ok());
      REQUIRE(check_plan(program, **plan).ok());
    }
  }
}

TEST_CASE("every planted damage is caught") {
  const std::vector<Damage> damages = {
      {"share bytes while both live",
       [](const Program& p, Plan& plan) {
         region(p, plan.decode, "resid_mid").offset = region(p, plan.decode, "resid").offset;
       }},
      {"share bytes while both live",
       [](const Program& p, Plan& plan) {
         region(p, plan.prefill, "attn_z").offset = region(p, plan.prefill, "resid").offset;
       }},
      {"outside its lifetime",
       [](const Program& p, Plan& plan) { --region(p, plan.decode, "resid_mid").last_step; }},
      {"outside its lifetime",
       [](const Program& p, Plan& plan) { ++region(p, plan.decode, "resid_mid").first_step; }},
      {"outside its lifetime",
       [](const Program& p, Plan& plan) { --region(p, plan.decode, "resid").last_step; }},
      {"outside its lifetime",
       [](const Program& p, Plan& plan) { ++region(p, plan.decode, "rope_angles_0").first_step; }},
      {"is not aligned",
       [](const Program& p, Plan& plan) { region(p, plan.decode, "q").offset += 32; }},
      {"outside the arena", [](const Program&, Plan& plan) { plan.decode.arena.bytes -= 64; }},
      {"too small a region",
       [](const Program& p, Plan& plan) { region(p, plan.prefill, "q").bytes -= 64; }},
      {"thread scratch is too small",
       [](const Program&, Plan& plan) {
         plan.decode.arena.thread_scratch_bytes -= 64;
         for (Region& r : plan.decode.arena.regions) {
           if (r.slot == -1) r.bytes -= 2 * 64;
         }
       }},
      {"thread scratch is too small or not always",
       [](const Program&, Plan& plan) {
         for (Region& r : plan.prefill.arena.regions) {
           if (r.slot == -1) --r.last_step;
         }
       }},
      {"another kernel",
       [](const Program&, Plan& plan) { ++plan.decode.layers[1].steps[0].kernels[0]; }},
      {"lacks kernels",
       [](const Program&, Plan& plan) { plan.prefill.layers[1].steps[0].kernels.pop_back(); }},
      {"is missing", [](const Program&, Plan& plan) { plan.decode.layers[0].steps.pop_back(); }},
      {"twice",
       [](const Program&, Plan& plan) {
         plan.decode.layers[0].steps.push_back(plan.decode.layers[0].steps.back());
       }},
      {"runs before",
       [](const Program&, Plan& plan) {
         std::swap(plan.decode.layers[0].steps[0], plan.decode.layers[0].steps[1]);
       }},
      {"not the shape of its kind",
       [](const Program&, Plan& plan) {
         step_of(plan.decode.layers[0], StepKind::kGateUp).kind = StepKind::kMatmulGroup;
       }},
      {"not the shape of its kind",
       [](const Program&, Plan& plan) {
         PlanStep& step = step_of(plan.decode.layers[0], StepKind::kStoreKv);
         std::swap(step.steps.front(), step.steps.back());
       }},
      {"does not store",
       [](const Program& p, Plan& plan) {
         // The norm of the junction keeps its f32 value, but a single quantisation reads it.
         PlanLayer& layer = plan.decode.layers[0];
         for (size_t s = 0; s < layer.steps.size(); ++s) {
           PlanStep& step = layer.steps[s];
           if (step.kind != StepKind::kNormRows || step.steps.size() < 3) continue;
           PlanStep single;
           single.steps = {step.steps.back()};
           single.kernels = {step.kernels.back()};
           single.split = Split::kNone;
           step.steps.pop_back();
           step.kernels.pop_back();
           layer.steps.insert(layer.steps.begin() + static_cast<std::ptrdiff_t>(s) + 1, single);
           static_cast<void>(p);
           return;
         }
         FAIL("no such step");
       }},
      {"fusion bits", [](const Program&, Plan& plan) { plan.decode.layers[2].fusions = 0; }},
      {"without a reason",
       [](const Program&, Plan& plan) { plan.prefill.layers[2].why_off[1].clear(); }},
      {"wrong split",
       [](const Program&, Plan& plan) {
         step_of(plan.prefill.layers[0], StepKind::kNormRows).split = Split::kRows;
       }},
      {"tensors", [](const Program&, Plan& plan) { ++plan.tensors[3].kernel; }},
      {"kv", [](const Program&, Plan& plan) { plan.kv.k_offset_bytes[1] += 64; }},
      {"hook site attn_norm",
       [](const Program& p, Plan& plan) {
         plan.key.layer_sites.assign(p.layers.size(), site_bit(Site::kAttnNorm));
       }},
      {"hook site attn_out",
       [](const Program& p, Plan& plan) {
         plan.key.layer_sites.assign(p.layers.size(), site_bit(Site::kAttnOut));
       }},
      {"hook site k_rope",
       [](const Program& p, Plan& plan) {
         plan.key.layer_sites.assign(p.layers.size(), site_bit(Site::kKRope));
       }},
  };
  const auto toy = make_plan_toy(mixed_toy("llama"));
  const auto good = must_compile(toy->program, toy_key());
  for (size_t d = 0; d < damages.size(); ++d) {
    Plan bad = *good;
    damages[d].plant(toy->program, bad);
    const absl::Status status = check_plan(toy->program, bad);
    CAPTURE(d, damages[d].what, std::string(status.message()));
    CHECK(code_of(status) == Code::kPlan);
    CHECK(status.message().find(damages[d].what) != std::string_view::npos);
  }
}

TEST_CASE("regions share memory and the arena is smaller than their sum") {
  for (const auto& [name, toy] : plan_toys()) {
    const auto model = make_plan_toy(toy);
    for (const Mode mode : {Mode::kPlanned, Mode::kPlannedFused}) {
      const auto plan = must_compile(model->program, toy_key(mode));
      for (const PlanForm* form : {&plan->decode, &plan->prefill}) {
        int64_t sum = 0;
        for (const Region& r : form->arena.regions) sum += r.bytes;
        CAPTURE(name, mode_name(mode));
        CHECK(form->arena.bytes < sum);
      }
    }
    const auto planned = must_compile(model->program, toy_key(Mode::kPlanned));
    const auto fused = must_compile(model->program, toy_key());
    CHECK(fused->prefill.arena.regions.size() < planned->prefill.arena.regions.size());
  }
}

}  // namespace engine
