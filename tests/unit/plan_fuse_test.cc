// Which fusions are on in a layer, per toy and hook, and the reasons of those that are off.
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "catch2/catch_test_macros.hpp"
#include "lib/plan/fuse.h"
#include "lib/plan/site_route.h"
#include "tests/unit/toy_plan.h"

namespace engine {
namespace {

constexpr int32_t kHookedLayer = 1;

const PlanToy& toy_named(const std::string& name) {
  static std::map<std::string, std::unique_ptr<PlanToy>> toys;
  if (!toys.contains(name)) {
    for (const auto& [toy_name, toy] : plan_toys()) {
      if (toy_name == name) toys[name] = make_plan_toy(toy);
    }
  }
  return *toys.at(name);
}

char letter(const Program& program, const Step& step) {
  switch (step.op) {
    case Op::kRmsNorm: return step.heads > 1 ? 'h' : 'n';
    case Op::kQuantize: return 'q';
    case Op::kMatmul: return program.weights[static_cast<size_t>(step.weight)].rows > 0 ? 'm' : '?';
    case Op::kAdd: return step.weight >= 0 ? 'b' : 'a';
    case Op::kRope: return 'r';
    case Op::kKvStore: return 's';
    case Op::kAttention: return 't';
    case Op::kGatedAct: return 'g';
    case Op::kCheckFinite: return 'c';
    case Op::kShortConv: return 'k';
    case Op::kMoeRoute: return 'u';
    case Op::kMoeMatmul: return 'e';
    case Op::kMoeBias: return 'y';
    case Op::kMoeCombine: return 'w';
    case Op::kSoftcap: return 'x';
    case Op::kEmbed: return 'o';
    default: return '?';
  }
}

// "nq mmm ..." : the operations of each step of a layer.
std::string shape(const Program& program, const std::vector<Step>& section,
                  const std::vector<PlanStep>& steps) {
  std::string text;
  for (const PlanStep& step : steps) {
    if (!text.empty()) text += ' ';
    for (const int32_t i : step.steps) text += letter(program, section[static_cast<size_t>(i)]);
  }
  return text;
}

std::string fusion_text(uint32_t bits) {
  std::string text;
  for (int f = 0; f < kNumFusions; ++f) {
    if ((bits >> f & 1) != 0) text += static_cast<char>('1' + f);
  }
  return text;
}

struct Row {
  const char* toy;
  const char* site;  // "" = no hook
  const char* fusions;
  const char* steps;
  const char* reason;  // a part of some why_off
};

// n norm, h head norm, q quantise, m matmul, b bias, a residual add, r rope, s KV store, t attention,
// g gate, c check, u router's choice, e expert matmul, k short convolution, y expert bias, w weighted sum.
const Row kRows[] = {
    {"llama Q8_0", "", "13456", "nq mmm rs rt q ma nq mmgq ma c",
     "F5 adds in the output projection"},
    {"llama Q8_0", "resid_pre", "13456", "nq mmm rs rt q ma nq mmgq ma c", ""},
    {"llama Q8_0", "attn_norm", "13456", "n q mmm rs rt q ma nq mmgq ma c",
     "a hook on attn_norm needs the norm's f32 result"},
    {"llama Q8_0", "q", "13456", "nq mmm rs rt q ma nq mmgq ma c", ""},
    {"llama Q8_0", "k", "13456", "nq mmm rs rt q ma nq mmgq ma c", ""},
    {"llama Q8_0", "v", "13456", "nq mmm rs rt q ma nq mmgq ma c", ""},
    {"llama Q8_0", "q_rope", "1356", "nq mmm r r s t q ma nq mmgq ma c", "a hook on q_rope"},
    {"llama Q8_0", "k_rope", "1356", "nq mmm r r s t q ma nq mmgq ma c", "a hook on k_rope"},
    {"llama Q8_0", "attn_scores", "13456", "nq mmm rs rt q ma nq mmgq ma c", ""},
    {"llama Q8_0", "attn_pattern", "13456", "nq mmm rs rt q ma nq mmgq ma c", ""},
    {"llama Q8_0", "attn_z", "13456", "nq mmm rs rt q ma nq mmgq ma c", ""},
    {"llama Q8_0", "attn_out", "123456", "nq mmm rs rt q m anq mmgq ma c",
     "a hook on attn_out needs the result of the output projection"},
    {"llama Q8_0", "resid_mid", "13456", "nq mmm rs rt q ma nq mmgq ma c", ""},
    {"llama Q8_0", "ffn_norm", "13456", "nq mmm rs rt q ma n q mmgq ma c", "a hook on ffn_norm"},
    {"llama Q8_0", "ffn_gate", "1345", "nq mmm rs rt q ma nq mm g q ma c", "a hook on ffn_gate"},
    {"llama Q8_0", "ffn_up", "1345", "nq mmm rs rt q ma nq mm g q ma c", "a hook on ffn_up"},
    {"llama Q8_0", "ffn_act", "1345", "nq mmm rs rt q ma nq mm g q ma c", "a hook on ffn_act"},
    {"llama Q8_0", "ffn_out", "13456", "nq mmm rs rt q ma nq mmgq m a c",
     "a hook on ffn_out needs the result of the down projection"},
    {"llama Q8_0", "resid_post", "13456", "nq mmm rs rt q ma nq mmgq ma c", ""},
    // Two quantisations of the norm, pulled before the launch; biases inside.
    {"llama mixed", "", "13456", "nqq mbmbmb rs rt q ma nq mmgq ma c", ""},
    {"llama mixed", "attn_norm", "13456", "n q q mbmbmb rs rt q ma nq mmgq ma c", ""},
    // Nothing is quantised; a hook on ffn_act leaves F6 on.
    {"llama F32", "", "3456", "n mmm rs rt ma n mmg ma c",
     "attn_norm is read as f32 by blk.1.attn_q.weight (F32)"},
    {"llama F32", "ffn_act", "3456", "n mmm rs rt ma n mmg ma c", ""},
    {"llama F32", "ffn_up", "345", "n mmm rs rt ma n mm g ma c", ""},
    // Post-norms: no F5, so F2 with the post-norm; head norms inside F4.
    {"gemma3 Q8_0", "", "12346", "nq mmm hrs hrt q m nanq mmgq m n a c",
     "a post-norm stands between the output projection and the residual add"},
    {"gemma3 Q8_0", "attn_out", "1346", "nq mmm hrs hrt q m n a nq mmgq m n a c",
     "a hook on attn_out comes between the post-norm and the add"},
    {"gemma3 Q8_0", "resid_mid", "1346", "nq mmm hrs hrt q m n a nq mmgq m n a c",
     "a hook on resid_mid comes between the add and the norm"},
    {"gemma3 Q8_0", "ffn_norm", "12346", "nq mmm hrs hrt q m nan q mmgq m n a c", ""},
    {"gemma3 Q8_0", "q_norm", "1236", "nq mmm h h r r s t q m nanq mmgq m n a c", "q_norm"},
    {"gemma3 Q8_0", "k_norm", "1236", "nq mmm h h r r s t q m nanq mmgq m n a c", "k_norm"},
    {"gemma3 Q8_0", "ffn_out", "12346", "nq mmm hrs hrt q m nanq mmgq m n a c", ""},
    {"gemma3 F32", "", "2346", "n mmm hrs hrt m nan mmg m n a c", ""},
    {"gemma3 mixed", "", "12346", "nqq mbmbmb hrs hrt q m nanq mmgq m n a c", ""},
    // Values are normed by themselves; after the feed-forward an embedding and a scale of the layer's own.
    {"gemma4 Q8_0", "", "12346",
     "nq mmm h hrs hrt q m nanq mmgq m n a m x n o a x q m g q m n a x c",
     "a post-norm stands between"},
    // q, k, v and gate, up are rows of two tensors.
    {"phi3 Q8_0", "", "13456", "nq mmm rs rt q ma nq mmgq ma c", ""},
    // The router reads the norm as f32; experts are not joined.
    {"qwen3moe Q8_0", "", "1345", "nq mmm hrs hrt q ma n m u q e e g q e w a c",
     "gate and up are those of experts"},
    {"qwen3moe Q8_0", "ffn_act", "1345", "nq mmm hrs hrt q ma n m u q e e g q e w a c", ""},
    {"gpt-oss Q8_0", "", "1345", "nq mmm rs rt q ma n m b u q e y e y g q e y w a c",
     "ffn_out is a sum over experts"},
    // Layer 1 is a short convolution: three projections, product, store, convolution, product.
    {"lfm2 Q8_0", "", "156", "nq m m m g s k g q ma nq mmgq ma c",
     "the layer has no q/k norm and no rotation"},
    // Norms of whole vectors stay outside the attention.
    {"olmoe F32", "", "345", "n mmm n n rs rt ma n m u e e g e w a c", ""},
};

}  // namespace

TEST_CASE("fusions, steps and reasons of a layer by toy and hook") {
  for (const Row& row : kRows) {
    const Program& program = toy_named(row.toy).program;
    PlanKey key = toy_key();
    if (row.site[0] != '\0')
      key = hooked_key(program, key, find_site(row.site)->site, kHookedLayer);
    const auto plan = must_compile(program, key);
    const PlanLayer& layer = plan->decode.layers[kHookedLayer];
    CAPTURE(row.toy, row.site);
    CHECK(fusion_text(layer.fusions) == row.fusions);
    CHECK(shape(program, program.layers[kHookedLayer], layer.steps) == row.steps);
    std::string reasons;
    for (const std::string& why : layer.why_off) reasons += why + "\n";
    CAPTURE(reasons);
    CHECK(reasons.find(row.reason) != std::string::npos);
    // A hook takes apart its own layer only.
    const auto bare = must_compile(program, toy_key());
    for (const size_t l : {size_t{0}, size_t{2}}) {
      CHECK(shape(program, program.layers[l], plan->decode.layers[l].steps) ==
            shape(program, program.layers[l], bare->decode.layers[l].steps));
    }
  }
}

TEST_CASE("the final norm takes in its quantisation unless it is hooked") {
  const Program& program = toy_named("llama Q8_0").program;
  const auto final_shape = [&](const PlanKey& key) {
    return shape(program, program.final_steps, must_compile(program, key)->decode.final_steps);
  };
  CHECK(final_shape(toy_key()) == "nq m c");
  CHECK(final_shape(hooked_key(program, toy_key(), Site::kFinalNorm, -1)) == "n q m c");
  CHECK(final_shape(hooked_key(program, toy_key(), Site::kLogits, -1)) == "nq m c");
}

TEST_CASE("only allowed fusions are used and each can be switched off") {
  for (const auto& [name, toy] : plan_toys()) {
    const Program& program = toy_named(name).program;
    const uint32_t all = must_compile(program, toy_key())->decode.layers[0].fusions;
    for (uint32_t bits = 0; bits <= kAllFusions; ++bits) {
      PlanKey key = toy_key();
      key.fusions = bits;
      const auto plan = must_compile(program, key);
      const PlanLayer& layer = plan->decode.layers[0];
      CAPTURE(name, bits);
      CHECK((layer.fusions & ~bits) == 0);
      // Without F5 the junction is free for F2.
      CHECK((layer.fusions & ~uint32_t{kF2}) == (all & bits & ~uint32_t{kF2}));
      for (int f = 0; f < kNumFusions; ++f) {
        if ((bits >> f & 1) == 0) {
          CHECK(layer.why_off[static_cast<size_t>(f)] ==
                "it is switched off by a parameter of the session");
        }
      }
    }
  }
}

TEST_CASE("modes reference and planned run every operation by itself") {
  const Program& program = toy_named("llama mixed").program;
  for (const Mode mode : {Mode::kReference, Mode::kPlanned}) {
    const auto plan = must_compile(program, toy_key(mode));
    for (const PlanStep& step : plan->prefill.layers[0].steps) CHECK(step.steps.size() == 1);
    CHECK(plan->prefill.layers[0].steps.size() == program.layers[0].size());
    for (const std::string& why : plan->decode.layers[0].why_off) {
      CHECK(why == "mode " + std::string(mode_name(mode)) + " runs every operation by itself");
    }
  }
}

TEST_CASE("routes of sites") {
  const auto routes = default_routes(toy_named("llama Q8_0").program);
  REQUIRE(routes.ok());
  const auto kind = [&](Site site) { return (*routes)[static_cast<size_t>(site)].kind; };
  using Kind = SiteRoute::Kind;
  const std::map<Site, Kind> expected = {
      {Site::kEmbed, Kind::kMaterialised},     {Site::kResidPre, Kind::kMaterialised},
      {Site::kAttnNorm, Kind::kDefused},       {Site::kQ, Kind::kMaterialised},
      {Site::kK, Kind::kMaterialised},         {Site::kV, Kind::kMaterialised},
      {Site::kQNorm, Kind::kAbsent},           {Site::kKNorm, Kind::kAbsent},
      {Site::kQRope, Kind::kDefused},          {Site::kKRope, Kind::kDefused},
      {Site::kAttnScores, Kind::kCopyOut},     {Site::kAttnPattern, Kind::kCopyOut},
      {Site::kAttnZ, Kind::kMaterialised},     {Site::kAttnOut, Kind::kDefused},
      {Site::kResidMid, Kind::kMaterialised},  {Site::kFfnNorm, Kind::kDefused},
      {Site::kFfnGate, Kind::kDefused},        {Site::kFfnUp, Kind::kDefused},
      {Site::kFfnAct, Kind::kDefused},         {Site::kFfnOut, Kind::kDefused},
      {Site::kResidPost, Kind::kMaterialised}, {Site::kFinalNorm, Kind::kDefused},
      {Site::kLogitsRaw, Kind::kMaterialised}, {Site::kLogits, Kind::kMaterialised}};
  for (const auto& [site, route] : expected) {
    CAPTURE(site_info(site).name);
    CHECK(site_route_name(kind(site)) == site_route_name(route));
  }
  const SiteRoute& out = (*routes)[static_cast<size_t>(Site::kAttnOut)];
  CHECK(fusion_text(out.fusions) == "5");
  CHECK(out.reason == "F5: a hook on attn_out needs the result of the output projection");
}

}  // namespace engine
