// The whole tree, and its sections that are not steps: tensors, KV, dispatch, provenance, hash.
#include "lib/plan/plan_json.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/plan/plan_tree.h"

namespace engine {
namespace {

Json tensors_tree(const Program& program, const Plan& plan) {
  Json tensors = Json::array();
  for (const TensorChoice& choice : plan.tensors) {
    const Weight& w = program.weights[static_cast<size_t>(choice.weight)];
    Json shape = {w.rows, w.cols};
    if (w.n_experts > 1) shape.insert(shape.begin(), w.n_experts);
    const auto row_name = [](int32_t row) {
      return row < 0 ? Json(nullptr) : Json(kernel_rows()[static_cast<size_t>(row)].name);
    };
    const bool is_packed =
        kernel_rows()[static_cast<size_t>(choice.kernel)].key.layout == Layout::kRows16;
    tensors.push_back({{"id", choice.weight},
                       {"name", w.name},
                       {"shape", shape},
                       {"dtype", format_info(w.format)->name},
                       {"layout", is_packed ? "repacked" : "stored"},
                       {"bytes", w.rows * w.row_bytes * w.n_experts},
                       {"op", op_name(choice.op)},
                       {"kernel", row_name(choice.kernel)},
                       {"runner_up", row_name(choice.runner_up)},
                       {"reason", choice.reason},
                       {"residency", is_packed ? "packed" : "mapped"}});
  }
  return tensors;
}

Json kv_tree(const Program& program, const Plan& plan) {
  Json layers = Json::array();
  for (size_t l = 0; l < program.kv.size(); ++l) {
    layers.push_back({{"n_kv_heads", program.kv[l].n_kv_heads},
                      {"head_dim_k", program.kv[l].head_dim_k},
                      {"head_dim_v", program.kv[l].head_dim_v},
                      {"k_offset_bytes", plan.kv.k_offset_bytes[l]},
                      {"v_offset_bytes", plan.kv.v_offset_bytes[l]}});
  }
  return {
      {"type", kv_type_name(plan.key.kv)},
      {"layout",
       "pages; per layer K [kv heads][head_dim_k][positions], V [kv heads][positions][head_dim_v]"},
      {"page_positions", plan.kv.page_positions},
      {"page_bytes", plan.kv.page_bytes},
      {"bytes_per_position", plan.kv.bytes_per_position},
      {"layers", std::move(layers)}};
}

// What the CPU must have, by Highway's definition of its targets.
std::vector<std::string> features(Target target) {
  switch (target) {
    case Target::kScalar: return {};
    case Target::kNeon: return {"neon"};
    case Target::kAvx2: return {"avx2", "bmi2", "f16c", "fma"};
    case Target::kAvx3: return {"avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"};
    case Target::kAvx3Dl:
      return {"avx512bitalg", "avx512bw", "avx512cd",    "avx512dq",   "avx512f",
              "avx512vbmi",   "avx512vl", "avx512vbmi2", "avx512vnni", "avx512vpopcntdq",
              "gfni",         "vaes",     "vpclmulqdq"};
    case Target::kAvx3Spr: {
      std::vector<std::string> all = features(Target::kAvx3Dl);
      all.insert(all.end(), {"avx512bf16", "avx512fp16"});
      return all;
    }
    case Target::kAmx: {
      std::vector<std::string> all = features(Target::kAvx3Spr);
      all.insert(all.begin(), {"amx_int8", "amx_tile"});
      return all;
    }
  }
  return {};
}

struct FormCounts {
  std::map<std::string, int64_t> kernels;  // kernel name -> operations that use it
  std::map<std::string, int64_t> splits;   // split -> launches
};

FormCounts count_form(const PlanForm& form) {
  FormCounts counts;
  const auto section = [&](const std::vector<PlanStep>& steps) {
    for (const PlanStep& step : steps) {
      ++counts.splits[std::string(split_name(step.split))];
      for (const int32_t row : step.kernels) {
        ++counts.kernels[kernel_rows()[static_cast<size_t>(row)].name];
      }
    }
  };
  section(form.preamble);
  for (const PlanLayer& layer : form.layers) section(layer.steps);
  section(form.final_steps);
  return counts;
}

// Operations, not calls: a batched operation counts once, the final ones as for one group of rows.
Json dispatch_tree(const Plan& plan) {
  const FormCounts decode = count_form(plan.decode), prefill = count_form(plan.prefill);
  std::map<std::string, std::pair<int64_t, int64_t>> both;
  for (const auto& [name, n] : decode.kernels) both[name].first = n;
  for (const auto& [name, n] : prefill.kernels) both[name].second = n;
  Json kernels = Json::array();
  for (const auto& [name, n] : both) {
    kernels.push_back({{"kernel", name}, {"per_token", n.first}, {"per_chunk", n.second}});
  }
  return {{"target", target_name(plan.key.target)},
          {"features", features(plan.key.target)},
          {"kernels", std::move(kernels)},
          {"thread_split", {{"decode", decode.splits}, {"prefill", prefill.splits}}}};
}

std::string build_id() {
  std::string names;
  for (const KernelRow& row : kernel_rows()) absl::StrAppend(&names, row.name, "\n");
  return hash_hex(hash128(names.data(), names.size()));
}

Json provenance_tree(const PlanKey& key, const PlanStamp& stamp) {
  return {{"engine_version", stamp.engine_version},
          {"compiler", __VERSION__},
          {"build_id", build_id()},
          {"mode", mode_name(key.mode)},
          {"limits",
           {{"n_ctx", key.n_ctx},
            {"prefill_chunk", key.prefill_chunk},
            {"n_threads", key.n_threads},
            {"fusions", fusion_names(key.fusions)},
            {"packed_weights", key.packed},
            {"kernel_pattern", key.kernel_pattern}}},
          {"time", stamp.time_s == 0 ? Json(nullptr) : Json(stamp.time_s)}};
}

}  // namespace

std::string dump_tree(const Json& tree) {
  return tree.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string tree_hash(Json tree) {
  tree.erase("hash");
  if (const auto it = tree.find("provenance"); it != tree.end() && it->is_object()) {
    it->erase("time");
  }
  const std::string text = dump_tree(tree);
  return hash_hex(hash128(text.data(), text.size()));
}

absl::StatusOr<Json> plan_tree(const Program& program, const Plan& plan,
                               const PlanModelFacts& facts, const PlanStamp& stamp) {
  Json tree = {{"schema", kPlanSchema},
               {"model", model_tree(facts)},
               {"tensors", tensors_tree(program, plan)},
               {"kv", kv_tree(program, plan)},
               {"dispatch", dispatch_tree(plan)},
               {"provenance", provenance_tree(plan.key, stamp)}};
  ENGINE_ASSIGN_OR_RETURN(tree["decode"], form_tree(program, plan.decode, plan.key));
  ENGINE_ASSIGN_OR_RETURN(tree["prefill"], form_tree(program, plan.prefill, plan.key));
  ENGINE_ASSIGN_OR_RETURN(tree["hooks"], hooks_tree(program, plan.key));
  // Once through text: replaced bytes and integer types are then those of a parsed plan.
  tree = Json::parse(dump_tree(tree), nullptr, false);
  tree["hash"] = tree_hash(tree);
  return tree;
}

absl::StatusOr<std::string> plan_json(const Program& program, const Plan& plan,
                                      const PlanModelFacts& facts, const PlanStamp& stamp) {
  ENGINE_ASSIGN_OR_RETURN(const Json tree, plan_tree(program, plan, facts, stamp));
  return dump_tree(tree);
}

}  // namespace engine
