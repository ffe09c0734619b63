// Opening toys: case 11 (hyper-parameters that break the maths), 14, 15, 16, 19, 22, 23, 25, and the bindings.
#include "lib/model/model_load.h"

#include <cmath>
#include <limits>
#include <string>
#include <string_view>

#include "catch2/catch_test_macros.hpp"
#include "catch2/matchers/catch_matchers_string.hpp"
#include "tests/unit/toy_model.h"

namespace engine {
namespace {

using Catch::Matchers::ContainsSubstring;

struct Loaded {
  std::vector<uint8_t> bytes;
  absl::StatusOr<std::unique_ptr<Model>> model;
};

Loaded load(const ToyModel& toy, LoadOptions options = {}) {
  Loaded out{toy.build(), nullptr};
  out.model = load_model(out.bytes, options);
  return out;
}

// Opening must fail with this code, name this key or tensor, and say this.
void check_refused(const ToyModel& toy, Code code, const std::string& name,
                   const std::string& text) {
  const Loaded loaded = load(toy);
  INFO(name << " expects: " << text);
  REQUIRE_FALSE(loaded.model.ok());
  INFO(loaded.model.status().message());
  CHECK(code_of(loaded.model.status()) == code);
  CHECK(where_of(loaded.model.status()).name == name);
  CHECK_THAT(std::string(loaded.model.status().message()), ContainsSubstring(text));
}

ToyModel with_i64(const std::string& key, int64_t value) {
  ToyModel toy;
  toy.set_i64 = {{key, value}};
  return toy;
}

TEST_CASE("a toy opens and its dimensions are read") {
  const Loaded loaded = load(ToyModel{});
  INFO(loaded.model.status().message());
  REQUIRE(loaded.model.ok());
  const Model& m = **loaded.model;
  CHECK(m.config.n_layer == 2);
  CHECK(m.config.n_vocab == 320);
  CHECK(m.config.n_rot == 16);
  CHECK(m.config.layers[1].n_kv_heads == 2);
  CHECK(m.weights.head_is_tied);
  CHECK(m.weights.head.data == m.weights.embed.data);
  CHECK(m.tokenizer != nullptr);
}

TEST_CASE("case 11: hyper-parameters that pass the parser and break the maths are named errors") {
  check_refused(with_i64("block_count", 0), Code::kModelKey, "llama.block_count", "outside");
  check_refused(with_i64("attention.head_count", 0), Code::kModelKey, "llama.attention.head_count",
                "outside");
  check_refused(with_i64("attention.head_count_kv", 3), Code::kModelKey,
                "llama.attention.head_count_kv", "does not divide");
  check_refused(with_i64("attention.head_count_kv", 8), Code::kModelKey,
                "llama.attention.head_count_kv", "does not divide");
  check_refused(with_i64("rope.dimension_count", 7), Code::kModelKey, "llama.rope.dimension_count",
                "odd");
  check_refused(with_i64("rope.dimension_count", 18), Code::kModelKey, "llama.rope.dimension_count",
                "above the head size");
  check_refused(with_i64("context_length", 0), Code::kModelKey, "llama.context_length", "outside");
  check_refused(with_i64("block_count", -1), Code::kModelKey, "llama.block_count", "outside");
  ToyModel experts;
  experts.n_experts = 8;
  experts.skip = {"expert_used_count"};
  check_refused(experts, Code::kModelKey, "llama.expert_used_count", "missing");
  experts.arch = "gemma3";
  check_refused(experts, Code::kModelKey, "gemma3.expert_count", "mixture of experts");

  for (const float bad : {0.0f, -1.0f, std::numeric_limits<float>::quiet_NaN(),
                          std::numeric_limits<float>::infinity()}) {
    ToyModel toy;
    toy.set_f32 = {{"attention.layer_norm_rms_epsilon", bad}};
    check_refused(toy, Code::kModelKey, "llama.attention.layer_norm_rms_epsilon", "value is not");
  }
  ToyModel wrong_type;
  wrong_type.set_f32 = {{"block_count", 2.0f}};
  check_refused(wrong_type, Code::kModelKey, "llama.block_count", "");

  for (const char* key :
       {"block_count", "embedding_length", "context_length", "attention.head_count",
        "feed_forward_length", "attention.layer_norm_rms_epsilon"}) {
    ToyModel toy;
    toy.skip = {key};
    check_refused(toy, Code::kModelKey, std::string("llama.") + key, "missing");
  }
}

TEST_CASE("case 11: fewer layers of tensors than block_count lists what is missing") {
  check_refused(with_i64("block_count", 4), Code::kModelTensor, "blk.2.attn_norm.weight",
                "18 tensor problem(s)");
}

TEST_CASE("a missing head_count_kv means head_count; key_length defaults to E/H") {
  ToyModel toy;
  toy.skip = {"attention.head_count_kv", "attention.key_length", "attention.value_length"};
  toy.n_head_kv = 4;
  const Loaded loaded = load(toy);
  REQUIRE(loaded.model.ok());
  CHECK((*loaded.model)->config.layers[0].n_kv_heads == 4);
  CHECK((*loaded.model)->config.head_dim_k == 16);
}

TEST_CASE("an unknown architecture lists the known ones; a missing one is an error") {
  ToyModel toy;
  toy.arch = "mamba";
  check_refused(toy, Code::kModelArchitecture, "general.architecture",
                "known: llama, smollm3, qwen2, qwen3, gemma2, gemma3, gemma4, phi3, granite, "
                "qwen3moe, olmoe, gpt-oss, lfm2");
}

// A toy of every family that there is.
ToyModel family_toy(std::string_view arch) {
  ToyModel toy;
  toy.arch = std::string(arch);
  toy.fused = arch == "phi3";
  if (arch == "qwen3moe" || arch == "olmoe" || arch == "gpt-oss") toy.n_experts = 4;
  return toy;
}

TEST_CASE("case 14: the head is tied exactly when output.weight is absent, in gemma2 always") {
  for (const ArchSpec* arch : architectures()) {
    INFO(arch->name);
    ToyModel toy = family_toy(arch->name);
    const Loaded absent = load(toy);
    INFO(absent.model.status().message());
    REQUIRE(absent.model.ok());
    CHECK((*absent.model)->weights.head_is_tied);
    CHECK((*absent.model)->weights.n_unused_tensors == 0);
    toy.tied = false;
    const Loaded present = load(toy);
    REQUIRE(present.model.ok());
    const ModelWeights& w = (*present.model)->weights;
    CHECK(w.head_is_tied == (arch->name == "gemma2"));
    CHECK((w.head.data == w.embed.data) == (arch->name == "gemma2"));
  }
}

TEST_CASE("one tensor of q, k and v, and one of gate and up, are cut by rows") {
  const Loaded loaded = load(family_toy("phi3"));
  INFO(loaded.model.status().message());
  REQUIRE(loaded.model.ok());
  const LayerWeights& w = (*loaded.model)->weights.layers[1];
  CHECK(w.q.rows == 64);
  CHECK(w.k.rows == 32);
  CHECK(w.v.rows == 32);
  CHECK(w.k.data == w.q.data + 64 * w.q.row_bytes);
  CHECK(w.v.data == w.k.data + 32 * w.q.row_bytes);
  CHECK(w.up.data == w.gate.data + 96 * w.gate.row_bytes);
  CHECK(w.up.rows == 96);
}

TEST_CASE("experts: shapes, counts and what is missing") {
  ToyModel toy = family_toy("gpt-oss");
  const Loaded loaded = load(toy);
  INFO(loaded.model.status().message());
  REQUIRE(loaded.model.ok());
  const Model& m = **loaded.model;
  CHECK(m.config.n_experts == 4);
  CHECK(m.config.n_experts_used == 2);
  CHECK(m.config.n_ff_expert == 64);
  CHECK(m.weights.layers[0].down.n_experts == 4);
  CHECK(m.weights.layers[0].gate_bias.n_experts == 4);
  toy.skip = {"expert_feed_forward_length"};  // then the tensor's own
  CHECK((*load(toy).model)->config.n_ff_expert == 64);
  toy.skip = {"blk.1.attn_sinks.weight", "blk.1.ffn_up_exps.weight"};
  check_refused(toy, Code::kModelTensor, "blk.1.attn_sinks.weight",
                "blk.1.ffn_up_exps.weight: missing");
  toy = family_toy("olmoe");
  toy.set_i64 = {{"expert_count", 3}};
  check_refused(toy, Code::kModelTensor, "blk.0.ffn_gate_inp.weight", "expected [64, 3]");
  toy.set_i64 = {{"expert_used_count", 5}};
  check_refused(toy, Code::kModelKey, "olmoe.expert_used_count", "outside 1 .. 4");
}

TEST_CASE("rope scaling: kinds, factors, and what is refused") {
  ToyModel toy;
  toy.extra = [](GgufBuilder& b) { b.string("llama.rope.scaling.type", "dynamic"); };
  check_refused(toy, Code::kModelKey, "llama.rope.scaling.type", "known: none, linear, yarn");
  toy.extra = [](GgufBuilder& b) {
    b.string("llama.rope.scaling.type", "yarn");
    b.scalar<float>("llama.rope.scaling.factor", 4.0f);
  };
  const Loaded yarn = load(toy);
  REQUIRE(yarn.model.ok());
  const RopeConfig& rope = (*yarn.model)->config.ropes[0];
  CHECK(rope.scaling == RopeScaling::kYarn);
  CHECK(rope.n_ctx_original == 512);
  CHECK(std::fabs(rope.mscale - (0.1 * std::log(4.0) + 1.0)) < 1e-6);
  ToyModel long_only = family_toy("phi3");
  long_only.extra = [](GgufBuilder& b) {
    b.f32("rope_factors_long.weight", {8}, std::vector<float>(8, 2.0f));
  };
  check_refused(long_only, Code::kModelTensor, "rope_factors_short.weight", "missing");
}

TEST_CASE("lfm2: layers without KV heads are convolutions with taps by position") {
  ToyModel toy = family_toy("lfm2");
  const Loaded loaded = load(toy);
  INFO(loaded.model.status().message());
  REQUIRE(loaded.model.ok());
  const Model& m = **loaded.model;
  CHECK(m.config.layers[0].n_kv_heads == 2);
  CHECK(m.config.layers[1].n_kv_heads == 0);
  const LayerWeights& w = m.weights.layers[1];
  CHECK(w.conv_taps.rows == 3);
  CHECK(w.conv_taps.cols == 64);
  const auto* taps = reinterpret_cast<const float*>(w.conv_taps.data);
  CHECK(taps[2 * 64 + 5] == toy_noise(8, 3 * 5 + 2));
  CHECK(w.conv_u.data == w.conv_b.data + 2 * 64 * w.conv_b.row_bytes);
  CHECK_FALSE(w.q.present());
  toy.skip = {"shortconv.l_cache"};
  check_refused(toy, Code::kModelKey, "lfm2.shortconv.l_cache", "missing");
}

TEST_CASE("smollm3 does not rotate every fourth layer; granite needs its logit scale") {
  ToyModel toy = family_toy("smollm3");
  toy.n_layer = 8;
  const Loaded loaded = load(toy);
  REQUIRE(loaded.model.ok());
  for (size_t l = 0; l < 8; ++l) {
    CHECK((*loaded.model)->config.layers[l].rope == (l % 4 == 3 ? -1 : 0));
  }
  ToyModel granite = family_toy("granite");
  const Loaded scaled = load(granite);
  REQUIRE(scaled.model.ok());
  CHECK((*scaled.model)->config.logit_scale == 0.125f);
  granite.skip = {"logit_scale"};
  check_refused(granite, Code::kModelKey, "granite.logit_scale", "missing");
}

TEST_CASE("case 15: unknown tensors are counted, missing ones are listed together") {
  ToyModel extra;
  extra.extra = [](GgufBuilder& b) {
    b.f32("v.patch_embd.weight", {4}, {1, 2, 3, 4});
    b.f32("mm.0.weight", {2}, {1, 2});
    b.f32("blk.9.attn_q.weight", {2}, {1, 2});
  };
  const Loaded loaded = load(extra);
  REQUIRE(loaded.model.ok());
  CHECK((*loaded.model)->weights.n_unused_tensors == 3);

  ToyModel missing;
  missing.skip = {"blk.0.attn_k.weight", "blk.1.ffn_down.weight"};
  check_refused(missing, Code::kModelTensor, "blk.0.attn_k.weight",
                "blk.1.ffn_down.weight: missing");
}

TEST_CASE("case 16: rope_freqs of a wrong length is an error, of the right one is bound") {
  ToyModel toy;
  toy.rope_freqs = {1, 1, 1.7f, 4, 8, 8, 8, 8};
  const Loaded loaded = load(toy);
  REQUIRE(loaded.model.ok());
  CHECK((*loaded.model)->weights.rope_freqs.present());
  toy.rope_freqs.pop_back();
  check_refused(toy, Code::kModelTensor, "rope_freqs.weight", "expected 8 values");
}

TEST_CASE("case 23: more rows than tokens loads, fewer rows is an error with both numbers") {
  ToyModel more;
  more.n_tokens = 310;
  const Loaded loaded = load(more);
  REQUIRE(loaded.model.ok());
  CHECK((*loaded.model)->tokenizer->vocab_size() == 310);
  CHECK((*loaded.model)->config.n_vocab == 320);
  ToyModel fewer;
  fewer.n_vocab = 310;
  check_refused(fewer, Code::kModelTensor, "token_embd.weight", "310 rows for a vocabulary of 320");
}

TEST_CASE("case 25: norms of any float type and with trailing dimensions of one are accepted") {
  for (const uint32_t type : {0u, 1u, 30u}) {
    ToyModel toy;
    toy.vector_type = type;
    toy.norm_as_column = true;
    const Loaded loaded = load(toy);
    INFO(loaded.model.status().message());
    REQUIRE(loaded.model.ok());
    const auto* w = reinterpret_cast<const float*>((*loaded.model)->weights.output_norm.data);
    CHECK(w[0] > 0.7f);
    CHECK(w[63] < 1.3f);
  }
}

TEST_CASE("wrong shapes name the tensor, what was found and what is expected") {
  ToyModel toy;
  toy.skip = {"blk.1.attn_v.weight"};
  toy.extra = [](GgufBuilder& b) {
    b.f32("blk.1.attn_v.weight", {64, 31}, std::vector<float>(64 * 31));
  };
  check_refused(toy, Code::kModelTensor, "blk.1.attn_v.weight",
                "shape [64, 31], expected [64, 32]");
}

TEST_CASE("gemma3: pattern key as number and as array, bases and windows per layer") {
  ToyModel toy;
  toy.arch = "gemma3";
  toy.n_layer = 7;
  toy.window = 16;
  const Loaded six = load(toy);
  REQUIRE(six.model.ok());
  for (size_t l = 0; l < 7; ++l) {
    const LayerConfig& layer = (*six.model)->config.layers[l];
    CHECK(layer.window == (l == 5 ? 0 : 16));
    CHECK(layer.rope == (l == 5 ? 0 : 1));
  }
  toy.extra = [](GgufBuilder& b) {
    b.array<bool>("gemma3.attention.sliding_window_pattern",
                  {true, false, true, false, true, false, true});
  };
  const Loaded listed = load(toy);
  REQUIRE(listed.model.ok());
  for (size_t l = 0; l < 7; ++l)
    CHECK((*listed.model)->config.layers[l].window == (l % 2 == 0 ? 16 : 0));
}

TEST_CASE("vocabulary-only and metadata-only opens need no weights") {
  ToyModel toy;
  toy.skip = {"blk.0.attn_k.weight"};
  LoadOptions options;
  options.vocab_only = true;
  const Loaded vocab = load(toy, options);
  REQUIRE(vocab.model.ok());
  CHECK((*vocab.model)->tokenizer != nullptr);
  CHECK_FALSE((*vocab.model)->has_weights);
  options = {};
  options.metadata_only = true;
  const Loaded meta = load(toy, options);
  REQUIRE(meta.model.ok());
  CHECK((*meta.model)->tokenizer == nullptr);
}

}  // namespace
}  // namespace engine
