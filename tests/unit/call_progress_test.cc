// Progress of long calls, and cancels inside of them: what the host is told, when, and what is left.
#include "lib/session/call_progress.h"

#include <algorithm>
#include <thread>

#include "tests/unit/session_toy.h"

namespace engine {
namespace {

struct Told {
  std::vector<std::pair<uint64_t, uint64_t>> calls;
  std::vector<uint64_t> times;
  uint64_t now = 0;
  uint64_t step_ns = 0;
  Session* cancels = nullptr;
  size_t cancel_at = 0;
  static void tell(void* user, uint64_t done, uint64_t total) {
    auto* told = static_cast<Told*>(user);
    told->calls.emplace_back(done, total);
    told->times.push_back(told->now);
    if (told->cancels != nullptr && told->calls.size() == told->cancel_at) told->cancels->cancel();
  }
  static uint64_t clock(void* user) {
    auto* told = static_cast<Told*>(user);
    return told->now += told->step_ns;
  }
};

std::unique_ptr<Session> told_session(const Toy& toy, const Setup& setup, Told* told) {
  auto pool = make_pool(setup.threads);
  const auto plan = must_compile(toy.program, key_of(setup));
  auto packed = toy.store.prepare(toy.program, *plan, pool->get(), {}, nullptr, copy_bytes);
  SessionOptions options;
  options.progress = Told::tell;
  options.progress_user = told;
  options.clock = Told::clock;
  options.clock_user = told;
  auto session = Session::create(toy.program, *packed, std::move(*pool), plan, options);
  REQUIRE(session.ok());
  return std::move(*session);
}

TEST_CASE("progress never falls, ends at the total, and comes every 100 ms of a slow call") {
  const auto toy = make_toy({});
  for (const Mode mode : {Mode::kReference, Mode::kPlanned, Mode::kPlannedFused}) {
    for (const int64_t chunk : {16, 128}) {
      for (const bool all : {false, true}) {
        Setup setup;
        setup.mode = mode;
        setup.chunk = chunk;
        Told told;
        told.step_ns = 20 * 1000000ull;  // every look at the clock
        const auto session = told_session(*toy, setup, &told);
        std::vector<float> logits(100 * 320);
        REQUIRE(session->decode(toy_ids(100), logits.data(), all).ok());
        REQUIRE(!told.calls.empty());
        CHECK(std::is_sorted(told.calls.begin(), told.calls.end()));
        CHECK(told.calls.back() == std::pair<uint64_t, uint64_t>(100, 100));
        CHECK(std::all_of(told.calls.begin(), told.calls.end(),
                          [](const auto& call) { return call.second == 100; }));
        if (mode != Mode::kReference) {
          CHECK(told.calls.size() > 5);
          for (size_t i = 1; i < told.times.size(); ++i) {
            CHECK(told.times[i] - told.times[i - 1] <= 100 * 1000000ull);
          }
        }
        const size_t n = told.calls.size();
        const int32_t id = 4;
        REQUIRE(session->decode({&id, 1}, logits.data(), false).ok());
        CHECK(told.calls.size() == n);  // single tokens are nothing to tell about
      }
    }
  }
}

TEST_CASE("a fast call is told about by its chunks only") {
  const auto toy = make_toy({});
  Setup setup;
  setup.chunk = 16;
  Told told;
  told.step_ns = 1;
  const auto session = told_session(*toy, setup, &told);
  REQUIRE(session->decode(toy_ids(40), nullptr, false).ok());
  CHECK(told.calls == std::vector<std::pair<uint64_t, uint64_t>>{{16, 40}, {32, 40}, {40, 40}});
}

TEST_CASE(
    "cancelled at any point of a call: undone, the flag does not stick, the next one has its "
    "bits") {
  const auto toy = make_toy({});
  for (const uint32_t threads : {1u, 2u}) {
    Setup setup;
    setup.threads = threads;
    setup.chunk = 64;
    const auto ids = toy_ids(150);
    const auto expected = decode_all(*make_session(*toy, setup), ids);
    Told told;
    told.step_ns = 60 * 1000000ull;  // told at every look
    const auto session = told_session(*toy, setup, &told);
    REQUIRE(session->decode({ids.data(), 5}, nullptr, false).ok());
    told.calls.clear();
    told.cancels = session.get();
    std::vector<float> logits(145 * 320);
    int n_cancelled = 0;
    for (told.cancel_at = 1;; ++told.cancel_at) {
      told.calls.clear();
      const absl::Status status =
          session->decode({ids.data() + 5, 145}, logits.data(), told.cancel_at % 2 == 0);
      if (status.ok()) break;
      REQUIRE(code_of(status) == Code::kCancelled);
      REQUIRE(session->position() == 5);
      ++n_cancelled;
    }
    CHECK(n_cancelled > 20);
    REQUIRE(session->truncate(5).ok());
    told.cancels = nullptr;
    REQUIRE(session->decode({ids.data() + 5, 145}, logits.data(), true).ok());
    CHECK(std::memcmp(logits.data(), &expected[5 * 320], logits.size() * sizeof(float)) == 0);
  }
}

int32_t no_garbage(void* user, const HookEvent& event, float* values) {
  auto* seen = static_cast<std::vector<float>*>(user);
  seen->insert(seen->end(), values, values + event.n_rows * event.width);
  return 0;
}

TEST_CASE("hooks see no value of a step that was cut short") {
  const auto toy = make_toy({});
  const auto ids = toy_ids(60);
  HookSpec read;
  read.action = HookAction::kRead;
  read.site = "ffn_out";
  read.callback = no_garbage;
  std::vector<float> whole, seen;
  read.user = &whole;
  const auto a = make_session(*toy);
  REQUIRE(a->hooks().add(read).ok());
  replan(*toy, *a);
  REQUIRE(a->decode(ids, nullptr, false).ok());
  Told told;
  told.step_ns = 60 * 1000000ull;
  const auto b = told_session(*toy, {}, &told);
  read.user = &seen;
  REQUIRE(b->hooks().add(read).ok());
  replan(*toy, *b);
  told.cancels = b.get();
  for (told.cancel_at = 1; told.cancel_at < 40; ++told.cancel_at) {
    told.calls.clear();
    seen.clear();
    if (b->decode(ids, nullptr, false).ok()) break;
    REQUIRE(seen.size() <= whole.size());
    REQUIRE(std::equal(seen.begin(), seen.end(), whole.begin()));
  }
}

}  // namespace
}  // namespace engine
