// Batched decode: every item bit-equal to its solo run, whatever its company, its hooks and its fate.
#include <limits>
#include <map>

#include "lib/session/batch.h"
#include "tests/unit/session_toy.h"

namespace engine {
namespace {

PlanSource plans_of(const Toy& toy) {
  return [&toy](const Session&, const PlanKey& key) -> absl::StatusOr<std::shared_ptr<const Plan>> {
    return must_compile(toy.program, key);
  };
}

std::vector<int32_t> salted_ids(size_t n, size_t salt) {
  std::vector<int32_t> ids(n);
  for (size_t i = 0; i < n; ++i) ids[i] = static_cast<int32_t>((i * 91 + salt * 13 + 7) % 320);
  return ids;
}

HookSpec writer(const char* site, float alpha) {
  HookSpec spec;
  spec.action = HookAction::kScale;
  spec.site = site;
  spec.layers = {1};
  spec.alpha = alpha;
  return spec;
}

TEST_CASE("prompts of all lengths, then tokens, in one batch: the bits of solo runs") {
  for (const auto& [name, spec] : plan_toys()) {
    const auto toy = make_toy(spec);
    for (const Mode mode : {Mode::kPlanned, Mode::kPlannedFused}) {
      for (const uint32_t threads : {1u, 3u}) {
        Setup setup;
        setup.mode = mode;
        setup.chunk = 16;
        setup.threads = threads;
        std::vector<std::unique_ptr<Session>> solo, together;
        const std::vector<size_t> lengths{1, 37, 5, 16, 1, 3, 2, 20, 1};
        for (size_t i = 0; i < lengths.size(); ++i) {
          setup.n_ctx = 100 + static_cast<int64_t>(i);
          solo.push_back(make_session(*toy, setup));
          together.push_back(make_session(*toy, setup));
        }
        for (int round = 0; round < 4; ++round) {
          std::vector<std::vector<int32_t>> ids;
          std::vector<std::vector<float>> logits;
          std::vector<BatchItem> items(lengths.size());
          for (size_t i = 0; i < lengths.size(); ++i) {
            ids.push_back(salted_ids(round == 0 ? lengths[i] : 1, i + static_cast<size_t>(round)));
            const bool all = round == 0 && i % 2 == 1;
            logits.emplace_back((all ? ids[i].size() : 1) * 320);
          }
          for (size_t i = 0; i < lengths.size(); ++i) {
            items[i].session = together[i].get();
            items[i].ids = ids[i];
            items[i].logits = {logits[i].data(), logits[i].size() > 320, nullptr};
          }
          decode_batch(items, plans_of(*toy));
          for (size_t i = 0; i < lengths.size(); ++i) {
            INFO(name << " " << mode_name(mode) << " round " << round << " item " << i);
            CHECK(items[i].status.ok());
            std::vector<float> expected(logits[i].size());
            REQUIRE(solo[i]->decode(ids[i], expected.data(), expected.size() > 320).ok());
            CHECK(same_bits(logits[i], expected));
            CHECK(together[i]->position() == solo[i]->position());
          }
        }
      }
    }
  }
}

TEST_CASE("weights are read once for all: one matmul per weight and launch") {
  const auto toy = make_toy({});
  std::vector<std::unique_ptr<Session>> sessions;
  std::vector<BatchItem> items(8);
  const auto ids = toy_ids(1);
  std::vector<float> logits(8 * 320);
  for (size_t i = 0; i < 8; ++i) {
    sessions.push_back(make_session(*toy));
    decode_all(*sessions[i], salted_ids(3 + i, i));
    items[i].session = sessions[i].get();
    items[i].ids = ids;
    items[i].logits.out = &logits[i * 320];
  }
  const auto before = std::vector<uint64_t>(sessions[3]->kernel_counts().begin(),
                                            sessions[3]->kernel_counts().end());
  decode_batch(items, plans_of(*toy));
  uint64_t matmuls = 0;
  for (size_t i = 0; i < before.size(); ++i) {
    if (kernel_rows()[i].key.op != Op::kMatmul) continue;
    matmuls += sessions[3]->kernel_counts()[i] - before[i];
  }
  CHECK(matmuls == 2 * 7 + 1);
}

TEST_CASE("sessions with other hooks, modes and KV types, side by side") {
  ToyModel spec;
  spec.n_layer = 3;
  const auto toy = make_toy(spec);
  const auto make = [&](size_t i) {
    Setup setup;
    setup.mode = i == 4 ? Mode::kReference : Mode::kPlannedFused;
    setup.kv = i == 5 ? KvType::kF32 : KvType::kF16;
    auto session = make_session(*toy, setup);
    if (i == 1 || i == 4) REQUIRE(session->hooks().add(writer("resid_post", 1.5f)).ok());
    if (i == 2) REQUIRE(session->hooks().add(writer("ffn_act", 0.5f)).ok());
    if (i == 3) REQUIRE(session->hooks().add(writer("q_rope", 2.0f)).ok());
    replan(*toy, *session);
    return session;
  };
  std::vector<std::unique_ptr<Session>> solo, together;
  for (size_t i = 0; i < 6; ++i) {
    solo.push_back(make(i));
    together.push_back(make(i));
  }
  for (int round = 0; round < 5; ++round) {
    std::vector<std::vector<int32_t>> ids;
    std::vector<float> logits(6 * 320), expected(320);
    std::vector<BatchItem> items(6);
    for (size_t i = 0; i < 6; ++i) ids.push_back(salted_ids(round == 0 ? 9 + i : 1, i));
    for (size_t i = 0; i < 6; ++i) {
      items[i].session = together[i].get();
      items[i].ids = ids[i];
      items[i].logits.out = &logits[i * 320];
    }
    decode_batch(items, plans_of(*toy));
    for (size_t i = 0; i < 6; ++i) {
      INFO("round " << round << " item " << i);
      CHECK(items[i].status.ok());
      REQUIRE(solo[i]->decode(ids[i], expected.data(), false).ok());
      CHECK(std::memcmp(&logits[i * 320], expected.data(), 320 * sizeof(float)) == 0);
    }
  }
  for (size_t i = 1; i < 4; ++i) {
    CHECK(together[i]->hooks().stats(1)->writes == solo[i]->hooks().stats(1)->writes);
  }
}

TEST_CASE("flagged positions: their logits, densely, in order") {
  const auto toy = make_toy({});
  Setup setup;
  setup.chunk = 8;
  const auto all = decode_all(*make_session(*toy, setup), toy_ids(30));
  std::vector<uint8_t> mask(30, 0);
  for (const size_t i : {0u, 6u, 7u, 8u, 9u, 20u}) mask[i] = 1;
  for (const Mode mode : {Mode::kReference, Mode::kPlannedFused}) {
    setup.mode = mode;
    const auto session = make_session(*toy, setup);
    std::vector<float> logits(6 * 320);
    const auto ids = toy_ids(30);
    BatchItem item{session.get(), ids, {logits.data(), false, mask.data()}, {}};
    decode_batch({&item, 1}, plans_of(*toy));
    REQUIRE(item.status.ok());
    size_t row = 0;
    for (size_t i = 0; i < 30; ++i) {
      if (mask[i] == 0) continue;
      CHECK(std::memcmp(&logits[row++ * 320], &all[i * 320], 320 * sizeof(float)) == 0);
    }
  }
}

int32_t fail_at_12(void*, const HookEvent& event, float*) {
  for (int64_t i = 0; i < event.n_rows; ++i) {
    if (event.positions[i] == 12) return 7;
  }
  return 0;
}
int32_t plant_nan(void*, const HookEvent& event, float* values) {
  values[(event.n_rows - 1) * event.width + 3] = std::numeric_limits<float>::quiet_NaN();
  return 0;
}
int32_t cancel_it(void* user, const HookEvent&, float*) {
  static_cast<Session*>(user)->cancel();
  return 0;
}

TEST_CASE("items that fail, each in its way, disturb nobody and are undone") {
  for (const auto& [name, spec] : plan_toys()) {
    const auto toy = make_toy(spec);
    Setup setup;
    setup.chunk = 16;
    std::vector<std::unique_ptr<Session>> sessions;
    for (int i = 0; i < 7; ++i) {
      if (i == 4) setup.n_ctx = 15;
      sessions.push_back(make_session(*toy, setup));
      setup.n_ctx = 300;
    }
    HookSpec hook;
    hook.site = "resid_post";
    hook.layers = {0};
    hook.action = HookAction::kRead;
    hook.callback = fail_at_12;
    REQUIRE(sessions[1]->hooks().add(hook).ok());
    hook.action = HookAction::kWrite;
    hook.callback = plant_nan;
    REQUIRE(sessions[2]->hooks().add(hook).ok());
    hook.action = HookAction::kRead;
    hook.callback = cancel_it;
    hook.user = sessions[3].get();
    REQUIRE(sessions[3]->hooks().add(hook).ok());
    for (const auto& session : sessions) replan(*toy, *session);
    std::vector<std::vector<int32_t>> ids;
    for (size_t i = 0; i < 8; ++i) ids.push_back(salted_ids(5, i));
    const auto decode = [&](std::vector<float>* logits) {
      std::vector<BatchItem> items(10);
      for (size_t i = 0; i < 8; ++i) {
        items[i].session = sessions[i == 7 ? 0 : i].get();  // 7: twice the same
        items[i].ids = ids[i];
        items[i].logits.out = &(*logits)[i * 320];
      }
      items[8].ids = ids[0];  // no session
      items[9].session = sessions[6].get();
      const int32_t bad = 320;
      items[9].session = nullptr;
      if (sessions[5]->position() > 0) items[5].ids = {&bad, 1};
      decode_batch(items, plans_of(*toy));
      std::vector<Code> codes;
      for (const BatchItem& item : items) codes.push_back(code_of(item.status));
      return codes;
    };
    std::vector<float> logits(8 * 320), expected(320);
    const std::vector<std::vector<Code>> rounds{
        {Code::kOk, Code::kOk, Code::kNonFinite, Code::kCancelled, Code::kOk, Code::kOk, Code::kOk,
         Code::kState, Code::kArgument, Code::kArgument},
        {Code::kOk, Code::kOk, Code::kNonFinite, Code::kCancelled, Code::kOk, Code::kArgument,
         Code::kOk, Code::kState, Code::kArgument, Code::kArgument},
        {Code::kOk, Code::kHookFailed, Code::kNonFinite, Code::kCancelled, Code::kOk,
         Code::kArgument, Code::kOk, Code::kState, Code::kArgument, Code::kArgument},
        {Code::kOk, Code::kHookFailed, Code::kNonFinite, Code::kCancelled, Code::kContextFull,
         Code::kArgument, Code::kOk, Code::kState, Code::kArgument, Code::kArgument}};
    const std::vector<std::vector<int64_t>> positions{{5, 5, 0, 0, 5, 5, 5},
                                                      {10, 10, 0, 0, 10, 5, 10},
                                                      {15, 10, 0, 0, 15, 5, 15},
                                                      {20, 10, 0, 0, 15, 5, 20}};
    const auto solo = make_session(*toy, setup);
    for (size_t round = 0; round < rounds.size(); ++round) {
      INFO(name << " round " << round);
      CHECK(decode(&logits) == rounds[round]);
      for (size_t i = 0; i < 7; ++i) CHECK(sessions[i]->position() == positions[round][i]);
      REQUIRE(solo->decode(ids[6], expected.data(), false).ok());
      CHECK(std::memcmp(&logits[6 * 320], expected.data(), 320 * sizeof(float)) == 0);
    }
    CHECK(!sessions[3]->in_call());
  }
}

}  // namespace
}  // namespace engine
