// Hooks in the reference mode on toys: steering over prompt and generation, sites, captures, undone calls.
#include <cmath>
#include <map>
#include <vector>

#include "catch2/catch_test_macros.hpp"
#include "tests/unit/hook_kit.h"

namespace engine {
namespace {

int32_t keep_row(void*, const HookEvent&, float*) { return 0; }

ToyModel toy_of(const std::string& arch) {
  ToyModel toy;
  toy.arch = arch;
  toy.n_layer = arch == "gemma3" ? 7 : 3;
  if (arch == "gemma3") toy.window = 8;
  return toy;
}

// The values of a program's sites: layer (-1 outside), site, width.
struct Present {
  int32_t layer;
  Site site;
  int64_t width;
};
std::vector<Present> present_sites(const Program& program) {
  std::vector<Present> out;
  const auto n_layers = static_cast<int32_t>(program.layers.size());
  for (int32_t l = -1; l < n_layers; ++l) {
    const SiteShapes& shapes =
        l < 0 ? program.global_sites : program.layer_sites[static_cast<size_t>(l)];
    for (const SiteInfo& info : site_table()) {
      const SiteShape& shape = shapes[static_cast<size_t>(info.site)];
      if (!shape.present()) continue;
      out.push_back(
          {l, info.site, shape.width > 0 ? shape.width : shape.n_heads * HookRun::kContext});
    }
  }
  return out;
}

TEST_CASE("case 38: steering covers prompt and generated tokens, however they come") {
  for (const char* arch : {"llama", "gemma3"}) {
    const auto toy = make_hook_toy(toy_of(arch));
    const int64_t n_vocab = toy->program.n_vocab;
    const std::vector<int32_t> ids = hook_ids(30);
    HookSpec steer = hook_spec(HookAction::kAdd, "resid_post", {1});
    steer.values = noise_row(5, toy->program.n_embd);
    steer.alpha = 0.7f;

    HookRun whole(toy->program, 64);
    const uint64_t whole_id = whole.add(steer);
    const std::vector<float> expected = whole.decode(ids);
    CHECK(whole.stats(whole_id).positions == 30);
    CHECK(whole.stats(whole_id).calls == 1);
    HookRun clean(toy->program, 64);
    CHECK_FALSE(same_bits(clean.decode(ids), expected));

    for (const int64_t chunk : {1, 3, 4, 10}) {
      INFO(arch << " chunk " << chunk);
      HookRun run(toy->program, chunk);
      const uint64_t id = run.add(steer);
      std::vector<float> logits = run.decode(std::span(ids).first(10));
      for (size_t i = 10; i < 30; ++i) {
        const std::vector<float> row = run.decode(std::span(ids).subspan(i, 1));
        logits.insert(logits.end(), row.begin(), row.end());
      }
      CHECK(same_bits(logits, expected));
      const HookStats stats = run.stats(id);
      CHECK(stats.positions == 30);
      CHECK(stats.prefill_positions == 10);
      CHECK(stats.decode_positions == 20);
      CHECK(stats.writes == 30);
      CHECK(stats.calls == static_cast<uint64_t>((10 + chunk - 1) / chunk + 20));
    }
    // The prompt in calls of 3, 3 and 4.
    HookRun parts(toy->program, 64);
    const uint64_t id = parts.add(steer);
    std::vector<float> last;
    parts.kind = TokenKind::kPromptPart;
    for (const auto& [begin, n] : {std::pair{0, 3}, {3, 3}, {6, 4}}) {
      if (begin == 6) parts.kind = TokenKind::kPrompt;
      last =
          parts.decode(std::span(ids).subspan(static_cast<size_t>(begin), static_cast<size_t>(n)));
    }
    parts.kind = TokenKind::kAuto;
    for (size_t i = 10; i < 30; ++i) last = parts.decode(std::span(ids).subspan(i, 1));
    CHECK(same_bits(last, std::span(expected).last(static_cast<size_t>(n_vocab))));
    CHECK(parts.stats(id).positions == 30);
    CHECK(parts.stats(id).decode_positions == 20);
  }
}

TEST_CASE("every site of a model fires once per token and layer, and observing changes no bit") {
  for (const char* arch : {"llama", "gemma3"}) {
    const auto toy = make_hook_toy(toy_of(arch));
    const std::vector<int32_t> ids = hook_ids(12);
    HookRun clean(toy->program, 5);
    const std::vector<float> expected = clean.decode(ids);
    HookRun run(toy->program, 5);
    const std::vector<Present> sites = present_sites(toy->program);
    std::vector<CaptureBuffer> buffers;
    buffers.reserve(sites.size());
    std::vector<uint64_t> captures, reads;
    for (const Present& at : sites) {
      buffers.emplace_back(20, at.width);
      std::vector<int32_t> layers;
      if (at.layer >= 0) layers.push_back(at.layer);
      captures.push_back(run.add(buffers.back().spec(site_info(at.site).name, layers)));
      HookSpec read = hook_spec(HookAction::kRead, site_info(at.site).name, layers);
      read.callback = keep_row;
      reads.push_back(run.add(read));
    }
    CHECK(same_bits(run.decode(ids), expected));
    for (size_t i = 0; i < sites.size(); ++i) {
      INFO(arch << ' ' << site_info(sites[i].site).name << " layer " << sites[i].layer);
      CHECK(run.stats(captures[i]).positions == 12);
      CHECK(run.stats(captures[i]).rows_captured == 12);
      CHECK(run.stats(captures[i]).rows_dropped == 0);
      CHECK(run.stats(reads[i]).positions == 12);
      for (int64_t r = 0; r < 12; ++r) {
        const CaptureRecord& record = buffers[i].records[static_cast<size_t>(r)];
        REQUIRE(record.position == r);
        REQUIRE(record.sequence == 0);
        REQUIRE(record.token_id == ids[static_cast<size_t>(r)]);
        REQUIRE(record.site == static_cast<int32_t>(sites[i].site));
        REQUIRE(record.layer == sites[i].layer);
      }
      CHECK(buffers[i].row(12)[0] == -7.0f);
      if (sites[i].site == Site::kLogits) {
        CHECK(same_bits(std::span(buffers[i].values).first(expected.size()), expected));
      }
    }
  }
}

TEST_CASE(
    "writing back what is there changes no bit, and setting what was captured reproduces it") {
  for (const char* arch : {"llama", "gemma3"}) {
    const auto toy = make_hook_toy(toy_of(arch));
    const std::vector<int32_t> ids = hook_ids(9);
    const std::vector<int32_t> others(9, 40);
    HookRun clean(toy->program, 4);
    const std::vector<float> expected = clean.decode(ids);
    for (const Present& at : present_sites(toy->program)) {
      if (!site_info(at.site).writable) continue;
      INFO(arch << ' ' << site_info(at.site).name << " layer " << at.layer);
      std::vector<int32_t> layers;
      if (at.layer >= 0) layers.push_back(at.layer);
      HookRun run(toy->program, 4);
      HookSpec write = hook_spec(HookAction::kWrite, site_info(at.site).name, layers);
      write.callback = keep_row;
      CaptureBuffer buffer(9, at.width);
      const uint64_t writer = run.add(write);
      run.add(buffer.spec(site_info(at.site).name, layers));
      CHECK(same_bits(run.decode(ids), expected));
      CHECK(run.stats(writer).writes == 9);
      // Sites that everything below passes through: the run of other ids then gives the captured run's logits.
      HookRun patched(toy->program, 4);
      HookSpec replace = hook_spec(HookAction::kReplace, site_info(at.site).name, layers);
      replace.values = buffer.values;
      replace.records = buffer.records;
      const uint64_t patch = patched.add(replace);
      const std::vector<float> logits = patched.decode(others);
      CHECK(patched.stats(patch).writes == 9);
      const bool is_cut = at.site == Site::kEmbed || at.layer == -1 ||
                          at.site == Site::kResidPost || at.site == Site::kResidPre;
      const bool last_layer = at.layer == static_cast<int32_t>(toy->program.layers.size()) - 1;
      const bool first_layer = at.layer == 0;
      if (is_cut && (at.layer == -1 || (at.site == Site::kResidPost && last_layer) ||
                     (at.site == Site::kResidPre && first_layer))) {
        CHECK(same_bits(logits, expected));
      }
      // The same ids: every site reproduces.
      HookRun again(toy->program, 4);
      again.add(replace);
      CHECK(same_bits(again.decode(ids), expected));
    }
  }
}

TEST_CASE("SET at every writable site changes the logits that depend on it") {
  const auto toy = make_hook_toy(toy_of("gemma3"));
  const std::vector<int32_t> ids = hook_ids(6);
  HookRun clean(toy->program, 4);
  const std::vector<float> expected = clean.decode(ids);
  for (const Present& at : present_sites(toy->program)) {
    if (!site_info(at.site).writable) continue;
    INFO(site_info(at.site).name << " layer " << at.layer);
    HookRun run(toy->program, 4);
    HookSpec set = hook_spec(HookAction::kSet, site_info(at.site).name);
    if (at.layer >= 0) set.layers = {at.layer};
    set.values = noise_row(3, at.width);
    run.add(set);
    CHECK_FALSE(same_bits(run.decode(ids), expected));
  }
}

TEST_CASE(
    "case 39: a clean run after a steered one is the clean run; a failing callback undoes all") {
  const auto toy = make_hook_toy(toy_of("llama"));
  const std::vector<int32_t> ids = hook_ids(10);
  HookRun clean(toy->program, 4);
  const std::vector<float> expected = clean.decode(ids);

  struct Failing {
    int calls = 0;
    int fail_at = 0;
  };
  const auto fail = [](void* user, const HookEvent&, float*) -> int32_t {
    auto* state = static_cast<Failing*>(user);
    return state->calls++ == state->fail_at ? 5 : 0;
  };
  // 3 layers, 3 chunks.
  for (int k = 0; k < 10; ++k) {
    INFO("call " << k);
    HookRun run(toy->program, 4);
    Failing state;
    state.fail_at = k;
    HookSpec spec = hook_spec(HookAction::kWrite, "ffn_out");
    spec.callback = fail;
    spec.user = &state;
    const uint64_t id = run.add(spec);
    CaptureBuffer buffer(4, toy->program.n_embd);
    HookSpec ring = buffer.spec("resid_pre", {0});
    ring.capture_ring = true;
    const uint64_t capture = run.add(ring);
    std::vector<float> logits;
    const absl::Status status = run.try_decode(ids, &logits);
    CHECK(code_of(status) == (k < 9 ? Code::kHookFailed : Code::kOk));
    if (k < 9) {
      CHECK(status.message().find("ffn_out of layer") != std::string_view::npos);
      CHECK(run.stats(id).calls == 0);
      CHECK(run.stats(capture).rows_captured == 0);
      CHECK(run.position == 0);
      CHECK(same_bits(run.decode(ids), expected));
    }
    CHECK(run.stats(id).calls == 9);
    CHECK(run.stats(id).writes == 30);
    CHECK(run.stats(capture).rows_captured == 10);
    CHECK(buffer.records[1].position == 9);
    CHECK(buffer.records[2].position == 6);
  }
}

TEST_CASE("a value that a hook makes non-finite is found by the engine's own check") {
  const auto toy = make_hook_toy(toy_of("llama"));
  HookRun run(toy->program, 4);
  HookSpec spec = hook_spec(HookAction::kSet, "resid_mid", {1});
  spec.values = noise_row(1, toy->program.n_embd);
  spec.values[3] = INFINITY;
  run.add(spec);
  std::vector<float> logits;
  CHECK(code_of(run.try_decode(hook_ids(3), &logits)) == Code::kNonFinite);
}

// z = pattern · v, with the values as the hooks saw them.
TEST_CASE("attn_pattern times v is attn_z, scores give the pattern, and the window is seen") {
  for (const char* arch : {"llama", "gemma3"}) {
    const auto toy = make_hook_toy(toy_of(arch));
    const std::vector<int32_t> ids = hook_ids(14);
    HookRun run(toy->program, 5, KvType::kF32);
    const int64_t n_ctx = HookRun::kContext, H = 4, G = 2, D = 16;
    CaptureBuffer scores(14, H * n_ctx), pattern(14, H * n_ctx), v(14, G * D), z(14, H * D);
    run.add(scores.spec("attn_scores", {1}));
    run.add(pattern.spec("attn_pattern", {1}));
    run.add(v.spec("v", {1}));
    run.add(z.spec("attn_z", {1}));
    run.decode(ids);
    for (int64_t t = 0; t < 14; ++t) {
      for (int64_t h = 0; h < H; ++h) {
        const float* s = scores.row(t).data() + h * n_ctx;
        const float* p = pattern.row(t).data() + h * n_ctx;
        double sum = 0.0;
        for (int64_t j = 0; j < n_ctx; ++j) {
          const bool seen = j <= t && (std::string(arch) == "llama" || t - j < 8);
          INFO(arch << ' ' << t << ' ' << h << ' ' << j);
          REQUIRE((s[j] > -INFINITY) == seen);
          REQUIRE((p[j] > 0.0f) == seen);
          sum += static_cast<double>(p[j]);
        }
        CHECK(std::fabs(sum - 1.0) < 1e-6);
        for (int64_t d = 0; d < D; ++d) {
          double expected = 0.0;
          for (int64_t j = 0; j <= t; ++j) {
            expected += static_cast<double>(p[j]) *
                        static_cast<double>(v.row(j)[static_cast<size_t>(h / (H / G) * D + d)]);
          }
          const auto got = static_cast<double>(z.row(t)[static_cast<size_t>(h * D + d)]);
          // Some 14 roundings of terms below |v| max = 4 at 2^-24 each.
          REQUIRE(std::fabs(got - expected) < 1e-5);
        }
      }
    }
  }
}

}  // namespace
}  // namespace engine
