// Forks: bits of a fresh prefill, pages shared and copied, parents that go first, hooks, parallel calls.
#include <chrono>
#include <thread>

#include "catch2/generators/catch_generators.hpp"
#include "tests/unit/session_toy.h"

namespace engine {
namespace {

std::unique_ptr<Session> fork_of(const Session& session, bool with_hooks = true) {
  auto made = session.make_fork(with_hooks);
  REQUIRE(made.ok());
  return std::move(*made);
}

std::vector<int32_t> ids_with_tail(const std::vector<int32_t>& head, size_t n, int salt) {
  std::vector<int32_t> ids = head;
  for (size_t i = 0; i < n; ++i) {
    ids.push_back(static_cast<int32_t>((i * 91 + 7 + static_cast<size_t>(salt) * 13) % 320));
  }
  return ids;
}

std::vector<float> tail_logits(Session& session, const std::vector<int32_t>& ids) {
  const auto from = static_cast<std::ptrdiff_t>(session.position());
  return decode_all(session, {ids.begin() + from, ids.end()});
}

// Whether `logits` are the last rows of what a new session gives for all ids.
bool equals_fresh(const Toy& toy, const Setup& setup, const std::vector<int32_t>& ids,
                  const std::vector<float>& logits) {
  const auto all = decode_all(*make_session(toy, setup), ids);
  return std::memcmp(all.data() + (all.size() - logits.size()), logits.data(),
                     logits.size() * sizeof(float)) == 0;
}

TEST_CASE(
    "64 forks continue each on its own, bit-equal to a fresh prefill, and so does the parent") {
  const std::string arch = GENERATE("gemma3", "gemma4");  // windows; and keys of other layers
  const auto toy = make_toy(windowed_toy(arch));
  for (const Mode mode : {Mode::kReference, Mode::kPlannedFused}) {
    for (const size_t n_prompt : {64u, 71u, 1u}) {
      Setup setup;
      setup.mode = mode;
      setup.threads = 2;
      const auto parent = make_session(*toy, setup);
      const auto prompt = toy_ids(n_prompt);
      decode_all(*parent, prompt);
      std::vector<std::unique_ptr<Session>> forks;
      for (int i = 0; i < 64; ++i) forks.push_back(fork_of(*parent));
      CHECK(forks[5]->kv().own_bytes() == 0);
      // In turns, so that a write into a shared page would be seen.
      std::vector<std::vector<float>> logits(64);
      for (const size_t n : {1u, 6u}) {
        for (int i = 0; i < 64; ++i) {
          const auto ids = ids_with_tail(prompt, n, i);
          const auto more = tail_logits(*forks[static_cast<size_t>(i)], ids);
          auto& all = logits[static_cast<size_t>(i)];
          all.insert(all.end(), more.begin(), more.end());
        }
      }
      for (int i = 0; i < 64; i += mode == Mode::kReference ? 9 : 1) {
        INFO(mode_name(mode) << " prompt " << n_prompt << " fork " << i);
        CHECK(
            equals_fresh(*toy, setup, ids_with_tail(prompt, 6, i), logits[static_cast<size_t>(i)]));
      }
      const auto ids = ids_with_tail(prompt, 9, 99);
      CHECK(equals_fresh(*toy, setup, ids, tail_logits(*parent, ids)));
    }
  }
}

TEST_CASE("the parent may go first; a fork of a fork holds on") {
  const auto toy = make_toy({});
  const auto prompt = toy_ids(100);
  auto parent = make_session(*toy);
  decode_all(*parent, prompt);
  auto child = fork_of(*parent);
  parent.reset();
  auto grandchild = fork_of(*child);
  REQUIRE(child->truncate(70).ok());
  const auto other = ids_with_tail(toy_ids(70), 20, 3);
  CHECK(equals_fresh(*toy, {}, other, tail_logits(*child, other)));
  child.reset();
  const auto ids = ids_with_tail(prompt, 20, 4);
  CHECK(equals_fresh(*toy, {}, ids, tail_logits(*grandchild, ids)));
  CHECK(grandchild->history().size() == 120);
}

TEST_CASE("only pages that are written are copied, and only where another session has them") {
  const auto toy = make_toy({});
  const auto session = make_session(*toy);
  decode_all(*session, toy_ids(130));  // two full pages and a bit
  const auto page = static_cast<uint64_t>(session->kv().layout().page_bytes);
  CHECK(session->kv().own_bytes() == 3 * page);
  const auto fork = fork_of(*session);
  CHECK(session->kv().own_bytes() == 0);
  CHECK(fork->kv().held_bytes() == 3 * page);
  decode_all(*fork, toy_ids(1));
  CHECK(fork->kv().own_bytes() == page);
  CHECK(session->kv().own_bytes() == page);  // the last one is its alone again
  for (int64_t i = 0; i < 2; ++i) CHECK(fork->kv().page(i).data() == session->kv().page(i).data());
  const uint8_t* const last = session->kv().page(2).data();
  decode_all(*session, toy_ids(1));
  CHECK(session->kv().page(2).data() == last);
  // What lies behind a rewind is not worth copying; a page of one's own stays for reuse.
  REQUIRE(fork->truncate(0).ok());
  CHECK(fork->kv().held_bytes() == page);
}

TEST_CASE("random truncate, append and fork sequences equal recomputation, bit for bit") {
  const std::string arch = GENERATE("gemma3", "gemma4");  // windows; and keys of other layers
  const auto toy = make_toy(windowed_toy(arch));
  uint32_t random = 7;
  const auto pick = [&](int64_t n) {
    random = random * 1664525u + 1013904223u;
    return static_cast<int64_t>(random >> 8) % n;
  };
  for (const Mode mode : {Mode::kPlannedFused, Mode::kReference}) {
    Setup setup;
    setup.mode = mode;
    setup.chunk = 16;
    std::vector<std::unique_ptr<Session>> sessions;
    sessions.push_back(make_session(*toy, setup));
    const int n_steps = mode == Mode::kReference ? 60 : 250;
    for (int step = 0; step < n_steps; ++step) {
      Session& s = *sessions[static_cast<size_t>(pick(static_cast<int64_t>(sessions.size())))];
      const int64_t what = pick(4);
      if (what == 0 && s.position() > 0) {
        REQUIRE(s.truncate(pick(s.position() + 1)).ok());
      } else if (what == 1 && sessions.size() < 6) {
        sessions.push_back(fork_of(s));
      } else if (what == 2 && sessions.size() > 2) {
        sessions.erase(sessions.begin() + pick(static_cast<int64_t>(sessions.size())));
      } else {
        const int64_t n = 1 + pick(s.position() < 200 ? 40 : 3);
        std::vector<int32_t> ids(s.history().ids().begin(), s.history().ids().end());
        ids = ids_with_tail(ids, static_cast<size_t>(n), static_cast<int>(pick(1000)));
        if (static_cast<int64_t>(ids.size()) > setup.n_ctx) continue;
        const auto logits = tail_logits(s, ids);
        INFO("step " << step);
        if (step % 5 == 0 || n < 3) REQUIRE(equals_fresh(*toy, setup, ids, logits));
      }
    }
  }
}

TEST_CASE("forks that decode at the same time share threads and get scratch memory of their own") {
  const auto toy = make_toy({});
  Setup setup;
  setup.threads = 2;
  const auto parent = make_session(*toy, setup);
  const auto prompt = toy_ids(90);
  decode_all(*parent, prompt);
  std::vector<std::unique_ptr<Session>> forks;
  std::vector<std::vector<float>> logits(4);
  for (int i = 0; i < 4; ++i) forks.push_back(fork_of(*parent));
  {
    std::vector<std::thread> threads;
    for (size_t i = 0; i < 4; ++i) {
      threads.emplace_back([&, i] {
        const auto ids = ids_with_tail({}, 60, static_cast<int>(i));
        logits[i].resize(60 * 320);
        for (size_t t = 0; t < 60; ++t) {
          if (!forks[i]->decode({&ids[t], 1}, &logits[i][t * 320], false).ok()) return;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  for (size_t i = 0; i < 4; ++i) {
    CHECK(equals_fresh(*toy, setup, ids_with_tail(prompt, 60, static_cast<int>(i)), logits[i]));
  }
}

int32_t count_rows(void* user, const HookEvent& event, float*) {
  *static_cast<int64_t*>(user) += event.n_rows;
  return 0;
}

TEST_CASE(
    "hooks go along with their numbers and counters; captures stay with who registered them") {
  const auto toy = make_toy({});
  const auto session = make_session(*toy);
  int64_t n_seen = 0;
  HookSpec write;
  write.action = HookAction::kScale;
  write.site = "resid_post";
  write.layers = {0};
  write.alpha = 0.5f;
  write.select = PositionSelect::kGenerated;
  write.position_begin = 1;
  write.position_end = 3;
  HookSpec read;
  read.action = HookAction::kRead;
  read.site = "ffn_out";
  read.layers = {0};
  read.callback = count_rows;
  read.user = &n_seen;
  HookSpec capture;
  std::vector<float> rows(64);
  capture.site = "resid_mid";
  capture.layers = {0};
  capture.capture = rows.data();
  capture.capture_rows = 1;
  const auto writer = session->hooks().add(write);
  const auto reader = session->hooks().add(read);
  const auto capturer = session->hooks().add(capture);
  REQUIRE((writer.ok() && reader.ok() && capturer.ok()));
  replan(*toy, *session);
  decode_all(*session, toy_ids(10));
  const auto fork = fork_of(*session);
  replan(*toy, *fork);
  CHECK(fork->hooks().stats(*reader)->positions == 10);
  CHECK(!fork->hooks().stats(*capturer).ok());
  const auto bare = fork_of(*session, false);
  replan(*toy, *bare);
  CHECK(bare->hooks().empty());
  std::vector<float> a(320), b(320), c(320);
  for (const int32_t id : {5, 6, 7, 8}) {
    REQUIRE(session->decode({&id, 1}, a.data(), false).ok());
    REQUIRE(fork->decode({&id, 1}, b.data(), false).ok());
    REQUIRE(bare->decode({&id, 1}, c.data(), false).ok());
    CHECK(same_bits(a, b));
    CHECK(same_bits(a, c) == (id == 5));  // generated token 0 is not written
  }
  CHECK(fork->hooks().stats(*writer)->writes == 2);
  CHECK(fork->hooks().stats(*reader)->decode_positions == 4);
  CHECK(n_seen == 10 + 4 + 4);
  REQUIRE(fork->hooks().remove(*writer).ok());
  CHECK(session->hooks().stats(*writer).ok());
}

TEST_CASE("a fork of 4000 tokens takes less than a millisecond") {
  const auto toy = make_toy({});
  Setup setup;
  setup.n_ctx = 4096;
  const auto session = make_session(*toy, setup);
  std::vector<int32_t> ids = toy_ids(4000);
  REQUIRE(session->decode(ids, nullptr, false).ok());
  auto best = std::chrono::nanoseconds::max();
  for (int i = 0; i < 20; ++i) {
    const auto start = std::chrono::steady_clock::now();
    const auto fork = session->make_fork(true);
    best = std::min(best, std::chrono::nanoseconds(std::chrono::steady_clock::now() - start));
    REQUIRE(fork.ok());
    CHECK((*fork)->kv().own_bytes() == 0);
  }
  CHECK(best < std::chrono::milliseconds(1));
}

}  // namespace
}  // namespace engine
