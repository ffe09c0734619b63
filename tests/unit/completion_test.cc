// Submitted decodes: polled, waited for, on a thread, cancelled, dropped; always the bits of a plain decode.
#include "lib/session/completion.h"

#include "tests/unit/session_toy.h"

namespace engine {
namespace {

std::unique_ptr<Completion> submitted(Session& session, const std::vector<int32_t>& ids,
                                      float* logits, bool on_thread) {
  auto made = Completion::submit(&session, ids, {logits, false, nullptr}, on_thread);
  REQUIRE(made.ok());
  return std::move(*made);
}

TEST_CASE("polled chunk by chunk, or on a thread: the logits of a plain decode") {
  const auto toy = make_toy({});
  const auto ids = toy_ids(70);
  for (const Mode mode : {Mode::kReference, Mode::kPlannedFused}) {
    Setup setup;
    setup.mode = mode;
    setup.chunk = 16;
    std::vector<float> expected(320), logits(320);
    REQUIRE(make_session(*toy, setup)->decode(ids, expected.data(), false).ok());
    const auto session = make_session(*toy, setup);
    auto polled = submitted(*session, ids, logits.data(), false);
    CHECK(session->in_call());
    CHECK(code_of(session->decode(ids, nullptr, false)) == Code::kState);
    CHECK(code_of(session->truncate(0)) == Code::kState);
    CHECK(code_of(Completion::submit(session.get(), ids, {}, false).status()) == Code::kState);
    int n_polls = 1;
    while (!polled->poll()) ++n_polls;
    CHECK(n_polls == 5);
    CHECK(polled->wait().ok());
    CHECK(same_bits(logits, expected));
    CHECK(session->position() == 70);
    CHECK(!session->in_call());
    REQUIRE(session->truncate(0).ok());
    for (const bool on_thread : {false, true}) {
      std::fill(logits.begin(), logits.end(), 0.0f);
      auto waited = submitted(*session, ids, logits.data(), on_thread);
      CHECK(waited->wait().ok());
      CHECK(waited->poll());
      CHECK(waited->wait().ok());
      CHECK(same_bits(logits, expected));
      REQUIRE(session->truncate(0).ok());
    }
  }
}

TEST_CASE("cancelled before the first step, between steps, on a thread; dropped: undone") {
  const auto toy = make_toy({});
  const auto ids = toy_ids(100);
  Setup setup;
  setup.chunk = 16;
  const auto session = make_session(*toy, setup);
  REQUIRE(session->decode({ids.data(), 10}, nullptr, false).ok());
  const std::vector<int32_t> rest(ids.begin() + 10, ids.end());
  auto early = submitted(*session, rest, nullptr, false);
  early->cancel();
  CHECK(code_of(early->wait()) == Code::kCancelled);
  CHECK(session->position() == 10);
  auto later = submitted(*session, rest, nullptr, false);
  CHECK(!later->poll());
  CHECK(!later->poll());
  later->cancel();
  CHECK(later->poll());
  CHECK(code_of(later->wait()) == Code::kCancelled);
  later->cancel();  // done: reaches nothing
  CHECK(session->position() == 10);
  for (const bool on_thread : {false, true}) {
    auto dropped = submitted(*session, rest, nullptr, on_thread);
    dropped.reset();
    CHECK(!session->in_call());
    const bool finished = session->position() == 100;  // the thread may have been quicker
    CHECK((finished ? on_thread : session->position() == 10));
    if (finished) REQUIRE(session->truncate(10).ok());
  }
  CHECK(code_of(Completion::submit(session.get(), {}, {}, false).status()) == Code::kArgument);
  std::vector<float> logits(320), expected(320);
  REQUIRE(session->decode(rest, logits.data(), false).ok());
  REQUIRE(make_session(*toy, setup)->decode(ids, expected.data(), false).ok());
  CHECK(same_bits(logits, expected));
}

}  // namespace
}  // namespace engine
