// Case 34: saved sessions and samplers, damaged in every way, of other models and settings; portable snapshots.
#include "lib/session/snapshot.h"

#include <limits>
#include <map>

#include "catch2/generators/catch_generators.hpp"
#include "lib/sample/sampler.h"
#include "lib/session/kv_export.h"
#include "nlohmann/json.hpp"
#include "tests/unit/session_toy.h"

namespace engine {
namespace {

constexpr Hash128 kModel{0x1234, 0x5678};
using Bytes = std::vector<uint8_t>;

Bytes saved(const Session& session, const Hash128& model = kModel) {
  Bytes bytes;
  const absl::Status status = save_snapshot(session, model, [&](const void* data, uint64_t n) {
    const auto* from = static_cast<const uint8_t*>(data);
    bytes.insert(bytes.end(), from, from + n);
    return absl::OkStatus();
  });
  REQUIRE(status.ok());
  CHECK(bytes.size() == snapshot_bytes(session));  // the size query is exact
  return bytes;
}

ToyModel small_toy() {
  ToyModel spec;
  spec.n_layer = 1;
  return spec;
}

// What the session says next, without changing it.
std::vector<float> next_logits(Session& session) {
  const int64_t n = session.position();
  const int32_t id = 42;
  std::vector<float> logits(320);
  REQUIRE(session.decode({&id, 1}, logits.data(), false).ok());
  REQUIRE(session.truncate(n).ok());
  return logits;
}

TEST_CASE("a restored session goes on with the same bits, for every length, mode and KV type") {
  const std::string arch = GENERATE("gemma3", "gemma4");  // windows; and keys of other layers
  const auto toy = make_toy(windowed_toy(arch));
  for (const KvType kv : {KvType::kF16, KvType::kF32}) {
    for (const size_t n : {0u, 1u, 63u, 64u, 100u}) {
      Setup from;
      from.kv = kv;
      Setup to = from;
      to.n_ctx = 200;
      to.mode = Mode::kReference;
      to.chunk = 7;
      const auto a = make_session(*toy, from);
      if (n > 0) decode_all(*a, toy_ids(n));
      const Bytes bytes = saved(*a);
      const auto b = make_session(*toy, to);
      decode_all(*b, toy_ids(5));
      REQUIRE(restore_snapshot(bytes, kModel, b.get()).ok());
      CHECK(b->position() == static_cast<int64_t>(n));
      CHECK(saved(*b) == bytes);
      const auto tail = toy_ids(30);
      CHECK(same_bits(decode_all(*a, tail), decode_all(*b, tail)));
    }
  }
}

TEST_CASE("numbering of generated tokens and kinds of tokens survive") {
  const auto toy = make_toy(small_toy());
  HookSpec write;
  write.action = HookAction::kScale;
  write.site = "resid_post";
  write.alpha = 3.0f;
  write.select = PositionSelect::kGenerated;
  write.position_begin = 2;
  write.position_end = 4;
  const auto steered = [&] {
    auto session = make_session(*toy);
    REQUIRE(session->hooks().add(write).ok());
    replan(*toy, *session);
    return session;
  };
  const auto a = steered();
  decode_all(*a, toy_ids(10));
  for (const int32_t id : {3, 4, 5}) decode_all(*a, {id});
  a->tokens_are(TokenKind::kGenerated);
  const auto b = steered();
  REQUIRE(restore_snapshot(saved(*a), kModel, b.get()).ok());
  CHECK(b->token_kind() == TokenKind::kGenerated);
  CHECK(b->history().runs().size() == a->history().runs().size());
  for (const int32_t id : {6, 7, 8}) CHECK(same_bits(decode_all(*a, {id}), decode_all(*b, {id})));
}

TEST_CASE("cut at every length and every byte flipped: CORRUPT, and the target is untouched") {
  const auto toy = make_toy(small_toy());
  Setup setup;
  setup.n_ctx = 8;
  const auto a = make_session(*toy, setup);
  decode_all(*a, toy_ids(3));
  Bytes bytes = saved(*a);
  const auto b = make_session(*toy, setup);
  decode_all(*b, toy_ids(6));
  const Bytes before = saved(*b);
  const auto expected = next_logits(*b);
  for (size_t n = 0; n < bytes.size(); ++n) {
    if (code_of(restore_snapshot(std::span(bytes).first(n), kModel, b.get())) != Code::kCorrupt) {
      FAIL("cut at " << n);
    }
  }
  for (size_t i = 0; i < bytes.size(); ++i) {
    for (const uint8_t flip : {0x01, 0x80, 0xff}) {
      bytes[i] ^= flip;
      if (code_of(restore_snapshot(bytes, kModel, b.get())) != Code::kCorrupt) FAIL("byte " << i);
      bytes[i] ^= flip;
    }
  }
  bytes.push_back(0);
  CHECK(code_of(restore_snapshot(bytes, kModel, b.get())) == Code::kCorrupt);
  bytes.pop_back();
  CHECK(saved(*b) == before);
  CHECK(same_bits(next_logits(*b), expected));
  CHECK(restore_snapshot(bytes, kModel, b.get()).ok());
}

TEST_CASE("another model, KV type, version, or too small a context: a code of its own") {
  const auto toy = make_toy(small_toy());
  Setup setup;
  setup.n_ctx = 100;
  const auto a = make_session(*toy, setup);
  decode_all(*a, toy_ids(90));
  const Bytes bytes = saved(*a);
  const auto same = make_session(*toy, setup);
  decode_all(*same, toy_ids(4));
  const Bytes before = saved(*same);
  CHECK(code_of(restore_snapshot(bytes, {1, 2}, same.get())) == Code::kModelMismatch);
  Setup other = setup;
  other.kv = KvType::kF32;
  CHECK(code_of(restore_snapshot(bytes, kModel, make_session(*toy, other).get())) ==
        Code::kKvMismatch);
  other = setup;
  other.n_ctx = 89;
  CHECK(code_of(restore_snapshot(bytes, kModel, make_session(*toy, other).get())) ==
        Code::kContextFull);
  other.n_ctx = 90;
  CHECK(restore_snapshot(bytes, kModel, make_session(*toy, other).get()).ok());
  // A later version with a good checksum.
  Bytes later(bytes.begin(), bytes.end() - static_cast<std::ptrdiff_t>(kSealBytes));
  later[8] = 2;
  const Hash128 hash = hash128(later.data(), later.size());
  for (const uint64_t half : {hash.low, hash.high}) {
    for (int i = 0; i < 8; ++i) later.push_back(static_cast<uint8_t>(half >> 8 * i));
  }
  CHECK(code_of(restore_snapshot(later, kModel, same.get())) == Code::kTooNew);
  CHECK(saved(*same) == before);
}

TEST_CASE("well-sealed lies are found: ids, runs, lengths") {
  const auto toy = make_toy(small_toy());
  Setup setup;
  setup.n_ctx = 8;
  const auto a = make_session(*toy, setup);
  decode_all(*a, toy_ids(3));
  const Bytes good = saved(*a);
  const auto b = make_session(*toy, setup);
  const auto with = [&](size_t at, uint8_t value) {
    Bytes bytes(good.begin(), good.end() - static_cast<std::ptrdiff_t>(kSealBytes));
    bytes[at] = value;
    const Hash128 hash = hash128(bytes.data(), bytes.size());
    for (const uint64_t half : {hash.low, hash.high}) {
      for (int i = 0; i < 8; ++i) bytes.push_back(static_cast<uint8_t>(half >> 8 * i));
    }
    return code_of(restore_snapshot(bytes, kModel, b.get()));
  };
  const size_t fields = kSealedHeadBytes;
  CHECK(with(fields + 16, 9) == Code::kKvMismatch);
  CHECK(with(fields + 20, 9) == Code::kCorrupt);  // kind of tokens
  CHECK(with(fields + 24, 2) == Code::kCorrupt);  // n
  CHECK(with(fields + 31, 0x80) == Code::kContextFull);
  CHECK(with(fields + 32, 2) == Code::kCorrupt);     // runs
  CHECK(with(fields + 47, 0x80) == Code::kCorrupt);  // end of the prompt
  CHECK(with(fields + 48, 1) == Code::kKvMismatch);  // rope tables
  CHECK(with(fields + 58, 1) == Code::kCorrupt);     // an id above the vocabulary
  CHECK(with(fields + 68, 1) == Code::kCorrupt);     // a run that begins late
  CHECK(b->position() == 0);
}

TEST_CASE("a failing writer ends the saving, with its own status") {
  const auto toy = make_toy(small_toy());
  const auto a = make_session(*toy);
  decode_all(*a, toy_ids(3));
  int n_calls = 0;
  const absl::Status status = save_snapshot(*a, kModel, [&](const void*, uint64_t) {
    return ++n_calls == 5 ? error(Code::kCancelled, "enough") : absl::OkStatus();
  });
  CHECK(code_of(status) == Code::kCancelled);
  CHECK(n_calls == 5);
}

// ---- samplers

std::vector<float> noise_logits(int step) {
  std::vector<float> logits(50);
  for (size_t i = 0; i < logits.size(); ++i) {
    logits[i] = static_cast<float>((i * 37 + static_cast<size_t>(step) * 11) % 50) * 0.1f;
  }
  return logits;
}

TEST_CASE("a restored sampler draws what the saved one would have drawn") {
  for (const int32_t last_n : {64, 3, 0, -1}) {
    for (const float temperature : {0.0f, 1.3f}) {
      SamplerParams params;
      params.temperature = temperature;
      params.top_p = 0.95f;
      params.repeat_penalty = 1.2f;
      params.frequency_penalty = 0.3f;
      params.penalty_last_n = last_n;
      params.seed = 77;
      auto a = Sampler::create(params);
      for (int i = 0; i < 20; ++i) REQUIRE(a->sample(noise_logits(i)).ok());
      Bytes bytes = a->save();
      auto b = Sampler::restore(bytes);
      REQUIRE(b.ok());
      CHECK(b->seed() == 77);
      CHECK(b->save() == bytes);
      for (int i = 0; i < 50; ++i)
        CHECK(*a->sample(noise_logits(i)) == *b->sample(noise_logits(i)));
      for (size_t n = 0; n < bytes.size(); ++n) {
        REQUIRE(code_of(Sampler::restore(std::span(bytes).first(n)).status()) == Code::kCorrupt);
        bytes[n] ^= 0x40;
        REQUIRE(code_of(Sampler::restore(bytes).status()) == Code::kCorrupt);
        bytes[n] ^= 0x40;
      }
    }
  }
}

// ---- engine.kv/1

// The manifest and the offset of the data.
std::pair<nlohmann::json, size_t> manifest_of(const Bytes& bytes) {
  uint32_t n = 0;
  std::memcpy(&n, bytes.data() + 12, 4);
  return {nlohmann::json::parse(bytes.begin() + 16, bytes.begin() + 16 + n), 16 + size_t{n}};
}

Bytes with_manifest(const Bytes& bytes, const nlohmann::json& manifest) {
  const size_t data = manifest_of(bytes).second;
  std::string text = manifest.dump();
  Bytes out(bytes.begin(), bytes.begin() + 12);
  const auto n = static_cast<uint32_t>(text.size());
  for (int i = 0; i < 4; ++i) out.push_back(static_cast<uint8_t>(n >> 8 * i));
  out.insert(out.end(), text.begin(), text.end());
  out.insert(out.end(), bytes.begin() + static_cast<std::ptrdiff_t>(data), bytes.end());
  return out;
}

TEST_CASE("a portable snapshot tells the stored numbers, and goes back in") {
  const auto toy = make_toy({});
  Setup setup;
  setup.kv = KvType::kF32;
  const auto a = make_session(*toy, setup);
  decode_all(*a, toy_ids(70));
  const auto bytes = export_kv(*a, kModel);
  REQUIRE(bytes.ok());
  const auto [manifest, data] = manifest_of(*bytes);
  CHECK(manifest["schema"] == "engine.kv/1");
  CHECK(manifest["dtype"] == "float32");
  CHECK(manifest["n_positions"] == 70);
  CHECK(manifest["ids"].get<std::vector<int32_t>>() == toy_ids(70));
  CHECK(data % 64 == 0);
  // Against the pages, as KvLayer describes them.
  const auto& geometry = a->kv().geometry(1);
  const auto G = geometry.n_kv_heads, D = geometry.head_dim_k;
  const KvLayer kv = a->kv().layer(1);
  const auto* const keys = reinterpret_cast<const float*>(
      bytes->data() + data + manifest["layers"][1]["k_offset"].get<size_t>());
  const auto* const values = reinterpret_cast<const float*>(
      bytes->data() + data + manifest["layers"][1]["v_offset"].get<size_t>());
  for (int64_t g = 0; g < G; ++g) {
    for (int64_t p = 0; p < 70; ++p) {
      for (int64_t d = 0; d < D; ++d) {
        const auto* k = reinterpret_cast<const float*>(kv.pages[p / 64] + kv.k_offset_bytes);
        const auto* v = reinterpret_cast<const float*>(kv.pages[p / 64] + kv.v_offset_bytes);
        REQUIRE(keys[(g * 70 + p) * D + d] == k[(g * D + d) * 64 + p % 64]);
        REQUIRE(values[(g * 70 + p) * D + d] == v[(g * 64 + p % 64) * D + d]);
      }
    }
  }
  const auto b = make_session(*toy, setup);
  REQUIRE(import_kv(*bytes, kModel, b.get()).ok());
  CHECK(b->history().writers_at(0) == kOpaqueWriters);
  CHECK(same_bits(next_logits(*a), next_logits(*b)));
  // Edited: the value of one position is another one's, and it is seen.
  Bytes edited = *bytes;
  edited[data + 3] ^= 0x40;
  REQUIRE(import_kv(edited, kModel, b.get()).ok());
  CHECK(!same_bits(next_logits(*a), next_logits(*b)));
}

TEST_CASE("portable snapshots that do not fit leave the session as it was") {
  const auto toy = make_toy({});
  for (const KvType kv : {KvType::kF16, KvType::kF32}) {
    Setup setup;
    setup.kv = kv;
    const auto a = make_session(*toy, setup);
    decode_all(*a, toy_ids(20));
    const Bytes good = *export_kv(*a, kModel);
    const auto b = make_session(*toy, setup);
    decode_all(*b, toy_ids(7));
    const Bytes before = saved(*b);
    CHECK(code_of(import_kv(good, {1, 1}, b.get())) == Code::kModelMismatch);
    Setup other = setup;
    other.kv = kv == KvType::kF16 ? KvType::kF32 : KvType::kF16;
    CHECK(code_of(import_kv(good, kModel, make_session(*toy, other).get())) == Code::kKvMismatch);
    other = setup;
    other.n_ctx = 19;
    CHECK(code_of(import_kv(good, kModel, make_session(*toy, other).get())) == Code::kContextFull);
    for (size_t n = 0; n < good.size(); n += n < 1000 ? 1 : 97) {
      REQUIRE(code_of(import_kv(std::span(good).first(n), kModel, b.get())) == Code::kCorrupt);
    }
    const auto [manifest, data] = manifest_of(good);
    // clang 14 captures no structured binding by reference.
    const auto edit = [&, &manifest = manifest](const char* pointer, const nlohmann::json& value) {
      nlohmann::json m = manifest;
      m[nlohmann::json::json_pointer(pointer)] = value;
      return code_of(import_kv(with_manifest(good, m), kModel, b.get()));
    };
    CHECK(edit("/schema", "engine.kv/2") == Code::kTooNew);
    CHECK(edit("/ids/3", 320) == Code::kCorrupt);
    CHECK(edit("/ids/3", -1) == Code::kCorrupt);
    CHECK(edit("/n_positions", 19) == Code::kCorrupt);
    CHECK(edit("/n_positions", 1.5) == Code::kCorrupt);
    CHECK(edit("/layers/0/head_dim_k", 8) == Code::kCorrupt);
    CHECK(edit("/layers/1/v_offset", good.size()) == Code::kCorrupt);
    CHECK(edit("/layers/1", 7) == Code::kCorrupt);
    CHECK(edit("/prompt_end", "x") == Code::kCorrupt);
    Bytes infinite = good;
    for (size_t i = 0; i < 4; ++i) infinite[data + i] = 0xff;
    CHECK(code_of(import_kv(infinite, kModel, b.get())) == Code::kNonFinite);
    CHECK(saved(*b) == before);
    CHECK(edit("/prompt_end", 5) == Code::kOk);
  }
}

}  // namespace
}  // namespace engine
