// Sessions on toys: chunks, threads, rewinding, limits, non-finite values, cancelling, counters.
#include "lib/session/session.h"

#include <atomic>
#include <cstring>
#include <limits>
#include <thread>
#include <vector>

#include "catch2/catch_test_macros.hpp"
#include "tests/unit/session_toy.h"

namespace engine {
namespace {

TEST_CASE("chunk, threads, target and token-by-token decode do not change a logit bit") {
  for (const char* arch : {"llama", "gemma3"}) {
    ToyModel spec;
    spec.arch = arch;
    if (spec.arch == "gemma3") {
      spec.n_layer = 7;
      spec.window = 16;
    }
    const auto toy = make_toy(spec);
    const std::vector<int32_t> ids = toy_ids(70);
    for (const KvType kv : {KvType::kF16, KvType::kF32}) {
      Setup base;
      base.mode = Mode::kReference;
      base.kv = kv;
      const auto expected = decode_all(*make_session(*toy, base), ids);
      for (const Mode mode : {Mode::kReference, Mode::kPlanned, Mode::kPlannedFused}) {
        for (const int64_t chunk : {1, 7, 32, 128}) {
          for (const uint32_t threads : {1u, 3u}) {
            Setup setup = base;
            setup.mode = mode;
            setup.chunk = chunk;
            setup.threads = threads;
            INFO(arch << " " << mode_name(mode) << " chunk " << chunk << " threads " << threads);
            CHECK(same_bits(decode_all(*make_session(*toy, setup), ids), expected));
          }
        }
        for (const Target target : cpu_targets()) {
          Setup setup = base;
          setup.mode = mode;
          setup.target = target;
          INFO(arch << " " << mode_name(mode) << " target " << target_name(target));
          CHECK(same_bits(decode_all(*make_session(*toy, setup), ids), expected));
        }
      }
      const auto session = make_session(*toy, base);
      std::vector<float> row(320);
      for (size_t i = 0; i < ids.size(); ++i) {
        REQUIRE(session->decode({&ids[i], 1}, row.data(), false).ok());
        REQUIRE(std::memcmp(row.data(), &expected[i * 320], 320 * sizeof(float)) == 0);
      }
    }
  }
}

TEST_CASE("truncate then append equals a session that never went further") {
  ToyModel spec;
  spec.arch = "gemma3";
  spec.n_layer = 7;
  spec.window = 16;
  const auto toy = make_toy(spec);
  const auto ids = toy_ids(90);
  const auto expected = decode_all(*make_session(*toy), ids);
  const auto session = make_session(*toy);
  decode_all(*session, toy_ids(80));
  for (const size_t keep : {66u, 64u, 63u, 17u, 0u}) {
    REQUIRE(session->truncate(static_cast<int64_t>(keep)).ok());
    CHECK(session->position() == static_cast<int64_t>(keep));
    const std::vector<int32_t> rest(ids.begin() + static_cast<std::ptrdiff_t>(keep), ids.end());
    const auto logits = decode_all(*session, rest);
    CHECK(std::memcmp(logits.data(), &expected[keep * 320], logits.size() * sizeof(float)) == 0);
  }
  CHECK(code_of(session->truncate(91)) == Code::kArgument);
  CHECK(code_of(session->truncate(-1)) == Code::kArgument);
  CHECK(session->position() == 90);
}

TEST_CASE("case 33: exactly n_ctx tokens fit, the next changes nothing, bad ids are refused") {
  const auto toy = make_toy({});
  Setup setup;
  setup.n_ctx = 16;
  setup.chunk = 5;
  const auto session = make_session(*toy, setup);
  std::vector<float> logits(320), again(320);
  CHECK(code_of(session->decode(toy_ids(17), logits.data(), false)) == Code::kContextFull);
  CHECK(session->position() == 0);
  CHECK(code_of(session->decode({}, logits.data(), false)) == Code::kArgument);
  REQUIRE(session->decode(toy_ids(16), logits.data(), false).ok());
  const int32_t one = 5;
  CHECK(code_of(session->decode({&one, 1}, again.data(), false)) == Code::kContextFull);
  CHECK(session->position() == 16);
  REQUIRE(session->truncate(15).ok());
  const auto ids = toy_ids(16);
  REQUIRE(session->decode({&ids[15], 1}, again.data(), false).ok());
  CHECK(same_bits(logits, again));
  for (const int32_t bad : {-1, 320, std::numeric_limits<int32_t>::max()}) {
    REQUIRE(session->truncate(0).ok());
    CHECK(code_of(session->decode({&bad, 1}, nullptr, false)) == Code::kArgument);
  }
}

TEST_CASE("case 32: a planted NaN or infinity is an error and leaves the session as it was") {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    ToyModel spec;
    auto bytes = spec.build();
    auto file = Gguf::parse(bytes, test_block_shape);
    REQUIRE(file.ok());
    // A weight of the second layer's up projection: every token meets it.
    const auto* data = file->tensor_data(*file->find_tensor("blk.1.ffn_up.weight"));
    std::memcpy(bytes.data() + (data - bytes.data()), &bad, sizeof(bad));
    auto model = load_model(bytes, {});
    REQUIRE(model.ok());
    auto program = lower(**model);
    REQUIRE(program.ok());
    Toy toy;
    toy.program = std::move(*program);
    const auto session = make_session(toy);
    std::vector<float> logits(320);
    const absl::Status status = session->decode(toy_ids(5), logits.data(), false);
    CHECK(code_of(status) == Code::kNonFinite);
    CHECK(status.message().find("layer 1") != std::string::npos);
    CHECK(session->position() == 0);
  }
}

TEST_CASE("a cancel ends the running decode only, and undoes it") {
  const auto toy = make_toy({});
  Setup setup;
  setup.chunk = 4;
  const auto session = make_session(*toy, setup);
  const auto ids = toy_ids(200);
  const auto expected = decode_all(*make_session(*toy, setup), ids);
  session->cancel();  // nothing runs: no effect
  std::vector<float> row(320);
  REQUIRE(session->decode(ids, row.data(), false).ok());
  REQUIRE(session->truncate(0).ok());
  int cancelled = 0;
  // On a busy machine the other thread may come late each time.
  for (int trial = 0; trial < 50 || (cancelled == 0 && trial < 10'000); ++trial) {
    std::atomic<bool> done{false};
    std::thread canceller([&] {
      while (!done.load()) session->cancel();
    });
    const absl::Status status = session->decode(ids, row.data(), false);
    done.store(true);
    canceller.join();
    if (!status.ok()) {
      REQUIRE(code_of(status) == Code::kCancelled);
      REQUIRE(session->position() == 0);
      ++cancelled;
    } else {
      REQUIRE(session->truncate(0).ok());
    }
  }
  CHECK(cancelled > 0);
  CHECK(same_bits(decode_all(*session, ids), expected));
}

TEST_CASE("kernel counters tell what ran, per step and call") {
  ToyModel spec;
  const auto toy = make_toy(spec);
  const auto session = make_session(*toy);
  std::vector<float> row(320);
  REQUIRE(session->decode(toy_ids(3), row.data(), false).ok());
  uint64_t matmuls = 0, attentions = 0, others = 0;
  for (size_t i = 0; i < kernel_rows().size(); ++i) {
    const uint64_t count = session->kernel_counts()[i];
    const Op op = kernel_rows()[i].key.op;
    (op == Op::kMatmul ? matmuls : op == Op::kAttention ? attentions : others) += count;
  }
  CHECK(matmuls == 2 * 7 + 1);  // seven per layer, and the head once
  CHECK(attentions == 2);
  CHECK(others > 0);
}

TEST_CASE("case 16: frequency factors agree at position 0 and differ later") {
  ToyModel with;
  with.rope_freqs = {1, 1, 1.7f, 4, 8, 8, 8, 8};
  const auto a = make_toy({});
  const auto b = make_toy(with);
  const auto ids = toy_ids(201);
  const auto x = decode_all(*make_session(*a), ids);
  const auto y = decode_all(*make_session(*b), ids);
  CHECK(std::memcmp(x.data(), y.data(), 320 * sizeof(float)) == 0);
  CHECK(std::memcmp(&x[200 * 320], &y[200 * 320], 320 * sizeof(float)) != 0);
}

TEST_CASE("the op sequence quantises once for all that read a value, and again after a write") {
  ToyModel spec;
  const auto toy = make_toy(spec);
  // F32 weights need no quantisation at all.
  for (const auto& layer : toy->program.layers) {
    for (const Step& step : layer) CHECK(step.op != Op::kQuantize);
  }
  CHECK(toy->program.layers.size() == 2);
  CHECK(toy->program.bytes_per_token > 0);
}

}  // namespace
}  // namespace engine
