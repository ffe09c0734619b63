// Cases 35, 37 and 38: what a session gives does not depend on company, chunks, forks, restored states, cached
// prefixes, failed calls or failed allocations; on toys of families with windows, experts, convolutions and keys that
// layers share.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <limits>
#include <thread>

#include "lib/session/batch.h"
#include "lib/session/snapshot.h"
#include "tests/unit/session_toy.h"

namespace engine {
namespace {

constexpr Hash128 kModel{11, 22};
constexpr size_t kPrompt = 70, kGreedy = 64;

ToyModel family(const std::string& arch, Format format) {
  ToyModel toy = toy_of(arch, format);
  toy.n_layer = arch == "gemma3" ? 7 : 3;
  return toy;
}

const std::vector<std::pair<std::string, ToyModel>>& families() {
  static const std::vector<std::pair<std::string, ToyModel>> all = {
      {"llama", family("llama", Format::kQ4_0)},
      {"gemma3", family("gemma3", Format::kF32)},
      {"gpt-oss", family("gpt-oss", Format::kQ8_0)},
      {"lfm2", family("lfm2", Format::kQ8_0)},
      {"gemma4", family("gemma4", Format::kQ8_0)}};
  return all;
}

std::vector<uint8_t> saved(const Session& session) {
  std::vector<uint8_t> bytes;
  REQUIRE(save_snapshot(session, kModel, [&](const void* data, uint64_t n) {
            const auto* from = static_cast<const uint8_t*>(data);
            bytes.insert(bytes.end(), from, from + n);
            return absl::OkStatus();
          }).ok());
  return bytes;
}

PlanSource plans_of(const Toy& toy) {
  return [&toy](const Session&, const PlanKey& key) -> absl::StatusOr<std::shared_ptr<const Plan>> {
    return must_compile(toy.program, key);
  };
}

int32_t best_of(const std::vector<float>& logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

struct Greedy {
  std::vector<int32_t> ids;
  std::vector<float> logits;  // [ids][320]
  friend bool operator==(const Greedy& a, const Greedy& b) {
    return a.ids == b.ids && same_bits(a.logits, b.logits);
  }
};

// Appends `row`, what was decoded last, and its choice.
void take(Greedy* run, const std::vector<float>& row) {
  run->ids.push_back(best_of(row));
  run->logits.insert(run->logits.end(), row.begin(), row.end());
}

// From a session that holds all of the prompt but its last id.
Greedy greedy_run(Session& session, int32_t last, size_t n = kGreedy) {
  Greedy run;
  std::vector<float> row(320);
  for (size_t i = 0; i < n; ++i) {
    const int32_t id = i == 0 ? last : run.ids.back();
    REQUIRE(session.decode({&id, 1}, row.data(), false).ok());
    take(&run, row);
  }
  return run;
}

std::unique_ptr<Session> after_prompt(const Toy& toy, const Setup& setup) {
  auto session = make_session(toy, setup);
  const auto ids = toy_ids(kPrompt);
  REQUIRE(session->decode(std::span(ids).first(kPrompt - 1), nullptr, false).ok());
  return session;
}

// Greedy with three neighbours in one batch, of which the second fails in the middle.
Greedy greedy_in_company(const Toy& toy, Session& session, const Setup& setup, int32_t last) {
  std::vector<std::unique_ptr<Session>> neighbours;
  for (int i = 0; i < 3; ++i) {
    Setup other = setup;
    if (i == 1) other.n_ctx = 30;
    neighbours.push_back(make_session(toy, other));
  }
  Greedy run;
  std::vector<float> row(320);
  for (size_t n = 0; n < kGreedy; ++n) {
    const int32_t id = n == 0 ? last : run.ids.back();
    const auto others = toy_ids(3 + n % 2);
    std::vector<BatchItem> items(4);
    for (size_t i = 0; i < 3; ++i) {
      items[i < 2 ? i : 3].session = neighbours[i].get();
      items[i < 2 ? i : 3].ids = std::span(others).first(n == 0 ? others.size() : 1);
    }
    items[2].session = &session;
    items[2].ids = {&id, 1};
    items[2].logits.out = row.data();
    decode_batch(items, plans_of(toy));
    REQUIRE(items[2].status.ok());
    REQUIRE(items[0].status.ok());
    take(&run, row);
  }
  CHECK(neighbours[1]->position() == 30);
  return run;
}

// Equal bits, so that no gap between the first two logits is too small: the greedy ids are equal on any head.
TEST_CASE("case 35: 64 greedy tokens, in any company and by any way, have one run's bits") {
  const int32_t last = toy_ids(kPrompt).back();
  for (const auto& [name, spec] : families()) {
    const auto toy = make_toy(spec);
    for (const KvType kv : {KvType::kF16, KvType::kQ8_0}) {
      Setup setup;
      setup.kv = kv;
      const Greedy expected = greedy_run(*after_prompt(*toy, setup), last);
      INFO(name << " " << kv_type_name(kv));
      for (const uint32_t threads : {2u, 5u, 8u}) {
        Setup other = setup;
        other.threads = threads;
        CHECK(greedy_run(*after_prompt(*toy, other), last) == expected);
      }
      for (const int64_t chunk : {1, 7, 32}) {
        Setup other = setup;
        other.chunk = chunk;
        CHECK(greedy_run(*after_prompt(*toy, other), last) == expected);
      }
      for (const Mode mode : {Mode::kReference, Mode::kPlanned}) {
        Setup other = setup;
        other.mode = mode;
        CHECK(greedy_run(*after_prompt(*toy, other), last) == expected);
      }
      const auto session = after_prompt(*toy, setup);
      CHECK(greedy_in_company(*toy, *session, setup, last) == expected);
      REQUIRE(session->truncate(kPrompt - 1).ok());
      const auto fork = session->make_fork(true);
      REQUIRE(fork.ok());
      CHECK(greedy_run(**fork, last) == expected);
      CHECK(greedy_run(*session, last) == expected);
      REQUIRE((*fork)->truncate(kPrompt - 1).ok());
      const auto bytes = saved(**fork);
      CHECK(bytes.size() == snapshot_bytes(**fork));
      Setup roomy = setup;
      roomy.n_ctx = 500;
      const auto restored = make_session(*toy, roomy);
      REQUIRE(restore_snapshot(bytes, kModel, restored.get()).ok());
      CHECK(greedy_run(*restored, last) == expected);
    }
  }
}

TEST_CASE(
    "random truncate and append sequences equal recomputation, for windows and convolutions") {
  uint32_t random = 3;
  const auto pick = [&](int64_t n) {
    random = random * 1664525u + 1013904223u;
    return static_cast<int64_t>(random >> 8) % n;
  };
  for (const auto& [name, spec] : families()) {
    const auto toy = make_toy(spec);
    for (const KvType kv : {KvType::kF16, KvType::kF32, KvType::kQ8_0}) {
      Setup setup;
      setup.kv = kv;
      setup.chunk = 16;
      const auto session = make_session(*toy, setup);
      for (int step = 0; step < 60; ++step) {
        INFO(name << " " << kv_type_name(kv) << " step " << step);
        if (session->position() > 0) {  // every n is legal, whatever the family
          REQUIRE(session->truncate(pick(session->position() + 1)).ok());
        }
        const int64_t n = std::min<int64_t>(1 + pick(40), 300 - session->position());
        std::vector<int32_t> ids(static_cast<size_t>(n));
        for (int32_t& id : ids) id = static_cast<int32_t>(pick(320));
        const auto logits = decode_all(*session, ids);
        if (step % 3 != 0) continue;
        const auto held = session->history().ids();
        const auto all = decode_all(*make_session(*toy, setup), {held.begin(), held.end()});
        REQUIRE(std::memcmp(all.data() + (all.size() - logits.size()), logits.data(),
                            logits.size() * sizeof(float)) == 0);
      }
    }
  }
}

HookSpec steering(const Toy& toy) {
  HookSpec spec;
  spec.action = HookAction::kAdd;
  spec.site = "resid_post";
  spec.layers = {1};
  spec.alpha = 0.7f;
  for (int64_t i = 0; i < toy.program.n_embd; ++i) {
    spec.values.push_back(toy_noise(5, static_cast<uint64_t>(i)));
  }
  return spec;
}

TEST_CASE("case 38: steering fires for each token in a batch, after a fork and after a restore") {
  for (const auto& [name, spec] : families()) {
    const auto toy = make_toy(spec);
    const auto ids = toy_ids(30);
    const auto steered = [&](uint64_t* id) {
      auto session = make_session(*toy);
      const auto added = session->hooks().add(steering(*toy));
      REQUIRE(added.ok());
      *id = *added;
      replan(*toy, *session);
      return session;
    };
    uint64_t id = 0;
    const auto whole = decode_all(*steered(&id), ids);  // from scratch, in one call
    CHECK(!same_bits(whole, decode_all(*make_session(*toy), ids)));
    const auto is_row = [&](const std::vector<float>& row, size_t i) {
      return std::memcmp(row.data(), &whole[i * 320], 320 * sizeof(float)) == 0;
    };
    INFO(name);
    std::vector<float> row(320);

    // A batch of three, of which only the second is steered; prompt of 10, then 20 tokens.
    const auto session = steered(&id);
    const auto left = make_session(*toy), right = make_session(*toy);
    for (size_t at = 0; at < 30; at += at == 0 ? 10 : 1) {
      std::vector<BatchItem> items(3);
      items[0].session = left.get();
      items[1].session = session.get();
      items[2].session = right.get();
      for (BatchItem& item : items) item.ids = std::span(ids).subspan(at, at == 0 ? 10 : 1);
      items[1].logits.out = row.data();
      decode_batch(items, plans_of(*toy));
      for (const BatchItem& item : items) REQUIRE(item.status.ok());
      CHECK(is_row(row, at == 0 ? 9 : at));
    }
    CHECK(session->hooks().stats(id)->positions == 30);
    CHECK(session->hooks().stats(id)->writes == 30);

    // Forked after the prompt: the fork's counters go on from there.
    uint64_t parent_id = 0;
    const auto parent = steered(&parent_id);
    REQUIRE(parent->decode(std::span(ids).first(10), nullptr, false).ok());
    const auto fork = parent->make_fork(true);
    REQUIRE(fork.ok());
    replan(*toy, **fork);
    for (size_t at = 10; at < 30; ++at) {
      REQUIRE((*fork)->decode({&ids[at], 1}, row.data(), false).ok());
      CHECK(is_row(row, at));
    }
    CHECK((*fork)->hooks().stats(parent_id)->positions == 30);
    CHECK(parent->hooks().stats(parent_id)->positions == 10);

    // Restored into a session that steers as well.
    const auto bytes = saved(*parent);
    const auto restored = steered(&id);
    REQUIRE(restore_snapshot(bytes, kModel, restored.get()).ok());
    for (size_t at = 10; at < 30; ++at) {
      REQUIRE(restored->decode({&ids[at], 1}, row.data(), false).ok());
      CHECK(is_row(row, at));
    }
    CHECK(restored->hooks().stats(id)->positions == 20);
  }
}

// Two rope tables: which one holds is a matter of the session's context, and keys of one mean nothing to the other.
TEST_CASE("sessions with short and with long rope tables share launches, but no keys") {
  ToyModel spec = family("phi3", Format::kQ8_0);
  spec.extra = [](GgufBuilder& b) {
    b.scalar<uint32_t>("phi3.rope.scaling.original_context_length", 128);
    b.f32("rope_factors_long.weight", {8}, std::vector<float>(8, 2.0f));
    b.f32("rope_factors_short.weight", {8}, std::vector<float>(8, 1.0f));
  };
  const auto toy = make_toy(spec);
  PrefixStore store;
  store.set_limit(1 << 24);
  const auto session_of = [&](int64_t n_ctx) {
    Setup setup;
    setup.n_ctx = n_ctx;
    const auto plan = must_compile(toy->program, key_of(setup));
    auto pool = make_pool(1);
    auto packed = toy->store.prepare(toy->program, *plan, pool->get(), {}, nullptr, copy_bytes);
    REQUIRE(packed.ok());
    SessionOptions options;
    options.prefixes = &store;
    auto session = Session::create(toy->program, *packed, std::move(*pool), plan, options);
    REQUIRE(session.ok());
    return std::move(*session);
  };
  const auto ids = toy_ids(80);
  std::vector<float> expected[2]{std::vector<float>(320), std::vector<float>(320)};
  const auto alone_short = session_of(100), alone_long = session_of(300);
  REQUIRE(alone_short->decode(ids, expected[0].data(), false).ok());
  REQUIRE(session_of(100)->take_prefix(ids).value() == 64);
  REQUIRE(session_of(300)->take_prefix(ids).value() == 0);
  REQUIRE(alone_long->decode(ids, expected[1].data(), false).ok());
  CHECK(!same_bits(expected[0], expected[1]));
  const auto a = session_of(100), b = session_of(300);
  std::vector<float> logits(2 * 320);
  std::vector<BatchItem> items(2);
  items[0].session = a.get();
  items[1].session = b.get();
  for (size_t i = 0; i < 2; ++i) {
    items[i].ids = ids;
    items[i].logits.out = &logits[i * 320];
  }
  decode_batch(items, plans_of(*toy));
  for (size_t i = 0; i < 2; ++i) {
    REQUIRE(items[i].status.ok());
    CHECK(std::memcmp(&logits[i * 320], expected[i].data(), 320 * sizeof(float)) == 0);
  }
  const auto bytes = saved(*a);
  CHECK(code_of(restore_snapshot(bytes, kModel, b.get())) == Code::kKvMismatch);
  CHECK(b->position() == 80);
  CHECK(restore_snapshot(bytes, kModel, session_of(90).get()).ok());
}

TEST_CASE("case 37: 1,000 cancelled prefills of two sessions: undone, and nobody else is touched") {
  const auto toy = make_toy({});
  Setup setup;
  setup.n_ctx = 420;
  setup.chunk = 64;
  const auto ids = toy_ids(410);
  const auto expected = decode_all(*make_session(*toy, setup), ids);
  std::array<std::unique_ptr<Session>, 2> sessions{make_session(*toy, setup),
                                                   make_session(*toy, setup)};
  for (const auto& session : sessions) {
    REQUIRE(session->decode(std::span(ids).first(5), nullptr, false).ok());
  }
  std::atomic<bool> over{false};
  std::thread canceller([&] {
    uint32_t random = 1;
    while (!over.load()) {
      random = random * 1664525u + 1013904223u;
      sessions[random >> 31]->cancel();
      for (uint32_t i = 0; i < random >> 20 && !over.load(); ++i) std::this_thread::yield();
    }
  });
  int n_cancelled = 0, n_wrong = 0;
  std::vector<float> row(320);
  for (int trial = 0; trial < 1000; ++trial) {
    Session& session = *sessions[static_cast<size_t>(trial % 2)];
    const absl::Status status = session.decode(std::span(ids).subspan(5, 400), row.data(), false);
    if (status.ok()) {
      n_wrong += std::memcmp(row.data(), &expected[404 * 320], 320 * sizeof(float)) != 0;
      n_wrong += !session.truncate(5).ok();
    } else {
      ++n_cancelled;
      n_wrong += code_of(status) != Code::kCancelled || session.position() != 5;
    }
  }
  over.store(true);
  canceller.join();
  CHECK(n_wrong == 0);
  CHECK(n_cancelled > 0);
  for (const auto& session : sessions) {
    session->cancel();  // of no running call: it does not stick
    REQUIRE(session->decode(std::span(ids).subspan(5, 400), row.data(), false).ok());
    CHECK(std::memcmp(row.data(), &expected[404 * 320], 320 * sizeof(float)) == 0);
  }
}

// A heap that fails at its k-th call.
struct FailingHeap {
  int64_t left = std::numeric_limits<int64_t>::max();
  static void* allocate(void* user, uint64_t n_bytes, uint64_t alignment) {
    auto* heap = static_cast<FailingHeap*>(user);
    if (heap->left-- <= 0) return nullptr;
    return std::aligned_alloc(alignment, (n_bytes + alignment - 1) / alignment * alignment);
  }
  static void release(void*, void* block, uint64_t, uint64_t) { std::free(block); }
};

TEST_CASE("case 37: an allocation that fails at call k leaves the session as it was") {
  const auto toy = make_toy({});
  const auto ids = toy_ids(200);
  const auto expected = decode_all(*make_session(*toy), ids);
  for (const Mode mode : {Mode::kPlannedFused, Mode::kReference}) {
    FailingHeap heap;
    Setup setup;
    setup.mode = mode;
    const auto plan = must_compile(toy->program, key_of(setup));
    auto pool = make_pool(1);
    auto packed = toy->store.prepare(toy->program, *plan, pool->get(), {}, nullptr, copy_bytes);
    REQUIRE(packed.ok());
    SessionOptions options;
    options.memory = HostMemory(&heap, FailingHeap::allocate, FailingHeap::release);
    auto session = Session::create(toy->program, *packed, std::move(*pool), plan, options);
    REQUIRE(session.ok());
    REQUIRE((*session)->decode(std::span(ids).first(50), nullptr, false).ok());
    std::vector<float> logits(150 * 320);
    int64_t k = 0;
    for (;; ++k) {
      const auto fork = (*session)->make_fork(true);
      REQUIRE(fork.ok());
      heap.left = k;
      const absl::Status status = (*fork)->decode(std::span(ids).subspan(50), logits.data(), true);
      heap.left = std::numeric_limits<int64_t>::max();
      INFO(mode_name(mode) << " call " << k << " " << status.message());
      if (status.ok()) break;
      REQUIRE(code_of(status) == Code::kMemory);
      REQUIRE((*fork)->position() == 50);
      REQUIRE((*fork)->decode(std::span(ids).subspan(50), logits.data(), true).ok());
      REQUIRE(std::memcmp(logits.data(), &expected[50 * 320], logits.size() * sizeof(float)) == 0);
    }
    CHECK(k >= 3);  // pages, at least
  }
}

}  // namespace
}  // namespace engine
