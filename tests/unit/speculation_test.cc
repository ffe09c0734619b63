// Lossless speculation: ids, logits, draws and session are those of plain decoding, whatever was guessed.
#include "lib/session/speculation.h"

#include "lib/sample/sampler.h"
#include "tests/unit/session_toy.h"

namespace engine {
namespace {

// Prompt, then tokens by plain decodes.
struct Plain {
  std::vector<int32_t> ids;
  std::vector<std::vector<float>> logits;
};

Plain plain_run(Session& session, const std::vector<int32_t>& prompt, int n,
                const ChooseFn& choose) {
  Plain run;
  std::vector<float> logits(320);
  REQUIRE(session.decode(prompt, logits.data(), false).ok());
  run.ids.push_back(*choose(logits));
  for (int i = 0; i < n; ++i) {
    REQUIRE(session.decode({&run.ids.back(), 1}, logits.data(), false).ok());
    run.logits.push_back(logits);
    run.ids.push_back(*choose(logits));
  }
  return run;
}

std::vector<int32_t> repeating_prompt(size_t n) {
  std::vector<int32_t> ids;
  for (size_t i = 0; i < n; ++i) ids.push_back(static_cast<int32_t>(10 + i % 7));
  return ids;
}

// The same by speculation; false when anything differs.
SpeculationStats speculate(Session& session, const std::vector<int32_t>& prompt, const Plain& plain,
                           const SpeculationOptions& options, const ChooseFn& choose) {
  std::vector<float> row(320);
  REQUIRE(session.decode(prompt, row.data(), false).ok());
  std::vector<int32_t> ids{*choose(row)};
  Speculation speculation;
  std::vector<int32_t> next(20);
  std::vector<float> logits(20 * 320);
  while (ids.size() < plain.ids.size()) {
    const int64_t left = static_cast<int64_t>(plain.ids.size() - ids.size());
    const auto n = speculation.decode(&session, ids.back(), options, choose, next.data(),
                                      std::min<int64_t>(20, left), logits.data());
    REQUIRE(n.ok());
    REQUIRE(*n >= 1);
    for (int64_t i = 0; i < *n; ++i) {
      const size_t at = ids.size() - 1;
      REQUIRE(std::memcmp(&logits[static_cast<size_t>(i) * 320], plain.logits[at].data(),
                          320 * sizeof(float)) == 0);
      ids.push_back(next[static_cast<size_t>(i)]);
    }
    REQUIRE(session.position() == static_cast<int64_t>(prompt.size() + ids.size() - 1));
  }
  CHECK(ids == plain.ids);
  return speculation.stats();
}

TEST_CASE("greedy and sampled runs are those of plain decoding, with and without a drafter") {
  for (const auto& [name, spec] : plan_toys()) {
    const auto toy = make_toy(spec);
    ToyModel small = spec;
    small.seed = 99;
    const auto other = make_toy(small);
    for (const Mode mode : {Mode::kPlannedFused, Mode::kReference}) {
      for (const float temperature : {0.0f, 0.7f}) {
        for (const int drafter : {0, 1, 2}) {
          Setup setup;
          setup.mode = mode;
          setup.chunk = 8;
          SamplerParams params;
          params.temperature = temperature;
          params.seed = 5;
          params.repeat_penalty = 1.1f;
          auto a = Sampler::create(params);
          auto b = Sampler::create(params);
          const auto choose_a = [&](std::span<const float> row) { return a->sample(row); };
          const auto choose_b = [&](std::span<const float> row) { return b->sample(row); };
          const auto prompt = repeating_prompt(30);
          const int n = mode == Mode::kReference ? 25 : 80;
          const Plain plain = plain_run(*make_session(*toy, setup), prompt, n, choose_a);
          const auto session = make_session(*toy, setup);
          // A perfect drafter, and one that knows nothing.
          const auto guesser = make_session(drafter == 1 ? *toy : *other, setup);
          SpeculationOptions options;
          options.shortest = 2;
          options.drafter = drafter > 0 ? guesser.get() : nullptr;
          INFO(name << " " << mode_name(mode) << " temperature " << temperature << " drafter "
                    << drafter);
          const auto stats = speculate(*session, prompt, plain, options, choose_b);
          CHECK(a->save() == b->save());
          CHECK(stats.right <= stats.guessed);
          if (drafter == 1 && temperature == 0.0f) CHECK(stats.right > 0);
          CHECK(session->hooks().prompt_end() == 30);
        }
      }
    }
  }
}

TEST_CASE("at the end of the context, with hooks, and after a failed choice") {
  const auto toy = make_toy({});
  Setup setup;
  setup.n_ctx = 40;
  const auto greedy = [](std::span<const float> row) -> absl::StatusOr<int32_t> {
    return argmax(row);
  };
  const auto prompt = repeating_prompt(30);
  const Plain plain = plain_run(*make_session(*toy, setup), prompt, 10, greedy);
  const auto session = make_session(*toy, setup);
  speculate(*session, prompt, plain, {}, greedy);
  CHECK(session->position() == 40);
  Speculation speculation;
  std::vector<int32_t> next(20);
  CHECK(code_of(
            speculation.decode(session.get(), 1, {}, greedy, next.data(), 20, nullptr).status()) ==
        Code::kContextFull);
  CHECK(session->position() == 40);

  const auto hooked = make_session(*toy, setup);
  HookSpec read;
  read.action = HookAction::kRead;
  read.site = "resid_post";
  read.layers = {0};
  read.callback = [](void*, const HookEvent&, float*) { return 0; };
  const auto id = hooked->hooks().add(read);
  replan(*toy, *hooked);
  const auto stats = speculate(*hooked, prompt, plain, {}, greedy);
  CHECK(stats.guessed == 0);
  CHECK(hooked->hooks().stats(*id)->positions == 40);

  const auto refused = make_session(*toy, setup);
  REQUIRE(refused->decode(prompt, nullptr, false).ok());
  const auto refuse = [](std::span<const float>) -> absl::StatusOr<int32_t> {
    return error(Code::kNonFinite, "no");
  };
  CHECK(code_of(
            speculation.decode(refused.get(), 10, {}, refuse, next.data(), 20, nullptr).status()) ==
        Code::kNonFinite);
  CHECK(refused->position() == 30);
  // A later choice that fails: what was chosen before it is given.
  int n_calls = 0;
  const auto once = [&](std::span<const float>) -> absl::StatusOr<int32_t> {
    if (n_calls++ > 0) return error(Code::kNonFinite, "no");
    return 11;  // as guessed
  };
  const auto n =
      speculation.decode(refused.get(), 10, {4, 2, 8, nullptr}, once, next.data(), 20, nullptr);
  REQUIRE(n.ok());
  CHECK(*n == 1);
  CHECK(refused->position() == 31);
}

}  // namespace
}  // namespace engine
