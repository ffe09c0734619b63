// Packed weights: every expert's matrix is packed on its own, and what is forecast is what is held.
#include <algorithm>
#include <cstring>
#include <vector>

#include "catch2/catch_test_macros.hpp"
#include "lib/quant/pack.h"
#include "tests/unit/session_toy.h"

namespace engine {
namespace {

TEST_CASE("packed matrices of all experts unpack to what is stored, and need what was forecast") {
  for (const auto& [name, spec] : plan_toys()) {
    for (const uint32_t threads : {1u, 2u}) {
      INFO(name << ", " << threads << " threads");
      const auto toy = make_toy(spec);
      auto pool = make_pool(threads);
      REQUIRE(pool.ok());
      PlanKey key = toy_key();
      key.n_threads = threads;
      const auto plan = must_compile(toy->program, key);
      const WeightStore::Need need = WeightStore::need(toy->program, *plan);
      const auto packed =
          toy->store.prepare(toy->program, *plan, pool->get(), {}, nullptr, copy_bytes);
      REQUIRE(packed.ok());
      uint64_t held = 0, stored_bytes = 0;
      for (size_t i = 0; i < toy->program.weights.size(); ++i) {
        const Weight& w = toy->program.weights[i];
        const PackedWeight& view = (*packed)[i];
        const auto matrix_bytes = static_cast<size_t>(w.rows * w.row_bytes);
        if (view.data == nullptr) {
          stored_bytes += matrix_bytes * static_cast<uint64_t>(w.n_experts);
          continue;
        }
        held += static_cast<uint64_t>(view.matrix_bytes * w.n_experts);
        std::vector<uint8_t> rows(matrix_bytes);
        for (int64_t expert = 0; expert < w.n_experts; ++expert) {
          INFO(w.name << ", expert " << expert);
          unpack_rows(w.format, view.data + expert * view.matrix_bytes, w.cols, 0, w.rows,
                      rows.data(), w.row_bytes);
          CHECK(std::memcmp(rows.data(), w.data + static_cast<size_t>(expert) * matrix_bytes,
                            matrix_bytes) == 0);
        }
      }
      CHECK(need.packed_bytes == held);
      CHECK(need.stored_bytes == stored_bytes);
      CHECK(toy->store.packed_bytes() >= held);
    }
  }
}

TEST_CASE("packing tells its progress within a large matrix, and never backwards") {
  ToyModel spec = toy_of("llama", Format::kQ8_0);
  spec.n_layer = 1;
  spec.n_ff = 65536;
  for (const uint32_t threads : {1u, 3u}) {
    const auto toy = make_toy(spec);
    auto pool = make_pool(threads);
    REQUIRE(pool.ok());
    PlanKey key = toy_key();
    key.n_threads = threads;
    const auto plan = must_compile(toy->program, key);
    std::vector<uint64_t> told;
    uint64_t total = 0;
    const auto progress = [&](uint64_t done, uint64_t all) {
      told.push_back(done);
      total = all;
    };
    REQUIRE(toy->store.prepare(toy->program, *plan, pool->get(), {}, progress, copy_bytes).ok());
    REQUIRE(told.size() > 2);
    CHECK(told.front() == 0);
    CHECK(told.back() == total);
    uint64_t longest = 0;
    for (size_t i = 1; i < told.size(); ++i) {
      REQUIRE(told[i] >= told[i - 1]);
      longest = std::max(longest, told[i] - told[i - 1]);
    }
    const auto matrix = static_cast<uint64_t>(spec.n_ff * spec.n_embd / 32 * 34);
    REQUIRE(matrix > (uint64_t{4} << 20));
    // With several threads others may do what the telling one, descheduled, does not.
    if (threads == 1) CHECK(longest <= uint64_t{3} << 20);
  }
}

TEST_CASE("a mixture of experts runs packed kernels") {
  const auto toy = make_toy(toy_of("qwen3moe", Format::kQ8_0));
  const auto plan = must_compile(toy->program, toy_key());
  const auto counts = [&](const PlanForm& form) {
    int64_t n = 0;
    for (size_t l = 0; l < form.layers.size(); ++l) {
      for (const PlanStep& step : form.layers[l].steps) {
        for (size_t i = 0; i < step.steps.size(); ++i) {
          const Step& s = toy->program.layers[l][static_cast<size_t>(step.steps[i])];
          const KernelRow& row = kernel_rows()[static_cast<size_t>(step.kernels[i])];
          if (s.op == Op::kMoeMatmul && row.key.layout == Layout::kRows16) ++n;
        }
      }
    }
    return n;
  };
  CHECK(counts(plan->decode) == 3 * 3);  // gate, up and down of three layers
  CHECK(counts(plan->prefill) == 3 * 3);
}

}  // namespace
}  // namespace engine
