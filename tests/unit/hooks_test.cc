// The registry by hand: firing order, rows of a chunk, counters, rings, undoing, generated tokens, scopes.
#include "lib/session/hooks.h"

#include <functional>
#include <string>
#include <vector>

#include "catch2/catch_test_macros.hpp"
#include "tests/unit/hook_kit.h"

namespace engine {
namespace {

constexpr int64_t kWidth = 4;
constexpr int64_t kStride = 6;  // of the values array; two floats of each row belong to nobody
constexpr int64_t kHeads = 2;
constexpr int64_t kContext = 100;
constexpr int32_t kSequence = 3;

Program small_program() {
  Program program;
  program.layers.resize(2);
  program.layer_sites.resize(2);
  for (SiteShapes& shapes : program.layer_sites) {
    shapes[static_cast<size_t>(Site::kQ)] = {0, kWidth, kHeads};
    shapes[static_cast<size_t>(Site::kResidPost)] = {1, kWidth, 0};
    shapes[static_cast<size_t>(Site::kAttnScores)] = {0, 0, kHeads};
    shapes[static_cast<size_t>(Site::kAttnPattern)] = {0, 0, kHeads};
  }
  program.layer_sites[0][static_cast<size_t>(Site::kFfnAct)] = {2, 3, 0};
  program.layer_sites[1][static_cast<size_t>(Site::kFfnAct)] = {2, 5, 0};
  program.global_sites[static_cast<size_t>(Site::kLogits)] = {3, kWidth, 0};
  return program;
}

// Rows whose value i of position p is 10 p + i.
struct Chunk {
  std::vector<int32_t> ids;
  std::vector<float> values;
  int64_t first;
  Chunk(int64_t first_position, int64_t n) : first(first_position) {
    for (int64_t r = 0; r < n; ++r) {
      ids.push_back(static_cast<int32_t>(500 + first + r));
      for (int64_t i = 0; i < kStride; ++i) {
        values.push_back(i < kWidth ? static_cast<float>(10 * (first + r) + i) : -1.0f);
      }
    }
  }
  HookRows rows() const { return {ids.data(), static_cast<int64_t>(ids.size()), first}; }
  float at(int64_t row, int64_t i) const { return values[static_cast<size_t>(row * kStride + i)]; }
};

struct Kit {
  Program program = small_program();
  Hooks hooks{program, kContext, 8, kSequence};

  uint64_t add(HookSpec spec) {
    auto id = hooks.add(std::move(spec));
    INFO(id.status().message());
    REQUIRE(id.ok());
    return *id;
  }
  HookStats stats(uint64_t id) { return *hooks.stats(id); }
  absl::Status fire(Chunk* chunk, Site site = Site::kResidPost, int32_t layer = 0) {
    return hooks.fire(site, layer, chunk->rows(), chunk->values.data(), kStride);
  }
  // One call of one chunk.
  Chunk call(int64_t first, int64_t n, TokenKind kind = TokenKind::kAuto) {
    Chunk chunk(first, n);
    hooks.begin_call(kind, first, n);
    REQUIRE(fire(&chunk).ok());
    hooks.commit();
    return chunk;
  }
};

// A callback that runs what a test gives it.
using Seen = std::function<int32_t(const HookEvent&, float*)>;
HookSpec calling(HookAction action, Seen* seen, std::vector<int32_t> layers = {0}) {
  HookSpec spec = hook_spec(action, "resid_post", std::move(layers));
  spec.callback = [](void* user, const HookEvent& event, float* values) {
    return (*static_cast<Seen*>(user))(event, values);
  };
  spec.user = seen;
  return spec;
}

TEST_CASE("captures come first, then writers and readers as registered, then post captures") {
  Kit kit;
  CaptureBuffer before(1, kWidth), after(1, kWidth);
  std::string order;
  float read_first = 0, read_last = 0;
  Seen first = [&](const HookEvent&, float* v) {
    order += '1';
    read_first = v[0];
    return 0;
  };
  Seen last = [&](const HookEvent&, float* v) {
    order += '3';
    read_last = v[0];
    return 0;
  };
  Seen write = [&](const HookEvent&, float* v) {
    order += '2';
    v[0] *= 2;
    return 0;
  };
  HookSpec post = after.spec("resid_post", {0});
  post.capture_post = true;
  kit.add(post);
  kit.add(calling(HookAction::kRead, &first));
  HookSpec add = hook_spec(HookAction::kAdd, "resid_post", {0});
  add.values = {1, 0, 0, 0};
  kit.add(add);
  kit.add(calling(HookAction::kWrite, &write));
  kit.add(calling(HookAction::kRead, &last));
  kit.add(before.spec("resid_post", {0}));
  const Chunk chunk = kit.call(2, 1);
  CHECK(order == "123");
  CHECK(before.row(0)[0] == 20.0f);
  CHECK(read_first == 20.0f);
  CHECK(read_last == 42.0f);
  CHECK(chunk.at(0, 0) == 42.0f);
  CHECK(after.row(0)[0] == 42.0f);
  CHECK(chunk.at(0, 4) == -1.0f);
  CHECK(before.records[0].position == 2);
  CHECK(before.records[0].sequence == kSequence);
  CHECK(before.records[0].token_id == 502);
  CHECK(before.records[0].site == static_cast<int32_t>(Site::kResidPost));
  CHECK(before.records[0].layer == 0);
}

TEST_CASE("a callback gets the selected rows only, and they go back to their places") {
  Kit kit;
  HookEvent event{};
  std::vector<int64_t> positions;
  std::vector<int32_t> ids;
  std::vector<float> values;
  Seen seen = [&](const HookEvent& e, float* v) {
    event = e;
    positions.assign(e.positions, e.positions + e.n_rows);
    ids.assign(e.token_ids, e.token_ids + e.n_rows);
    values.assign(v, v + e.n_rows * e.width);
    for (int64_t i = 0; i < e.n_rows * e.width; ++i) v[i] = -v[i];
    return 0;
  };
  HookSpec spec = calling(HookAction::kWrite, &seen, {0, 1});
  spec.select = PositionSelect::kList;
  spec.positions = {13, 11, 40};
  const uint64_t id = kit.add(spec);
  Chunk chunk(10, 5);
  kit.hooks.begin_call(TokenKind::kPrompt, 10, 5);
  REQUIRE(kit.fire(&chunk, Site::kResidPost, 1).ok());
  kit.hooks.commit();
  CHECK(event.site == Site::kResidPost);
  CHECK(event.layer == 1);
  CHECK(event.sequence == kSequence);
  CHECK_FALSE(event.generated);
  CHECK(event.width == kWidth);
  CHECK(positions == std::vector<int64_t>{11, 13});
  CHECK(ids == std::vector<int32_t>{511, 513});
  CHECK(values == std::vector<float>{110, 111, 112, 113, 130, 131, 132, 133});
  for (int64_t row = 0; row < 5; ++row) {
    const bool changed = row == 1 || row == 3;
    for (int64_t i = 0; i < kWidth; ++i) {
      CHECK(chunk.at(row, i) == (changed ? -1.0f : 1.0f) * static_cast<float>(100 + 10 * row + i));
    }
    CHECK(chunk.at(row, 5) == -1.0f);
  }
  CHECK(kit.stats(id).calls == 1);
  CHECK(kit.stats(id).positions == 2);
  CHECK(kit.stats(id).writes == 2);
  // A chunk without a selected token does not count.
  kit.call(20, 8);
  CHECK(kit.stats(id).calls == 1);
}

TEST_CASE("what a READ callback leaves in its copy goes nowhere") {
  Kit kit;
  Seen spoil = [](const HookEvent& e, float* v) {
    for (int64_t i = 0; i < e.n_rows * e.width; ++i) v[i] = 99;
    return 0;
  };
  const uint64_t id = kit.add(calling(HookAction::kRead, &spoil));
  const Chunk chunk = kit.call(1, 3);
  CHECK(chunk.values == Chunk(1, 3).values);
  CHECK(kit.stats(id).writes == 0);
}

TEST_CASE("head selectors leave other heads alone, in callbacks too") {
  Kit kit;
  Seen seen = [](const HookEvent& e, float* v) {
    for (int64_t i = 0; i < e.n_rows * e.width; ++i) v[i] = 7;
    return 0;
  };
  HookSpec spec = calling(HookAction::kWrite, &seen);
  spec.site = "q";
  spec.heads = {1};
  kit.add(spec);
  HookSpec scale = hook_spec(HookAction::kScale, "q", {0});
  scale.alpha = 10;
  scale.heads = {0};
  kit.add(scale);
  Chunk chunk(1, 2);
  kit.hooks.begin_call(TokenKind::kPrompt, 1, 2);
  REQUIRE(kit.fire(&chunk, Site::kQ).ok());
  for (int64_t row = 0; row < 2; ++row) {
    CHECK(chunk.at(row, 0) == static_cast<float>(100 * (row + 1)));
    CHECK(chunk.at(row, 1) == static_cast<float>(100 * (row + 1) + 10));
    CHECK(chunk.at(row, 2) == 7);
    CHECK(chunk.at(row, 3) == 7);
  }
}

TEST_CASE("buffers drop what does not fit, rings begin anew") {
  Kit kit;
  CaptureBuffer buffer(3, kWidth), ring(3, kWidth);
  const uint64_t dropping = kit.add(buffer.spec("resid_post", {0}));
  HookSpec ring_spec = ring.spec("resid_post", {0});
  ring_spec.capture_ring = true;
  ring_spec.capture_records = nullptr;
  const uint64_t turning = kit.add(ring_spec);
  kit.call(0, 2);
  kit.call(2, 3);
  CHECK(kit.stats(dropping).rows_captured == 3);
  CHECK(kit.stats(dropping).rows_dropped == 2);
  CHECK(buffer.row(2)[0] == 20.0f);
  CHECK(buffer.records[2].position == 2);
  CHECK(kit.stats(turning).rows_captured == 5);
  CHECK(kit.stats(turning).rows_dropped == 0);
  CHECK(ring.row(0)[0] == 30.0f);
  CHECK(ring.row(1)[1] == 41.0f);
  CHECK(ring.row(2)[0] == 20.0f);
}

TEST_CASE("roll_back takes counters, cursors and the count of generated tokens back") {
  Kit kit;
  CaptureBuffer buffer(8, kWidth);
  HookSpec spec = buffer.spec("resid_post", {0});
  spec.select = PositionSelect::kGenerated;
  spec.position_begin = 1;
  spec.position_end = 3;
  const uint64_t id = kit.add(spec);
  kit.call(0, 5);
  kit.call(5, 1);
  kit.call(6, 1);
  CHECK(kit.stats(id).positions == 1);
  for (int attempt = 0; attempt < 3; ++attempt) {
    // A prompt that is undone does not restart the numbers, a generated token does not advance them.
    for (const TokenKind kind : {TokenKind::kPrompt, TokenKind::kGenerated}) {
      Chunk chunk(7, 1);
      kit.hooks.begin_call(kind, 7, 1);
      REQUIRE(kit.fire(&chunk).ok());
      CHECK(kit.stats(id).positions == 1);
      kit.hooks.roll_back();
      CHECK(kit.stats(id).positions == 1);
      CHECK(kit.stats(id).rows_captured == 1);
    }
  }
  kit.call(7, 1);
  kit.call(8, 1);
  CHECK(kit.stats(id).positions == 2);
  CHECK(kit.stats(id).decode_positions == 2);
  CHECK(buffer.records[0].position == 6);
  CHECK(buffer.records[1].position == 7);
  CHECK(buffer.records[2].position == 0);
}

TEST_CASE("generated tokens: kinds, several per call, chunks, new prompts, rewinding") {
  Kit kit;
  std::vector<int64_t> generated, last;
  Seen on_generated = [&](const HookEvent& e, float*) {
    CHECK(e.generated);
    generated.insert(generated.end(), e.positions, e.positions + e.n_rows);
    return 0;
  };
  Seen on_last = [&](const HookEvent& e, float*) {
    CHECK_FALSE(e.generated);
    last.insert(last.end(), e.positions, e.positions + e.n_rows);
    return 0;
  };
  HookSpec spec = calling(HookAction::kRead, &on_generated);
  spec.select = PositionSelect::kGenerated;
  spec.position_begin = 2;
  spec.position_end = 4;
  kit.add(spec);
  HookSpec ends = calling(HookAction::kRead, &on_last);
  ends.select = PositionSelect::kLastOfPrompt;
  kit.add(ends);
  const auto expect = [&](std::vector<int64_t> want_generated, std::vector<int64_t> want_last) {
    CHECK(generated == want_generated);
    CHECK(last == want_last);
    generated.clear();
    last.clear();
  };
  kit.call(0, 1);  // one token, but the first: a prompt
  expect({}, {0});
  kit.call(1, 1);
  kit.call(2, 1);
  kit.call(3, 1);  // k = 2
  expect({3}, {});
  kit.call(4, 3);  // by AUTO a prompt
  expect({}, {6});
  kit.call(7, 5, TokenKind::kGenerated);  // k = 0 .. 4
  expect({9, 10}, {});
  kit.call(12, 2, TokenKind::kPromptPart);
  expect({}, {});
  kit.call(14, 1, TokenKind::kPrompt);
  expect({}, {14});
  // One call in two chunks.
  kit.hooks.begin_call(TokenKind::kPrompt, 15, 6);
  Chunk front(15, 4), back(19, 2);
  REQUIRE(kit.fire(&front).ok());
  REQUIRE(kit.fire(&back).ok());
  kit.hooks.commit();
  expect({}, {20});
  kit.call(21, 3, TokenKind::kGenerated);
  expect({23}, {});
  kit.call(22, 3, TokenKind::kGenerated);  // rewound by two: k = 1 .. 3
  expect({23, 24}, {});
  kit.call(18, 3, TokenKind::kGenerated);  // rewound behind the prompt: k = 0 .. 2
  expect({20}, {});
}

TEST_CASE("a callback that fails stops the firing and is named") {
  Kit kit;
  int calls = 0;
  Seen good = [&](const HookEvent&, float*) {
    ++calls;
    return 0;
  };
  Seen failing = [&](const HookEvent&, float*) { return ++calls == 2 ? -4 : 0; };
  kit.add(calling(HookAction::kRead, &good));
  kit.add(calling(HookAction::kWrite, &failing));
  kit.add(calling(HookAction::kRead, &good));
  Chunk chunk(5, 2);
  kit.hooks.begin_call(TokenKind::kAuto, 5, 2);
  const absl::Status status = kit.fire(&chunk);
  CHECK(code_of(status) == Code::kHookFailed);
  CHECK(status.message() ==
        "the callback of hook 2 returned -4 at resid_post of layer 0, position 5");
  CHECK(calls == 2);
  CHECK(chunk.values == Chunk(5, 2).values);
}

TEST_CASE("hooks of scopes go with their scope, and no others") {
  Kit kit;
  const uint64_t outer = kit.hooks.open_scope(), inner = kit.hooks.open_scope();
  CHECK(outer != inner);
  const auto scaled = [](float alpha, uint64_t scope) {
    HookSpec spec = hook_spec(HookAction::kScale, "resid_post", {0});
    spec.alpha = alpha;
    spec.scope = scope;
    return spec;
  };
  const uint64_t a = kit.add(scaled(2, outer)), b = kit.add(scaled(3, inner));
  const uint64_t c = kit.add(scaled(5, 0)), d = kit.add(scaled(7, inner));
  CHECK(kit.call(1, 1).at(0, 0) == 2100.0f);
  REQUIRE(kit.hooks.close_scope(inner).ok());
  CHECK(kit.call(2, 1).at(0, 0) == 200.0f);
  CHECK_FALSE(kit.hooks.stats(b).ok());
  CHECK_FALSE(kit.hooks.stats(d).ok());
  CHECK(kit.stats(a).positions == 2);
  CHECK(kit.stats(c).positions == 2);
  CHECK(code_of(kit.hooks.close_scope(inner)) == Code::kArgument);
  CHECK(code_of(kit.hooks.add(scaled(2, inner)).status()) == Code::kArgument);
  REQUIRE(kit.hooks.close_scope(outer).ok());
  CHECK(kit.call(3, 1).at(0, 0) == 150.0f);
  REQUIRE(kit.hooks.remove(c).ok());
  CHECK(kit.hooks.empty());
  CHECK_FALSE(kit.hooks.wants(Site::kResidPost, 0));
  CHECK(code_of(kit.hooks.remove(c)) == Code::kArgument);
  CHECK(code_of(kit.hooks.close_scope(0)) == Code::kArgument);
  CHECK(kit.add(scaled(2, 0)) == d + 1);  // numbers are not used again
}

TEST_CASE("closing an outer scope leaves an inner one and the session's hooks") {
  Kit kit;
  const uint64_t outer = kit.hooks.open_scope(), inner = kit.hooks.open_scope();
  HookSpec spec = hook_spec(HookAction::kScale, "resid_post", {0});
  spec.alpha = 2;
  kit.add(spec);
  spec.scope = outer;
  kit.add(spec);
  spec.scope = inner;
  kit.add(spec);
  REQUIRE(kit.hooks.close_scope(outer).ok());
  CHECK(kit.call(1, 1).at(0, 0) == 40.0f);
  REQUIRE(kit.hooks.close_scope(inner).ok());
  CHECK(kit.call(2, 1).at(0, 0) == 40.0f);
}

TEST_CASE("a removal in two halves can be called off") {
  Kit kit;
  const uint64_t scope = kit.hooks.open_scope();
  HookSpec zero = hook_spec(HookAction::kZero, "resid_post", {0});
  const uint64_t id = kit.add(zero);
  zero.layers = {1};
  zero.scope = scope;
  kit.add(zero);
  std::vector<SiteMask> layers;
  SiteMask global = 0;
  const SiteMask bit = site_bit(Site::kResidPost);
  const auto masks = [&] {
    kit.hooks.masks(&layers, &global);
    return layers;
  };
  CHECK(masks() == std::vector<SiteMask>{bit, bit});
  REQUIRE(kit.hooks.begin_remove(id).ok());
  CHECK(masks() == std::vector<SiteMask>{0, bit});
  kit.hooks.end_removal(false);
  CHECK(masks() == std::vector<SiteMask>{bit, bit});
  REQUIRE(kit.hooks.begin_close_scope(scope).ok());
  CHECK(masks() == std::vector<SiteMask>{bit, 0});
  kit.hooks.end_removal(false);
  CHECK(masks() == std::vector<SiteMask>{bit, bit});
  CHECK(kit.hooks.wants(Site::kResidPost, 1));
  REQUIRE(kit.hooks.begin_close_scope(scope).ok());
  kit.hooks.end_removal(true);
  CHECK_FALSE(kit.hooks.wants(Site::kResidPost, 1));
  CHECK(kit.hooks.wants(Site::kResidPost, 0));
  CHECK(code_of(kit.hooks.close_scope(scope)) == Code::kArgument);
}

TEST_CASE("global sites have layer -1, widths may differ by layer where nothing depends on them") {
  Kit kit;
  HookSpec logits = hook_spec(HookAction::kScale, "logits");
  logits.alpha = 0.5f;
  kit.add(logits);
  CHECK(kit.hooks.wants(Site::kLogits, -1));
  CHECK_FALSE(kit.hooks.wants(Site::kLogits, 0));
  std::vector<SiteMask> layers;
  SiteMask global = 0;
  kit.hooks.masks(&layers, &global);
  CHECK(global == site_bit(Site::kLogits));
  HookSpec clamp = hook_spec(HookAction::kClamp, "ffn_act");
  clamp.high = 1;
  const uint64_t id = kit.add(clamp);
  Chunk chunk(1, 1);
  kit.hooks.begin_call(TokenKind::kAuto, 1, 1);
  REQUIRE(kit.fire(&chunk, Site::kFfnAct, 0).ok());
  CHECK(chunk.at(0, 2) == 1.0f);
  CHECK(chunk.at(0, 3) == 13.0f);  // width 3 in layer 0
  kit.hooks.commit();
  CHECK(kit.stats(id).positions == 1);
  HookSpec set = hook_spec(HookAction::kSet, "ffn_act");
  set.values = {1, 2, 3};
  const absl::Status status = kit.hooks.add(set).status();
  CHECK(status.message().find("a hook each") != std::string_view::npos);
  set.layers = {0};
  kit.add(set);
}

TEST_CASE("what cannot be registered leaves the set as it was") {
  Kit kit;
  float room[8];
  Seen seen = [](const HookEvent&, float*) { return 0; };
  std::vector<HookSpec> wrong;
  const auto spec = [](HookAction action, const char* site = "resid_post") {
    return hook_spec(action, site);
  };
  wrong.push_back(spec(static_cast<HookAction>(0)));
  wrong.push_back(spec(static_cast<HookAction>(4)));
  wrong.push_back(spec(static_cast<HookAction>(19)));
  wrong.push_back(spec(HookAction::kRead));     // no callback
  wrong.push_back(spec(HookAction::kCapture));  // no buffer
  wrong.push_back(spec(HookAction::kCapture));
  wrong.back().capture = room;  // no rows
  wrong.push_back(calling(HookAction::kZero, &seen));
  wrong.push_back(spec(HookAction::kZero));
  wrong.back().capture_post = true;
  wrong.push_back(calling(HookAction::kRead, &seen));
  wrong.back().values = {1};
  wrong.push_back(spec(HookAction::kZero, "attn_scores"));  // not writable
  wrong.push_back(calling(HookAction::kWrite, &seen));
  wrong.back().site = "attn_pattern";
  wrong.push_back(spec(HookAction::kZero));
  wrong.back().sequences = {2};
  wrong.push_back(spec(HookAction::kZero));
  wrong.back().heads = {0};
  wrong.push_back(spec(HookAction::kZero));
  wrong.back().scope = 9;
  wrong.push_back(spec(HookAction::kZero, "rezid_post"));
  for (size_t i = 0; i < wrong.size(); ++i) {
    INFO("spec " << i);
    CHECK(code_of(kit.hooks.add(wrong[i]).status()) == Code::kArgument);
    CHECK(kit.hooks.empty());
    CHECK_FALSE(kit.hooks.wants(Site::kResidPost, 0));
  }
  Chunk chunk(0, 9);
  CHECK(code_of(kit.fire(&chunk)) == Code::kInternal);  // more rows than a chunk has
}

// Score of row, head and key: 100 row + 10 head + key.
class CountingProbe final : public AttentionProbe {
 public:
  explicit CountingProbe(int64_t first) : first_(first) {}
  void scores(int64_t row, int64_t head, float* out) const override {
    ++calls;
    for (int64_t j = 0; j <= first_ + row; ++j) {
      out[j] = static_cast<float>(100 * row + 10 * head + j);
    }
  }
  mutable int calls = 0;

 private:
  int64_t first_;
};

TEST_CASE("attention sites: chosen heads and rows only, one callback per row") {
  Kit kit;
  CaptureBuffer all(4, kHeads * kContext), one(4, kHeads * kContext);
  kit.add(all.spec("attn_scores", {1}));
  HookSpec spec = one.spec("attn_scores", {1});
  spec.heads = {1};
  spec.select = PositionSelect::kList;
  spec.positions = {6};
  kit.add(spec);
  std::vector<int64_t> positions;
  float pattern = 0;
  Seen seen = [&](const HookEvent& e, float* v) {
    CHECK(e.n_rows == 1);
    CHECK(e.width == kHeads * kContext);
    positions.push_back(e.positions[0]);
    pattern = v[e.positions[0]];
    return 0;
  };
  HookSpec read = calling(HookAction::kRead, &seen, {1});
  read.site = "attn_pattern";
  const uint64_t id = kit.add(read);
  Chunk chunk(5, 3);
  kit.hooks.begin_call(TokenKind::kPrompt, 5, 3);
  const CountingProbe probe(5);
  REQUIRE(kit.hooks.fire_attention(Site::kAttnScores, 1, chunk.rows(), probe).ok());
  CHECK(probe.calls == 3 * 2 + 1);
  REQUIRE(kit.hooks.fire_attention(Site::kAttnPattern, 1, chunk.rows(), probe).ok());
  kit.hooks.commit();
  CHECK(all.row(2)[kContext + 7] == 217.0f);
  CHECK(all.row(2)[kContext + 8] == -INFINITY);
  CHECK(all.row(0)[5] == 5.0f);
  CHECK(all.row(0)[6] == -INFINITY);
  CHECK(all.records[2].position == 7);
  CHECK(one.records[0].position == 6);
  CHECK(one.row(0)[0] == 0.0f);
  CHECK(one.row(0)[50] == 0.0f);
  CHECK(one.row(0)[kContext + 6] == 116.0f);
  CHECK(one.row(1)[0] == -7.0f);
  CHECK(positions == std::vector<int64_t>{5, 6, 7});
  CHECK(pattern > 0.63f);  // the last key's score is the largest by 1: 1 / (1 + 1/e + ...)
  CHECK(pattern < 0.64f);
  CHECK(kit.stats(id).calls == 1);
  CHECK(kit.stats(id).positions == 3);
}

}  // namespace
}  // namespace engine
