// The sections of the tree that show what runs and where it lies: forms, hooks, model.
#include "lib/plan/plan_tree.h"

#include <charconv>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/plan/arena_layout.h"
#include "lib/plan/fuse.h"
#include "lib/plan/site_route.h"
#include "lib/plan/step_parts.h"

namespace engine {
namespace {

template <class T>
std::string number_text(T value) {
  char text[40];
  const std::to_chars_result end = std::to_chars(text, text + sizeof(text), value);
  return std::string(text, end.ptr);
}

class FormTree {
 public:
  FormTree(const Program& program, const PlanForm& form, const PlanKey& key)
      : program_(program), form_(form), key_(key) {}

  absl::StatusOr<Json> run() const {
    const FoldedTime time = folded_time(form_);
    Json layers = Json::array();
    for (size_t l = 0; l < form_.layers.size(); ++l) {
      const PlanLayer& layer = form_.layers[l];
      layers.push_back({{"layer", l},
                        {"steps", steps(program_.layers[l], layer.steps, time.layers_begin,
                                        key_.sites(static_cast<int32_t>(l)))},
                        {"fusions", fusions(layer, kAllFusions)}});
    }
    ENGINE_ASSIGN_OR_RETURN(const PlanLayer final_layer, fuse_final(program_, key_));
    return Json{{"n_tokens", form_.n_tokens},
                {"n_head_rows", form_.n_head_rows},
                {"preamble", steps(program_.preamble, form_.preamble, 0, key_.global_sites)},
                {"layers", std::move(layers)},
                {"final",
                 {{"steps", steps(program_.final_steps, form_.final_steps, time.final_begin,
                                  key_.global_sites)},
                  {"fusions", fusions(final_layer, kF1)}}},
                {"arena", arena()}};
  }

 private:
  std::string slot_name(int32_t slot) const {
    return slot < 0 ? "thread_scratch" : program_.slots[static_cast<size_t>(slot)].name;
  }

  static Json fusions(const PlanLayer& layer, uint32_t known) {
    Json list = Json::array();
    for (int f = 0; f < kNumFusions; ++f) {
      if ((known >> f & 1) == 0) continue;
      list.push_back({{"id", absl::StrCat("F", f + 1)},
                      {"on", (layer.fusions >> f & 1) != 0},
                      {"reason", layer.why_off[static_cast<size_t>(f)]}});
    }
    return list;
  }

  static Json active_sites(const std::vector<Site>& fires, SiteMask active) {
    Json names = Json::array();
    for (const Site site : fires) {
      if ((active & site_bit(site)) != 0) names.push_back(site_info(site).name);
    }
    return names;
  }

  Json steps(const std::vector<Step>& section, const std::vector<PlanStep>& plan_steps,
             int32_t begin, SiteMask active) const {
    Json list = Json::array();
    for (size_t p = 0; p < plan_steps.size(); ++p) {
      const PlanStep& step = plan_steps[p];
      Json parts = Json::array();
      for (size_t part = 0; part < step.steps.size(); ++part) {
        parts.push_back(operation(section, step, part, active));
      }
      list.push_back({{"time", begin + static_cast<int64_t>(p)},
                      {"kind", step_kind_name(step.kind)},
                      {"fusions", fusion_names(step.fusions)},
                      {"split", split_name(step.split)},
                      {"fused_from", std::move(parts)}});
    }
    return list;
  }

  Json operation(const std::vector<Step>& section, const PlanStep& plan_step, size_t part,
                 SiteMask active) const {
    const Step& step = section[static_cast<size_t>(plan_step.steps[part])];
    Json inputs = Json::array(), outputs = Json::array(), weights = Json::array();
    for (const int32_t slot : {step.in0, step.in1}) {
      if (slot >= 0) inputs.push_back(slot_name(slot));
    }
    if (step.out >= 0) outputs.push_back(slot_name(step.out));
    if (step.weight >= 0) weights.push_back(step.weight);
    return {{"step", plan_step.steps[part]},
            {"op", op_name(step.op)},
            {"inputs", std::move(inputs)},
            {"outputs", std::move(outputs)},
            {"stored", step.out >= 0 && part_is_stored(section, plan_step, part)},
            {"weights", std::move(weights)},
            {"kernel", kernel_rows()[static_cast<size_t>(plan_step.kernels[part])].name},
            {"hooks_before", active_sites(step.fires_before, active)},
            {"hooks_after", active_sites(step.fires_after, active)}};
  }

  static std::string life(const std::string& name, const Region& region) {
    return absl::StrCat(name, " is live in ", region.first_step, "..", region.last_step);
  }

  Json arena() const {
    Json regions = Json::array(), eliminated = Json::array();
    for (const Region& region : form_.arena.regions) {
      Json shares = Json::array();
      const std::string name = slot_name(region.slot);
      for (const Region& other : form_.arena.regions) {
        if (&other == &region || other.offset >= region.offset + region.bytes ||
            region.offset >= other.offset + other.bytes) {
          continue;
        }
        const std::string other_name = slot_name(other.slot);
        shares.push_back({{"region", other_name},
                          {"proof", absl::StrCat(life(name, region), ", ", life(other_name, other),
                                                 ": never at once")}});
      }
      regions.push_back({{"name", name},
                         {"offset", region.offset},
                         {"bytes", region.bytes},
                         {"first_step", region.first_step},
                         {"last_step", region.last_step},
                         {"shares_with", std::move(shares)}});
    }
    if (key_.mode != Mode::kReference) {
      for (size_t s = 0; s < program_.slots.size(); ++s) {
        if (form_.arena.slot_region[s] < 0 && static_cast<int32_t>(s) != program_.logits_slot) {
          eliminated.push_back(program_.slots[s].name);
        }
      }
    }
    return {{"bytes", form_.arena.bytes},
            {"alignment", kArenaAlignBytes},
            {"thread_scratch_bytes", form_.arena.thread_scratch_bytes},
            {"regions", std::move(regions)},
            {"eliminated", std::move(eliminated)}};
  }

  const Program& program_;
  const PlanForm& form_;
  const PlanKey& key_;
};

}  // namespace

absl::StatusOr<Json> form_tree(const Program& program, const PlanForm& form, const PlanKey& key) {
  return FormTree(program, form, key).run();
}

Json fusion_names(uint32_t fusions) {
  Json names = Json::array();
  for (int f = 0; f < kNumFusions; ++f) {
    if ((fusions >> f & 1) != 0) names.push_back(absl::StrCat("F", f + 1));
  }
  return names;
}

std::string_view scaling_name(RopeScaling scaling) {
  switch (scaling) {
    case RopeScaling::kNone: return "none";
    case RopeScaling::kLinear: return "linear";
    case RopeScaling::kYarn: return "yarn";
  }
  return "unknown";
}

std::string_view divisors_name(RopeDivisors divisors) {
  switch (divisors) {
    case RopeDivisors::kNone: return "none";
    case RopeDivisors::kFreqs: return "rope_freqs";
    case RopeDivisors::kFactors: return "rope_factors";
  }
  return "unknown";
}

std::string_view activation_name(FfnActivation activation) {
  switch (activation) {
    case FfnActivation::kSilu: return "silu";
    case FfnActivation::kGeluTanh: return "gelu_tanh";
    case FfnActivation::kSwigluClamped: return "swiglu_clamped";
  }
  return "unknown";
}

Json model_tree(const PlanModelFacts& facts) {
  const ModelConfig& c = facts.config;
  const auto text_or_null = [](const std::string& text) {
    return text.empty() ? Json(nullptr) : Json(text);
  };
  Json ropes = Json::array(), layers = Json::array();
  for (const RopeConfig& rope : c.ropes) {
    ropes.push_back({{"base", number_text(rope.base)},
                     {"factor", number_text(rope.factor)},
                     {"scaling", scaling_name(rope.scaling)},
                     {"n_ctx_original", rope.n_ctx_original},
                     {"mscale", number_text(rope.mscale)},
                     {"divisors", divisors_name(rope.divisors)}});
  }
  for (const LayerConfig& layer : c.layers) {
    layers.push_back({{"n_kv_heads", layer.n_kv_heads},
                      {"n_ff", layer.n_ff},
                      {"window", layer.window},
                      {"rope", layer.rope}});
  }
  return {{"architecture", c.architecture},
          {"name", c.name},
          {"n_embd", c.n_embd},
          {"n_layer", c.n_layer},
          {"n_head", c.n_head},
          {"head_dim_k", c.head_dim_k},
          {"head_dim_v", c.head_dim_v},
          {"n_rot", c.n_rot},
          {"n_vocab", c.n_vocab},
          {"n_ctx_train", c.n_ctx_train},
          {"norm_eps", number_text(c.norm_eps)},
          {"embed_scale", number_text(c.embed_scale)},
          {"score_scale", number_text(c.score_scale)},
          {"residual_scale", number_text(c.residual_scale)},
          {"logit_scale", number_text(c.logit_scale)},
          {"n_experts", c.n_experts},
          {"n_experts_used", c.n_experts_used},
          {"n_ff_expert", c.n_ff_expert},
          {"attn_softcap", number_text(c.attn_softcap)},
          {"final_softcap", number_text(c.final_softcap)},
          {"activation", activation_name(c.activation)},
          {"rope_pairing", c.pairing == Pairing::kAdjacent ? "adjacent" : "halves"},
          {"qk_norm", c.qk_norm},
          {"post_norms", c.post_norms},
          {"ropes", std::move(ropes)},
          {"layers", std::move(layers)},
          {"file_bytes", facts.file_bytes},
          {"file_hash_sampled", facts.file_hash_sampled},
          {"file_hash_full", text_or_null(facts.file_hash_full)},
          {"tensor_table_hash", facts.tensor_table_hash},
          {"tokenizer_hash", facts.tokenizer_hash}};
}

// One entry per site and way of serving it; layers [-1] are the steps outside the layers.
absl::StatusOr<Json> hooks_tree(const Program& program, const PlanKey& key) {
  Json hooks = Json::array();
  for (const SiteInfo& info : site_table()) {
    const auto n_layers = static_cast<int32_t>(program.layers.size());
    std::map<std::string, Json> entries;  // by how they are served
    for (int32_t l = info.per_layer ? 0 : -1; l < (info.per_layer ? n_layers : 0); ++l) {
      if ((key.sites(l) & site_bit(info.site)) == 0) continue;
      ENGINE_ASSIGN_OR_RETURN(const SiteRoute route, site_route(program, info.site, l, key));
      const SiteShapes& shapes =
          l < 0 ? program.global_sites : program.layer_sites[static_cast<size_t>(l)];
      const SiteShape& shape = shapes[static_cast<size_t>(info.site)];
      Json entry = {{"site", info.name},
                    {"route", site_route_name(route.kind)},
                    {"fusions", fusion_names(route.fusions)},
                    {"reason", route.reason},
                    {"tensor", program.slots[static_cast<size_t>(shape.slot)].name},
                    {"width", shape.width},
                    {"n_heads", shape.n_heads}};
      const std::string served = dump_tree(entry);
      const auto it = entries.try_emplace(served, std::move(entry)).first;
      it->second["layers"].push_back(l);
    }
    for (auto& [served, entry] : entries) hooks.push_back(std::move(entry));
  }
  return hooks;
}

}  // namespace engine
