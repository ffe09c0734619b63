// Stored plans: canonical and stable, verified, every changed value found, hostile texts refused, compared.
#include "lib/plan/plan_json.h"

#include <string>
#include <vector>

#include "catch2/catch_test_macros.hpp"
#include "lib/plan/plan_diff.h"
#include "lib/plan/plan_tree.h"
#include "lib/plan/plan_verify.h"
#include "tests/unit/toy_plan.h"

namespace engine {
namespace {

constexpr char kVersion[] = "0.1.0-test";

std::string json_of(const PlanToy& toy, const PlanKey& key, int64_t time_s = 0, bool full = false) {
  const auto plan = must_compile(toy.program, key);
  const auto text = plan_json(toy.program, *plan, plan_model_facts(*toy.model, toy.bytes, full),
                              {kVersion, time_s});
  REQUIRE(text.ok());
  return *text;
}

absl::Status verify(const PlanToy& toy, const std::string& json) {
  return verify_plan(json, *toy.model, toy.program, kVersion);
}

PlanKey hooked(const PlanToy& toy) {
  PlanKey key = hooked_key(toy.program, toy_key(), Site::kAttnOut, 1);
  key = hooked_key(toy.program, key, Site::kAttnOut, 2);
  key = hooked_key(toy.program, key, Site::kAttnScores, 0);
  return hooked_key(toy.program, key, Site::kFinalNorm, -1);
}

// Every leaf of a tree with its path.
void leaves(Json& node, const std::string& path, std::vector<std::pair<std::string, Json*>>* out) {
  if (node.is_structured() && !node.empty()) {
    for (auto it = node.begin(); it != node.end(); ++it) {
      const std::string name =
          node.is_object() ? it.key() : std::to_string(std::distance(node.begin(), it));
      leaves(*it, path + "/" + name, out);
    }
    return;
  }
  out->emplace_back(path, &node);
}

void change(Json& value) {
  if (value.is_number_unsigned()) {
    value = value.get<uint64_t>() + 1;
  } else if (value.is_number_integer()) {
    value = value.get<int64_t>() - 1;
  } else if (value.is_boolean()) {
    value = !value.get<bool>();
  } else if (value.is_string()) {
    value = value.get<std::string>() + "x";
  } else {
    value = "changed";
  }
}

}  // namespace

TEST_CASE("a plan's JSON is canonical, stable and hashed without its time") {
  for (const auto& [name, spec] : plan_toys()) {
    const auto toy = make_plan_toy(spec), again = make_plan_toy(spec);
    CAPTURE(name);
    const std::string text = json_of(*toy, hooked(*toy));
    CHECK(text == json_of(*again, hooked(*again)));
    const Json tree = Json::parse(text);
    CHECK(dump_tree(tree) == text);
    CHECK(tree["schema"] == "engine.plan/1");
    CHECK(tree["hash"] == tree_hash(tree));
    CHECK(tree["hash"].get<std::string>().size() == 32);
    CHECK(text.find("e+") == std::string::npos);
    const Json later = Json::parse(json_of(*toy, hooked(*toy), 1790000000));
    CHECK(later["provenance"]["time"] == 1790000000);
    CHECK(later["hash"] == tree["hash"]);
    CHECK(Json::parse(json_of(*toy, toy_key()))["hash"] != tree["hash"]);
    for (const char* section :
         {"model", "tensors", "decode", "prefill", "kv", "hooks", "dispatch", "provenance"}) {
      CHECK(tree.contains(section));
    }
  }
}

TEST_CASE("a stored plan shows decisions and proofs") {
  const auto toy = make_plan_toy(toy_of("llama", Format::kQ8_0));
  const Json tree = Json::parse(json_of(*toy, hooked(*toy)));
  CHECK(tree["decode"]["layers"][1]["fusions"][4]["id"] == "F5");
  CHECK(tree["decode"]["layers"][1]["fusions"][4]["on"] == true);  // the down projection still adds
  CHECK(tree["decode"]["layers"][1]["fusions"][4]["reason"] ==
        "a hook on attn_out needs the result of the output projection");
  Json routes;
  for (const Json& hook : tree["hooks"]) routes[hook["site"].get<std::string>()] = hook;
  CHECK(routes["attn_out"]["route"] == "de-fused");
  CHECK(routes["attn_out"]["layers"] == Json({1, 2}));
  CHECK(routes["attn_out"]["fusions"] == Json({"F5"}));
  CHECK(routes["attn_scores"]["route"] == "copy-out");
  CHECK(routes["final_norm"]["layers"] == Json({-1}));
  size_t n_shares = 0;
  for (const Json& region : tree["prefill"]["arena"]["regions"]) {
    for (const Json& share : region["shares_with"]) {
      ++n_shares;
      CHECK(share["proof"].get<std::string>().ends_with(": never at once"));
    }
  }
  CHECK(n_shares > 0);
  CHECK(tree["decode"]["layers"][1]["steps"][0]["fused_from"][0]["op"] == "rms_norm");
}

TEST_CASE("a stored plan verifies itself, with and without the full file hash") {
  for (const auto& [name, spec] : plan_toys()) {
    const auto toy = make_plan_toy(spec);
    CAPTURE(name);
    for (const Mode mode : {Mode::kReference, Mode::kPlanned, Mode::kPlannedFused}) {
      CHECK(verify(*toy, json_of(*toy, toy_key(mode), 5)).ok());
    }
    const absl::Status status = verify(*toy, json_of(*toy, hooked(*toy), 7, true));
    INFO(status.message());
    CHECK(status.ok());
  }
}

TEST_CASE("a changed value is found, whether or not the hash was made to fit") {
  const auto toy = make_plan_toy(mixed_toy("llama"));
  Json tree = Json::parse(json_of(*toy, hooked(*toy), 5, true));
  std::vector<std::pair<std::string, Json*>> all;
  leaves(tree, "", &all);
  REQUIRE(all.size() > 1000);
  size_t n_checked = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    const auto& [path, value] = all[i];
    const bool is_in_layer =
        path.find("/layers/") != std::string::npos || path.starts_with("/tensors/");
    if (is_in_layer && i % 61 != 0) continue;
    if (path == "/provenance/time" || path == "/hash") continue;
    const Json old = *value;
    change(*value);
    CAPTURE(path);
    const absl::Status damaged = verify(*toy, tree.dump());
    CHECK_FALSE(damaged.ok());
    if (path != "/schema") CHECK(damaged.message().find("hash is") != std::string_view::npos);
    // With a fitting hash it is another, true plan: nothing else in it depends on n_ctx.
    if (path != "/provenance/limits/n_ctx") {
      Json forged = tree;
      forged["hash"] = tree_hash(forged);
      CHECK_FALSE(verify(*toy, forged.dump()).ok());
    }
    *value = old;
    ++n_checked;
  }
  CHECK(n_checked > 200);
  CHECK(verify(*toy, tree.dump()).ok());
  tree["hash"] = std::string(32, '0');
  CHECK(code_of(verify(*toy, tree.dump())) == Code::kArgument);
}

TEST_CASE("verification names the first difference and both values") {
  const auto toy = make_plan_toy(toy_of("llama", Format::kQ8_0));
  const std::string good = json_of(*toy, toy_key());
  const auto forge = [&](auto&& edit) {
    Json tree = Json::parse(good);
    edit(tree);
    tree["hash"] = tree_hash(tree);
    return verify(*toy, tree.dump());
  };
  const absl::Status split =
      forge([](Json& tree) { tree["decode"]["layers"][1]["steps"][2]["split"] = "rows"; });
  CHECK(code_of(split) == Code::kPlan);
  CHECK(split.message() ==
        "the plan differs at decode.layers[1].steps[2].split: stored \"rows\", now \"none\"");
  const absl::Status overlap = forge([](Json& tree) {
    for (Json& region : tree["prefill"]["arena"]["regions"]) region["offset"] = 0;
  });
  CHECK(code_of(overlap) == Code::kPlan);
  CHECK(overlap.message().find("share bytes while both live") != std::string_view::npos);
  const absl::Status extra = forge([](Json& tree) { tree["model"]["zzz"] = 1; });
  CHECK(extra.message() == "the plan differs at model.zzz: stored 1, now nothing");
  const absl::Status less = forge([](Json& tree) { tree["kv"].erase("page_bytes"); });
  CHECK(less.message().starts_with("the plan differs at kv.page_bytes: stored nothing, now "));
  const auto other = make_plan_toy(toy_of("llama", Format::kQ4_0));
  CHECK(code_of(verify(*other, good)) == Code::kPlan);
}

TEST_CASE("texts that are no plan are refused") {
  const auto toy = make_plan_toy(toy_of("llama", Format::kQ8_0));
  const std::string good = json_of(*toy, toy_key());
  const auto code = [&](const std::string& text) {
    CHECK(code_of(diff_plans(text, good).status()) == code_of(diff_plans(good, text).status()));
    return code_of(verify(*toy, text));
  };
  CHECK(code("") == Code::kArgument);
  CHECK(code("{") == Code::kArgument);
  CHECK(code("[]") == Code::kArgument);
  CHECK(code("{}") == Code::kArgument);
  CHECK(code("{\"schema\":1}") == Code::kArgument);
  CHECK(code("{\"schema\":\"engine.plan/2\"}") == Code::kTooNew);
  CHECK(code("{\"schema\":\"other/1\"}") == Code::kArgument);
  CHECK(code("{\"schema\":\"engine.plan/1\"}") == Code::kArgument);
  CHECK(code(std::string(1000000, '[')) == Code::kArgument);
  CHECK(code("{\"schema\":\"engine.plan/1\",\"a\":\"\xff\xfe\"}") == Code::kArgument);
  CHECK(code(std::string("\0\0", 2)) == Code::kArgument);
  for (size_t n = 0; n < good.size(); n += 97) CHECK(code(good.substr(0, n)) == Code::kArgument);
  // Any type anywhere, with a fitting hash.
  Json tree = Json::parse(good);
  for (const char* section :
       {"model", "tensors", "decode", "prefill", "kv", "hooks", "dispatch", "provenance"}) {
    for (const Json& value :
         {Json(nullptr), Json(1), Json(-1.5), Json("x"), Json::array({1}), Json::object()}) {
      Json forged = tree;
      forged[section] = value;
      forged["hash"] = tree_hash(forged);
      CHECK_FALSE(verify(*toy, forged.dump()).ok());
      CHECK(diff_plans(forged.dump(), good).ok());
      CHECK(diff_plans(good, forged.dump()).ok());
    }
  }
}

TEST_CASE("a comparison says what differs and why") {
  const auto toy = make_plan_toy(toy_of("llama", Format::kQ8_0));
  const auto diff = [&](const PlanKey& a, const PlanKey& b) {
    const auto text = diff_plans(json_of(*toy, a, 1), json_of(*toy, b, 2));
    REQUIRE(text.ok());
    return *text;
  };
  const auto has = [](const std::string& text, const std::string& line) {
    INFO(text);
    CHECK(text.find(line) != std::string::npos);
  };
  CHECK(diff(hooked(*toy), hooked(*toy)).empty());

  const std::string hooks = diff(toy_key(), hooked(*toy));
  has(hooks,
      "hooks on attn_out: none -> layers 1-2, de-fused (F5: a hook on attn_out needs the result of "
      "the "
      "output projection)\n");
  has(hooks, "hooks on attn_scores: none -> layers 0, copy-out\n");
  has(hooks, "layers 1-2: F2: off -> on (was off: F5 adds in the output projection)\n");
  has(hooks,
      "layers 1-2: steps: matmul_add(matmul attn_out, add resid_mid); norm_rows(rms_norm ffn_norm, "
      "quantize ffn_norm.q8x32) -> matmul attn_out; norm_rows(add resid_mid, rms_norm ffn_norm, "
      "quantize "
      "ffn_norm.q8x32)\n");
  has(hooks, "decode final: F1: on -> off (a hook on final_norm needs the norm's f32 result)\n");

  const std::string modes = diff(toy_key(Mode::kPlanned), toy_key());
  has(modes, "provenance.mode: planned -> planned-fused\n");
  has(modes, "layers 0-2: F1: off -> on (was off: mode planned runs every operation by itself)\n");

  PlanKey forced = toy_key();
  forced.kernel_pattern = "matmul_*__cpu_scalar";
  const std::string kernels = diff(toy_key(), forced);
  has(kernels, "tensor blk.*.attn_q.weight matmul: kernel ");
  has(kernels, "(forced by pattern matmul_*__cpu_scalar for matmul of Q8_0 by q8x32");
  has(kernels, " (3 tensors)\n");
  has(kernels, "layers 0-2: kernel of matmul q: ");

  PlanKey wide = toy_key();
  wide.kv = KvType::kF32;
  wide.n_threads = 3;
  const std::string kv = diff(toy_key(), wide);
  has(kv, "kv.type: f16 -> f32\n");
  has(kv, "provenance.limits.n_threads: 2 -> 3\n");
  has(kv, "kv.layers[*].k_offset_bytes: ");
  has(kv, "decode memory of thread_scratch: ");
}

}  // namespace engine
