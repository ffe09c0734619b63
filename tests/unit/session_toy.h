// Sessions on toy models: a toy lowered, a session of any mode and setup, decoded logits, comparison by bits.
#ifndef ENGINE_TESTS_UNIT_SESSION_TOY_H_
#define ENGINE_TESTS_UNIT_SESSION_TOY_H_

#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "catch2/catch_test_macros.hpp"
#include "lib/plan/weight_store.h"
#include "lib/session/session.h"
#include "tests/unit/toy_plan.h"

namespace engine {

struct Toy : PlanToy {
  mutable WeightStore store;
};
inline std::unique_ptr<Toy> make_toy(const ToyModel& spec) {
  auto toy = std::make_unique<Toy>();
  static_cast<PlanToy&>(*toy) = std::move(*make_plan_toy(spec));
  return toy;
}

// Of gemma3 or gemma4, with layers of a short window.
inline ToyModel windowed_toy(const std::string& arch) {
  ToyModel toy;
  toy.arch = arch;
  toy.n_layer = 7;
  toy.window = 16;
  return toy;
}

inline absl::Status copy_bytes(const uint8_t* from, uint64_t n, uint8_t* to) {
  std::memcpy(to, from, n);
  return absl::OkStatus();
}

struct Setup {
  Mode mode = Mode::kPlannedFused;
  int64_t n_ctx = 300;
  int64_t chunk = 128;
  uint32_t threads = 1;
  KvType kv = KvType::kF16;
  Target target = cpu_targets().front();
  uint32_t fusions = kAllFusions;
  bool packed = true;
};

inline PlanKey key_of(const Setup& setup) {
  PlanKey key;
  key.mode = setup.mode;
  key.target = setup.target;
  key.kv = setup.kv;
  key.n_ctx = setup.n_ctx;
  key.prefill_chunk = setup.chunk;
  key.n_threads = setup.threads;
  key.fusions = setup.fusions;
  key.packed = setup.packed;
  return key;
}

inline std::unique_ptr<Session> make_session(const Toy& toy, const Setup& setup = {}) {
  auto pool = make_pool(setup.threads);
  REQUIRE(pool.ok());
  const auto plan = must_compile(toy.program, key_of(setup));
  auto packed = toy.store.prepare(toy.program, *plan, pool->get(), {}, nullptr, copy_bytes);
  REQUIRE(packed.ok());
  auto session = Session::create(toy.program, *packed, std::move(*pool), plan, {});
  INFO(session.status().message());
  REQUIRE(session.ok());
  return std::move(*session);
}

// Gives the session the plan of its present hooks, as the API does.
inline void replan(const Toy& toy, Session& session) {
  PlanKey key = session.plan().key;
  session.hooks().masks(&key.layer_sites, &key.global_sites);
  const absl::Status status = session.bind(must_compile(toy.program, key));
  INFO(status.message());
  REQUIRE(status.ok());
}

inline std::vector<int32_t> toy_ids(size_t n) {
  std::vector<int32_t> ids(n);
  for (size_t i = 0; i < n; ++i) ids[i] = static_cast<int32_t>((i * 37 + 11) % 320);
  return ids;
}

inline std::vector<float> decode_all(Session& session, const std::vector<int32_t>& ids) {
  std::vector<float> logits(ids.size() * static_cast<size_t>(session.program().n_vocab));
  const absl::Status status = session.decode(ids, logits.data(), true);
  INFO(status.message());
  REQUIRE(status.ok());
  return logits;
}

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

}  // namespace engine

#endif  // ENGINE_TESTS_UNIT_SESSION_TOY_H_
