// The modes against each other on toys of every kind of layer: logits, hook events and values by bits, and the
// counters that prove which path ran.
#include "lib/session/interpreter.h"

#include <bit>
#include <random>
#include <string>
#include <tuple>

#include "tests/unit/session_toy.h"

namespace engine {
namespace {

std::vector<float> logits_of(const Toy& toy, const Setup& setup, const std::vector<int32_t>& ids) {
  return decode_all(*make_session(toy, setup), ids);
}

TEST_CASE("every single fusion, and all of them, keep the bits of the reference") {
  for (const auto& [name, spec] : plan_toys()) {
    const auto toy = make_toy(spec);
    const auto ids = toy_ids(41);
    Setup reference;
    reference.mode = Mode::kReference;
    const auto expected = logits_of(*toy, reference, ids);
    for (uint32_t mask = 0; mask <= kAllFusions; ++mask) {
      if (std::has_single_bit(mask) || std::has_single_bit(kAllFusions & ~mask) || mask % 21 == 0) {
        Setup setup;
        setup.fusions = mask;
        setup.threads = mask % 3 + 1;
        setup.chunk = mask % 2 == 0 ? 16 : 1;
        INFO(name << " fusions " << mask);
        CHECK(same_bits(logits_of(*toy, setup, ids), expected));
      }
    }
  }
}

TEST_CASE("fusion counters: planned runs none, planned-fused those of its plan, once per layer") {
  for (const auto& [name, spec] : plan_toys()) {
    const auto toy = make_toy(spec);
    for (const Mode mode : {Mode::kPlanned, Mode::kPlannedFused}) {
      Setup setup;
      setup.mode = mode;
      const auto session = make_session(*toy, setup);
      std::vector<float> row(320);
      REQUIRE(session->decode(toy_ids(1), row.data(), false).ok());
      for (int f = 0; f < kNumFusions; ++f) {
        INFO(name << " " << mode_name(mode) << " " << fusion_name(f));
        uint64_t expected = 0;
        for (const PlanLayer& layer : session->plan().decode.layers) {
          for (const PlanStep& step : layer.steps) expected += step.fusions >> f & 1;
        }
        for (const PlanStep& step : session->plan().decode.final_steps) {
          expected += step.fusions >> f & 1;
        }
        CHECK(session->fusion_counts()[static_cast<size_t>(f)] == expected);
        CHECK((mode == Mode::kPlanned) <= (expected == 0));
      }
      uint64_t attentions = 0;
      for (size_t i = 0; i < kernel_rows().size(); ++i) {
        if (kernel_rows()[i].key.op == Op::kAttention) attentions += session->kernel_counts()[i];
      }
      uint64_t attention_layers = 0;  // the others are convolutions, which have no keys
      for (size_t l = 0; l < toy->program.kv.size(); ++l) {
        attention_layers += toy->program.kv_read(static_cast<int32_t>(l)).head_dim_k > 0 ? 1 : 0;
      }
      CHECK(attentions == attention_layers);
    }
    // Every fusion runs somewhere: llama has no post-norm (no F2 beside F5), gemma no free residual (no F5).
    const auto plan = must_compile(toy->program, key_of({}));
    const bool gemma = name.starts_with("gemma");
    const bool floats = name.ends_with("F32");
    for (size_t l = 0; l < plan->decode.layers.size(); ++l) {
      const PlanLayer& layer = plan->decode.layers[l];
      const bool experts = layer.why_off[5].find("expert") != std::string::npos;
      // A layer that reads another's keys has no projections to group, but rotates its queries.
      const bool rotates = toy->program.kv_read(static_cast<int32_t>(l)).head_dim_k > 0;
      const bool stores = toy->program.kv[l].head_dim_k > 0;
      const uint32_t mixing = (stores ? kF3 : 0u) | (rotates ? kF4 : 0u);
      const uint32_t expected =
          (floats ? 0u : kF1) | mixing | (experts ? 0u : kF6) | (gemma ? kF2 : kF5);
      INFO(name);
      CHECK(layer.fusions == expected);
    }
  }
}

// Everything that hooks saw: site, layer, position and the values.
struct Seen {
  std::vector<std::tuple<int, int32_t, int64_t>> events;
  std::vector<float> values;
  static int32_t callback(void* user, const HookEvent& event, float* values) {
    auto* seen = static_cast<Seen*>(user);
    for (int64_t row = 0; row < event.n_rows; ++row) {
      seen->events.emplace_back(static_cast<int>(event.site), event.layer, event.positions[row]);
    }
    seen->values.insert(seen->values.end(), values, values + event.n_rows * event.width);
    return 0;
  }
};

struct RandomHooks {
  std::vector<HookSpec> specs;
  RandomHooks(const Program& program, std::mt19937& random, bool writes) {
    const auto pick = [&](int n) { return static_cast<int>(random() % static_cast<uint32_t>(n)); };
    const int n = 1 + pick(4);
    while (static_cast<int>(specs.size()) < n) {
      HookSpec spec;
      const SiteInfo& info = site_table()[static_cast<size_t>(pick(kNumSites))];
      spec.site = info.name;
      const int layer = pick(static_cast<int>(program.layers.size()));
      const SiteShape& shape =
          (info.per_layer ? program.layer_sites[static_cast<size_t>(layer)]
                          : program.global_sites)[static_cast<size_t>(info.site)];
      if (!shape.present()) continue;
      if (info.per_layer && pick(3) > 0) spec.layers = {layer};
      spec.action = HookAction::kRead;
      spec.callback = Seen::callback;
      if (writes && info.writable && pick(2) == 0) {
        spec.action = HookAction::kAdd;
        spec.callback = nullptr;
        for (int64_t i = 0; i < shape.width; ++i) {
          spec.values.push_back(0.1f * toy_noise(random(), static_cast<uint64_t>(i)));
        }
      }
      if (pick(3) == 0) {
        spec.select = PositionSelect::kEvery;
        spec.position_step = 2;
      }
      specs.push_back(std::move(spec));
    }
  }
};

TEST_CASE("random hooks see the same values, in the same order, and write the same in every mode") {
  std::mt19937 random(7);
  for (const auto& [name, spec] : plan_toys()) {
    const auto toy = make_toy(spec);
    const auto ids = toy_ids(21);
    for (int trial = 0; trial < 12; ++trial) {
      const bool writes = trial % 2 == 1;
      RandomHooks hooks(toy->program, random, writes);
      std::vector<float> expected;
      std::vector<std::tuple<int, int32_t, int64_t>> events;
      std::vector<float> values;
      for (const Mode mode : {Mode::kReference, Mode::kPlanned, Mode::kPlannedFused}) {
        Setup setup;
        setup.mode = mode;
        setup.threads = 2;
        setup.n_ctx = 40;
        const auto session = make_session(*toy, setup);
        Seen seen;
        std::string what;
        for (HookSpec hook : hooks.specs) {
          hook.user = &seen;
          what += " " + hook.site;
          REQUIRE(session->hooks().add(hook).ok());
        }
        replan(*toy, *session);
        const auto logits = decode_all(*session, ids);
        INFO(name << " " << mode_name(mode) << what);
        if (mode == Mode::kReference) {
          expected = logits;
          events = seen.events;
          values = seen.values;
          if (!writes) {
            Setup plain;
            plain.n_ctx = 40;
            CHECK(same_bits(logits_of(*toy, plain, ids), logits));
          }
        } else {
          CHECK(same_bits(logits, expected));
          CHECK(seen.events == events);
          CHECK(same_bits(seen.values, values));
        }
      }
    }
  }
}

TEST_CASE("a hook de-fuses its own layer and no other") {
  const auto toy = make_toy(toy_of("llama", Format::kQ8_0));
  const auto session = make_session(*toy);
  HookSpec spec;
  spec.action = HookAction::kScale;
  spec.alpha = 1.0f;
  spec.site = "ffn_act";
  spec.layers = {1};
  REQUIRE(session->hooks().add(spec).ok());
  replan(*toy, *session);
  std::vector<float> row(320), plain(320);
  REQUIRE(session->decode(toy_ids(1), row.data(), false).ok());
  CHECK(session->fusion_counts()[5] == toy->program.layers.size() - 1);
  CHECK(session->plan().decode.layers[1].why_off[5].find("ffn_act") != std::string::npos);
  CHECK(session->plan().decode.layers[0].why_off[5].empty());
  REQUIRE(make_session(*toy)->decode(toy_ids(1), plain.data(), false).ok());
  CHECK(same_bits(row, plain));
}

TEST_CASE("unembed of the last layer's resid_post gives the logits' bits in every mode") {
  for (const auto& [name, spec] : plan_toys()) {
    const auto toy = make_toy(spec);
    for (const Mode mode : {Mode::kReference, Mode::kPlanned, Mode::kPlannedFused}) {
      Setup setup;
      setup.mode = mode;
      const auto session = make_session(*toy, setup);
      const int64_t E = toy->program.n_embd;
      std::vector<float> rows(static_cast<size_t>(19 * E)), out(19 * 320);
      HookSpec hook;
      hook.site = "resid_post";
      hook.layers = {static_cast<int32_t>(toy->program.layers.size()) - 1};
      hook.capture = rows.data();
      hook.capture_rows = 19;
      REQUIRE(session->hooks().add(hook).ok());
      replan(*toy, *session);
      const auto logits = decode_all(*session, toy_ids(19));
      REQUIRE(session->unembed(rows.data(), 19, out.data()).ok());
      INFO(name << " " << mode_name(mode));
      CHECK(same_bits(out, logits));
    }
  }
}

TEST_CASE("a plan of another session, or a damaged one, is refused when bound") {
  const auto toy = make_toy(toy_of("llama", Format::kQ8_0));
  const auto session = make_session(*toy);
  const PlanKey key = session->plan().key;
  const auto refused = [&](auto&& change) {
    PlanKey other = key;
    change(other);
    return code_of(session->bind(must_compile(toy->program, other))) == Code::kPlan;
  };
  CHECK(refused([](PlanKey& k) { k.n_threads = 2; }));
  CHECK(refused([](PlanKey& k) { k.kv = KvType::kF32; }));
  CHECK(refused([](PlanKey& k) { k.n_ctx = 17; }));
  CHECK(refused([](PlanKey& k) { k.prefill_chunk = 3; }));
  CHECK(refused([](PlanKey& k) { k.mode = Mode::kPlanned; }));
  auto damaged = std::make_shared<Plan>(session->plan());
  damaged->decode.layers[0].steps[0].kernels[0] = 100000;
  CHECK(code_of(session->bind(damaged)) == Code::kPlan);
  damaged = std::make_shared<Plan>(session->plan());
  damaged->prefill.arena.regions.back().offset += 64 * 1024 * 1024;
  CHECK(code_of(session->bind(damaged)) == Code::kPlan);
  std::vector<float> row(320);
  CHECK(session->decode(toy_ids(3), row.data(), false).ok());
}

TEST_CASE("the profile has a line for each step, and the parts make up the whole") {
  const auto toy = make_toy(toy_of("llama", Format::kQ8_0));
  for (const Mode mode : {Mode::kReference, Mode::kPlanned, Mode::kPlannedFused}) {
    Setup setup;
    setup.mode = mode;
    const auto session = make_session(*toy, setup);
    REQUIRE(session->start_profile().ok());
    std::vector<float> row(320);
    REQUIRE(session->decode(toy_ids(5), row.data(), false).ok());
    for (int32_t i = 0; i < 20; ++i) REQUIRE(session->decode({&i, 1}, row.data(), false).ok());
    session->stop_profile();
    const int32_t more = 3;
    REQUIRE(session->decode({&more, 1}, row.data(), false).ok());
    uint64_t parts = 0, whole = 0, bytes = 0, prefill_calls = 0;
    for (size_t i = 0; i < session->profile()->n_lines(); ++i) {
      const ProfileLine line = session->profile()->line(i);
      CHECK(line.median_ns <= line.p95_ns);
      if (line.prefill) {
        prefill_calls += line.label->op == "call" ? line.calls : 0;
        continue;
      }
      CHECK(line.calls == 20);
      if (line.label->op == "call") {
        whole = line.total_ns;
      } else {
        parts += line.total_ns;
        bytes += line.bytes;
      }
    }
    INFO(mode_name(mode));
    CHECK(prefill_calls == 1);
    CHECK(parts <= whole);
    CHECK(bytes >= 20 * toy->program.bytes_per_token);
  }
}

}  // namespace
}  // namespace engine
