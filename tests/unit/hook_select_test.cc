// Selectors: names, layers, heads, sequences, positions; each fault is named, each match is exact.
#include "lib/session/hook_select.h"

#include <limits>
#include <string>
#include <vector>

#include "catch2/catch_test_macros.hpp"
#include "tests/unit/hook_kit.h"

namespace engine {
namespace {

// Two layers with resid_post, the second with q_norm; logits outside.
Program small_program() {
  Program program;
  program.layers.resize(2);
  program.layer_sites.resize(2);
  for (SiteShapes& shapes : program.layer_sites) {
    shapes[static_cast<size_t>(Site::kResidPost)] = {0, 8, 0};
    shapes[static_cast<size_t>(Site::kQ)] = {1, 12, 4};
    shapes[static_cast<size_t>(Site::kAttnScores)] = {1, 0, 4};
  }
  program.layer_sites[1][static_cast<size_t>(Site::kQNorm)] = {1, 12, 4};
  program.global_sites[static_cast<size_t>(Site::kLogits)] = {2, 20, 0};
  return program;
}

std::string fault(const absl::Status& status) {
  CHECK(code_of(status) == Code::kArgument);
  return std::string(status.message());
}
bool says(const absl::Status& status, const std::string& text) {
  const std::string message = fault(status);
  INFO(message);
  return message.find(text) != std::string::npos;
}

TEST_CASE("near names come nearest first, aliases included") {
  CHECK(near_site_names("resid_pst").starts_with("resid_post, "));
  CHECK(near_site_names("residual-post-mpl").starts_with("residual-post-mlp, "));
  CHECK(near_site_names("attn_scorez").starts_with("attn_scores, "));
  CHECK(near_site_names("").size() > 3);
  CHECK(near_site_names(std::string(100000, 'x')).size() > 3);
}

TEST_CASE("sites and layers") {
  const Program program = small_program();
  const auto resolve = [&](const char* site, std::vector<int32_t> layers = {}, int32_t begin = 0,
                           int32_t end = 0) {
    HookSpec spec = hook_spec(HookAction::kZero, site, std::move(layers));
    spec.layer_begin = begin;
    spec.layer_end = end;
    return resolve_sites(program, spec);
  };
  using Layers = std::vector<int32_t>;
  CHECK(resolve("resid_post")->layers == Layers{0, 1});
  CHECK(resolve("residual-post-mlp")->site == Site::kResidPost);
  CHECK(resolve("q_norm")->layers == Layers{1});
  CHECK(resolve("resid_post", {1, 0, 1})->layers == Layers{0, 1});
  CHECK(resolve("resid_post", {}, 1, 2)->layers == Layers{1});
  CHECK(resolve("logits")->layers == Layers{-1});
  CHECK(resolve("logits", {-1})->layers == Layers{-1});

  CHECK(says(resolve("resid_pots").status(), "near names: resid_post"));
  CHECK(says(resolve("").status(), "there is no hook site"));
  CHECK(says(resolve("ffn_act").status(), "no value \"ffn_act\" in any layer"));
  CHECK(says(resolve("embed").status(), "no value \"embed\""));
  CHECK(says(resolve("resid_post", {2}).status(), "there is no layer 2"));
  CHECK(says(resolve("resid_post", {-1}).status(), "there is no layer -1"));
  CHECK(says(resolve("q_norm", {0}).status(), "layer 0 has no value \"q_norm\""));
  CHECK(says(resolve("q_norm", {}, 0, 2).status(), "layer 0 has no value"));
  CHECK(says(resolve("resid_post", {}, 1, 3).status(), "layers 1 <= l < 3"));
  CHECK(says(resolve("resid_post", {}, 1, 1).status(), "layers 1 <= l < 1"));
  CHECK(says(resolve("resid_post", {}, -1, 1).status(), "layers -1 <= l < 1"));
  CHECK(says(resolve("logits", {0}).status(), "outside the layers"));
  CHECK(says(resolve("logits", {}, 0, 1).status(), "outside the layers"));
}

TEST_CASE("select_sites adds to the masks") {
  const Program program = small_program();
  std::vector<SiteMask> layers;
  SiteMask global = 0;
  REQUIRE(select_sites(program, hook_spec(HookAction::kZero, "q_norm"), &layers, &global).ok());
  REQUIRE(select_sites(program, hook_spec(HookAction::kZero, "q", {0}), &layers, &global).ok());
  REQUIRE(select_sites(program, hook_spec(HookAction::kZero, "logits"), &layers, &global).ok());
  CHECK(layers == std::vector<SiteMask>{site_bit(Site::kQ), site_bit(Site::kQNorm)});
  CHECK(global == site_bit(Site::kLogits));
  const auto before = layers;
  CHECK_FALSE(select_sites(program, hook_spec(HookAction::kZero, "q", {5}), &layers, &global).ok());
  CHECK(layers == before);
}

TEST_CASE("heads become parts of the row") {
  const SiteShape q{1, 12, 4};
  const auto parts_of = [&](std::vector<int32_t> heads) {
    HookSpec spec;
    spec.heads = std::move(heads);
    return resolve_heads(spec, Site::kQ, q, 12);
  };
  CHECK(parts_of({})->empty());
  const auto apart = parts_of({3, 0});
  REQUIRE(apart->size() == 2);
  CHECK((*apart)[0].begin == 0);
  CHECK((*apart)[0].end == 3);
  CHECK((*apart)[1].begin == 9);
  CHECK((*apart)[1].end == 12);
  const auto joined = parts_of({2, 1, 2});
  REQUIRE(joined->size() == 1);
  CHECK((*joined)[0].begin == 3);
  CHECK((*joined)[0].end == 9);
  CHECK(says(parts_of({4}).status(), "there is no head 4"));
  CHECK(says(parts_of({-1}).status(), "there is no head -1"));
  HookSpec spec;
  spec.heads = {0};
  CHECK(says(resolve_heads(spec, Site::kResidPost, {0, 8, 0}, 8).status(), "no heads"));
}

TEST_CASE("sequences") {
  HookSpec spec;
  CHECK(check_sequences(spec, 3).ok());
  spec.sequences = {1, 3};
  CHECK(check_sequences(spec, 3).ok());
  CHECK(says(check_sequences(spec, 2), "do not contain 2"));
}

HookSpec positions_spec(PositionSelect select, std::vector<int64_t> list = {}, int64_t begin = 0,
                        int64_t end = 0, int64_t step = 0) {
  HookSpec spec;
  spec.select = select;
  spec.positions = std::move(list);
  spec.position_begin = begin;
  spec.position_end = end;
  spec.position_step = step;
  return spec;
}

std::vector<int64_t> matched(const HookSpec& spec, const CallSpan& call) {
  const auto selector = PositionSelector::create(spec, 100);
  REQUIRE(selector.ok());
  std::vector<int64_t> out;
  for (int64_t p = call.first_position; p < call.first_position + call.n_tokens; ++p) {
    if (selector->matches(p, call)) out.push_back(p);
  }
  return out;
}

TEST_CASE("positions are absolute") {
  using Select = PositionSelect;
  using Positions = std::vector<int64_t>;
  const CallSpan prompt{TokenKind::kPrompt, 10, 6, 0};
  const CallSpan part{TokenKind::kPromptPart, 10, 6, 0};
  const CallSpan generated{TokenKind::kGenerated, 10, 6, 8};
  CHECK(matched(positions_spec(Select::kAll), prompt) == Positions{10, 11, 12, 13, 14, 15});
  CHECK(matched(positions_spec(Select::kList, {15, 3, 11}), prompt) == Positions{11, 15});
  CHECK(matched(positions_spec(Select::kRange, {}, 12, 14), prompt) == Positions{12, 13});
  CHECK(matched(positions_spec(Select::kRange, {}, 14, 1000), prompt) == Positions{14, 15});
  CHECK(matched(positions_spec(Select::kEvery, {}, 0, 0, 5), prompt) == Positions{10, 15});
  CHECK(matched(positions_spec(Select::kLastOfPrompt), prompt) == Positions{15});
  CHECK(matched(positions_spec(Select::kLastOfPrompt), part).empty());
  CHECK(matched(positions_spec(Select::kLastOfPrompt), generated).empty());
  CHECK(matched(positions_spec(Select::kGenerated), generated).size() == 6);
  CHECK(matched(positions_spec(Select::kGenerated), prompt).empty());
  CHECK(matched(positions_spec(Select::kGenerated, {}, 3, 5), generated) == Positions{11, 12});
  CHECK(matched(positions_spec(Select::kGenerated, {}, 0, 3), generated) == Positions{10});
}

TEST_CASE("position selectors that can match nothing, or say two things") {
  using Select = PositionSelect;
  const auto wrong = [](const HookSpec& spec) {
    return PositionSelector::create(spec, 100).status();
  };
  CHECK(says(wrong(positions_spec(Select::kList)), "empty"));
  CHECK(says(wrong(positions_spec(Select::kList, {1, 100})), "position 100 is outside 0 .. 99"));
  CHECK(says(wrong(positions_spec(Select::kList, {-1})), "position -1"));
  CHECK(says(wrong(positions_spec(Select::kRange)), "holds none"));
  CHECK(says(wrong(positions_spec(Select::kRange, {}, 5, 5)), "holds none"));
  CHECK(says(wrong(positions_spec(Select::kRange, {}, -2, 5)), "holds none"));
  CHECK(says(wrong(positions_spec(Select::kRange, {}, 100, 200)), "holds none"));
  CHECK(says(wrong(positions_spec(Select::kGenerated, {}, 4, 2)), "holds none"));
  CHECK(says(wrong(positions_spec(Select::kEvery)), "must be positive"));
  CHECK(says(wrong(positions_spec(Select::kEvery, {}, 0, 0, -3)), "must be positive"));
  CHECK(says(wrong(positions_spec(Select::kAll, {}, 0, 0, 3)), "not POSITIONS_EVERY"));
  CHECK(says(wrong(positions_spec(Select::kAll, {4})), "not POSITIONS_LIST"));
  CHECK(says(wrong(positions_spec(Select::kLastOfPrompt, {}, 1, 2)), "takes none"));
  CHECK(says(wrong(positions_spec(static_cast<Select>(6))), "position_select"));
  CHECK(says(wrong(positions_spec(static_cast<Select>(-1))), "position_select"));
  CHECK(PositionSelector::create(positions_spec(Select::kRange, {}, 99, 100), 100).ok());
}

}  // namespace
}  // namespace engine
