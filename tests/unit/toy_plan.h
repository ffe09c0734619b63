// Toys for the tests of plans: a model with its program, keys, and a compile that must succeed.
#ifndef ENGINE_TESTS_UNIT_TOY_PLAN_H_
#define ENGINE_TESTS_UNIT_TOY_PLAN_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "catch2/catch_test_macros.hpp"
#include "lib/plan/compile.h"
#include "lib/plan/lower.h"
#include "tests/unit/toy_model.h"

namespace engine {

struct PlanToy {
  std::vector<uint8_t> bytes;
  std::unique_ptr<Model> model;
  Program program;
};

inline std::unique_ptr<PlanToy> make_plan_toy(const ToyModel& toy) {
  auto out = std::make_unique<PlanToy>();
  out->bytes = toy.build();
  auto model = load_model(out->bytes, {});
  INFO(model.status().message());
  REQUIRE(model.ok());
  out->model = std::move(*model);
  auto program = lower(*out->model);
  INFO(program.status().message());
  REQUIRE(program.ok());
  out->program = std::move(*program);
  return out;
}

inline ToyModel toy_of(const std::string& arch, Format format) {
  ToyModel toy;
  toy.arch = arch;
  toy.n_layer = 3;
  toy.n_ff = 256;
  toy.matrix_format = format;
  if (arch == "gemma3" || arch == "gpt-oss") toy.window = 32;
  toy.fused = arch == "phi3";
  if (arch == "qwen3moe" || arch == "olmoe" || arch == "gpt-oss") toy.n_experts = 4;
  if (format == Format::kQ4_K) {  // rows of whole blocks
    toy.n_embd = 256;
    toy.n_head = 16;
  }
  return toy;
}

// q and k in Q4_K, v in Q8_0: the norm is quantised twice.
inline ToyModel mixed_toy(const std::string& arch) {
  ToyModel toy = toy_of(arch, Format::kQ4_K);
  toy.matrix_formats["attn_v"] = Format::kQ8_0;
  toy.biases = true;
  return toy;
}

inline std::vector<std::pair<std::string, ToyModel>> plan_toys() {
  return {{"llama F32", toy_of("llama", Format::kF32)},
          {"llama Q8_0", toy_of("llama", Format::kQ8_0)},
          {"llama Q4_0", toy_of("llama", Format::kQ4_0)},
          {"llama Q4_K", toy_of("llama", Format::kQ4_K)},
          {"llama mixed", mixed_toy("llama")},
          {"gemma3 F32", toy_of("gemma3", Format::kF32)},
          {"gemma3 Q8_0", toy_of("gemma3", Format::kQ8_0)},
          {"gemma3 mixed", mixed_toy("gemma3")},
          {"gemma4 Q8_0", toy_of("gemma4", Format::kQ8_0)},
          {"phi3 Q8_0", toy_of("phi3", Format::kQ8_0)},
          {"qwen3moe Q8_0", toy_of("qwen3moe", Format::kQ8_0)},
          {"olmoe F32", toy_of("olmoe", Format::kF32)},
          {"lfm2 Q8_0", toy_of("lfm2", Format::kQ8_0)},
          {"gpt-oss Q8_0", toy_of("gpt-oss", Format::kQ8_0)}};
}

inline PlanKey toy_key(Mode mode = Mode::kPlannedFused, uint32_t n_threads = 2) {
  PlanKey key;
  key.mode = mode;
  key.target = cpu_targets().front();
  key.n_ctx = 64;
  key.prefill_chunk = 16;
  key.n_threads = n_threads;
  return key;
}

// The key with hooks on one site in one layer; layer -1: a global site.
inline PlanKey hooked_key(const Program& program, PlanKey key, Site site, int32_t layer) {
  key.layer_sites.resize(program.layers.size(), 0);
  if (layer < 0) {
    key.global_sites |= site_bit(site);
  } else {
    key.layer_sites[static_cast<size_t>(layer)] |= site_bit(site);
  }
  return key;
}

inline std::shared_ptr<const Plan> must_compile(const Program& program, const PlanKey& key) {
  auto plan = compile(program, key);
  INFO(plan.status().message());
  REQUIRE(plan.ok());
  return *plan;
}

}  // namespace engine

#endif  // ENGINE_TESTS_UNIT_TOY_PLAN_H_
