// compile: kernels as the reference resolves them, forms, splits, patterns, keys; and the cache of plans.
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "catch2/catch_test_macros.hpp"
#include "lib/contract/derive.h"
#include "lib/plan/compile.h"
#include "lib/plan/plan_cache.h"
#include "tests/unit/toy_plan.h"

namespace engine {
namespace {

absl::Status compile_status(const Program& program, const PlanKey& key) {
  return compile(program, key).status();
}

Layout head_layout(const Plan& plan) {
  for (const PlanStep& step : plan.decode.final_steps) {
    for (const int32_t kernel : step.kernels) {
      const KernelRow& row = kernel_rows()[static_cast<size_t>(kernel)];
      if (row.key.op == Op::kMatmul) return row.key.layout;
    }
  }
  return Layout::kNone;
}

}  // namespace

TEST_CASE(
    "plans use the kernels that the reference resolves, or of any layout when they may pack") {
  for (const auto& [name, toy] : plan_toys()) {
    const auto model = make_plan_toy(toy);
    const Program& program = model->program;
    for (const Target target : cpu_targets()) {
      for (const bool packed : {false, true}) {
        PlanKey key = toy_key();
        key.target = target;
        key.packed = packed;
        const auto plan = must_compile(program, key);
        const auto compare = [&](const std::vector<Step>& section,
                                 const std::vector<PlanStep>& steps) {
          for (const PlanStep& step : steps) {
            REQUIRE(step.kernels.size() == step.steps.size());
            for (size_t i = 0; i < step.steps.size(); ++i) {
              const Step& s = section[static_cast<size_t>(step.steps[i])];
              KernelKey wanted = kernel_key(program, s, key.kv);
              const bool is_matmul = s.op == Op::kMatmul || s.op == Op::kMoeMatmul;
              if (packed && is_matmul) wanted.layout = Layout::kAny;
              // The toys' heads are tied: the embedding is read as the head is.
              if (s.op == Op::kEmbed && s.layer < 0) wanted.layout = head_layout(*plan);
              const auto resolved = resolve_kernel(wanted, target);
              REQUIRE(resolved.ok());
              CHECK(resolved->row_index == step.kernels[i]);
            }
          }
        };
        for (const PlanForm* form : {&plan->decode, &plan->prefill}) {
          compare(program.preamble, form->preamble);
          for (size_t l = 0; l < program.layers.size(); ++l) {
            compare(program.layers[l], form->layers[l].steps);
          }
          compare(program.final_steps, form->final_steps);
        }
      }
    }
  }
}

TEST_CASE("a tied embedding has a choice as embedding and one as head") {
  const auto toy = make_plan_toy(toy_of("llama", Format::kQ8_0));
  const auto plan = must_compile(toy->program, toy_key());
  std::set<std::pair<int32_t, Op>> seen;
  std::set<Op> of_embedding;
  for (const TensorChoice& choice : plan->tensors) {
    CHECK(seen.emplace(choice.weight, choice.op).second);
    CHECK_FALSE(choice.reason.empty());
    const Weight& w = toy->program.weights[static_cast<size_t>(choice.weight)];
    if (w.name == "token_embd.weight") of_embedding.insert(choice.op);
  }
  CHECK(of_embedding == std::set<Op>{Op::kEmbed, Op::kMatmul});
}

TEST_CASE("forms and splits") {
  ToyModel spec = toy_of("llama", Format::kQ8_0);
  spec.n_ff = 1024;  // gate and up above 64 KiB together, k and v far below
  const auto toy = make_plan_toy(spec);
  const auto split_of = [](const std::vector<PlanStep>& steps, StepKind kind) {
    for (const PlanStep& step : steps) {
      if (step.kind == kind) return step.split;
    }
    return Split::kNone;
  };
  const auto plan = must_compile(toy->program, toy_key(Mode::kPlannedFused, 4));
  CHECK(plan->decode.n_tokens == 1);
  CHECK(plan->decode.n_head_rows == 1);
  CHECK(plan->prefill.n_tokens == 16);
  CHECK(plan->prefill.n_head_rows == 8);
  const std::vector<PlanStep>& decode = plan->decode.layers[0].steps;
  CHECK(split_of(decode, StepKind::kNormRows) == Split::kNone);
  CHECK(split_of(decode, StepKind::kMatmulGroup) == Split::kNone);
  CHECK(split_of(decode, StepKind::kGateUp) == Split::kRows);
  CHECK(split_of(decode, StepKind::kStoreKv) == Split::kNone);
  CHECK(split_of(decode, StepKind::kAttentionQ) == Split::kItems);
  const std::vector<PlanStep>& prefill = plan->prefill.layers[0].steps;
  CHECK(split_of(prefill, StepKind::kNormRows) == Split::kTokens);
  CHECK(split_of(prefill, StepKind::kMatmulGroup) == Split::kRows);
  CHECK(split_of(prefill, StepKind::kMatmulAdd) == Split::kRows);
  CHECK(split_of(prefill, StepKind::kStoreKv) == Split::kTokens);
  CHECK(split_of(prefill, StepKind::kAttentionQ) == Split::kItems);
  for (const Mode mode : {Mode::kPlanned, Mode::kPlannedFused, Mode::kReference}) {
    const auto alone = must_compile(toy->program, toy_key(mode, 1));
    for (const PlanLayer& layer : alone->prefill.layers) {
      for (const PlanStep& step : layer.steps) CHECK(step.split == Split::kNone);
    }
  }
  const auto reference = must_compile(toy->program, toy_key(Mode::kReference, 4));
  for (const PlanStep& step : reference->decode.layers[0].steps) CHECK(step.split == Split::kNone);
  CHECK(reference->prefill.arena.bytes == 0);
  CHECK(reference->prefill.arena.regions.empty());
}

TEST_CASE("kernel patterns take effect or fail") {
  const auto toy = make_plan_toy(toy_of("llama", Format::kQ8_0));
  PlanKey key = toy_key();
  key.kernel_pattern = "matmul_q8_0_*__cpu_scalar";
  const auto plan = must_compile(toy->program, key);
  bool is_forced = false;
  for (const TensorChoice& choice : plan->tensors) {
    if (choice.op != Op::kMatmul) continue;
    is_forced = true;
    CHECK(std::string(kernel_rows()[static_cast<size_t>(choice.kernel)].name)
              .ends_with("cpu_scalar"));
    CHECK(choice.reason.starts_with("forced by pattern"));
  }
  CHECK(is_forced);
  for (const char* pattern : {"no_such_kernel*", "matmul_q6_k*"}) {
    key.kernel_pattern = pattern;
    const absl::Status status = compile_status(toy->program, key);
    CHECK(code_of(status) == Code::kPlan);
    CHECK(status.message().find(pattern) != std::string_view::npos);
  }
}

TEST_CASE("impossible keys are refused") {
  const auto toy = make_plan_toy(toy_of("llama", Format::kQ8_0));
  const auto refused = [&](void (*change)(PlanKey&)) {
    PlanKey key = toy_key();
    change(key);
    CHECK(code_of(compile_status(toy->program, key)) == Code::kArgument);
  };
  refused([](PlanKey& key) { key.n_threads = 0; });
  refused([](PlanKey& key) { key.n_threads = UINT32_MAX; });
  refused([](PlanKey& key) { key.prefill_chunk = 0; });
  refused([](PlanKey& key) { key.prefill_chunk = int64_t{1} << 40; });
  refused([](PlanKey& key) { key.n_ctx = 0; });
  refused([](PlanKey& key) { key.layer_sites = {0, 0}; });
  refused([](PlanKey& key) { key.layer_sites = {0, site_bit(Site::kQNorm), 0}; });
  refused([](PlanKey& key) { key.layer_sites = {0, site_bit(Site::kLogits), 0}; });
  refused([](PlanKey& key) { key.global_sites = site_bit(Site::kQ); });
  refused([](PlanKey& key) { key.global_sites = 1u << 31; });
}

TEST_CASE("the plan cache gives one plan per key and keeps the latest 64") {
  const auto toy = make_plan_toy(toy_of("llama", Format::kQ8_0));
  PlanCache cache;
  const auto get = [&](int64_t n_ctx) {
    PlanKey key = toy_key();
    key.n_ctx = n_ctx;
    auto plan = cache.get(toy->program, key);
    REQUIRE(plan.ok());
    return *plan;
  };
  const auto first = get(1);
  CHECK(get(1) == first);
  const auto second = get(2);
  CHECK(second != first);
  for (int64_t n = 3; n <= 64; ++n) get(n);
  CHECK(cache.size() == 64);
  CHECK(get(1) == first);  // used again, so the second is the oldest
  get(65);
  CHECK(cache.size() == 64);
  CHECK(get(1) == first);
  CHECK(get(2) != second);
  CHECK(second->key.n_ctx == 2);  // still whole for whoever holds it
  PlanKey bad = toy_key();
  bad.n_threads = 0;
  CHECK_FALSE(cache.get(toy->program, bad).ok());
  CHECK(cache.size() == 64);
}

TEST_CASE("the plan cache serves several threads") {
  const auto toy = make_plan_toy(toy_of("llama", Format::kQ8_0));
  PlanCache cache;
  std::vector<std::shared_ptr<const Plan>> seen(4 * 8);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (size_t i = 0; i < 8; ++i) {
        PlanKey key = toy_key();
        key.n_ctx = static_cast<int64_t>(1 + (i + t) % 8);
        auto plan = cache.get(toy->program, key);
        if (plan.ok()) seen[t * 8 + (i + t) % 8] = *plan;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < 8; ++i) {
    for (size_t t = 0; t < 4; ++t) {
      REQUIRE(seen[t * 8 + i] != nullptr);
      CHECK(seen[t * 8 + i] == seen[i]);
    }
  }
  CHECK(cache.size() == 8);
}

}  // namespace engine
