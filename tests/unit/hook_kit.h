// Hooks on toys in the reference mode, without a Session: a cache, an executor and hooks put together by hand.
#ifndef ENGINE_TESTS_UNIT_HOOK_KIT_H_
#define ENGINE_TESTS_UNIT_HOOK_KIT_H_

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "catch2/catch_test_macros.hpp"
#include "lib/plan/lower.h"
#include "lib/session/hooks.h"
#include "lib/session/kv_cache.h"
#include "lib/session/reference.h"
#include "tests/unit/toy_model.h"

namespace engine {

struct HookToy {
  std::vector<uint8_t> bytes;
  std::unique_ptr<Model> model;
  Program program;
};

inline std::unique_ptr<HookToy> make_hook_toy(const ToyModel& toy) {
  auto out = std::make_unique<HookToy>();
  out->bytes = toy.build();
  auto model = load_model(out->bytes, {});
  INFO(model.status().message());
  REQUIRE(model.ok());
  out->model = std::move(*model);
  auto program = lower(*out->model);
  REQUIRE(program.ok());
  out->program = std::move(*program);
  return out;
}

inline std::vector<int32_t> hook_ids(size_t n) {
  std::vector<int32_t> ids(n);
  for (size_t i = 0; i < n; ++i) ids[i] = static_cast<int32_t>((i * 37 + 11) % 320);
  return ids;
}

// One sequence, as a session would run it.
class HookRun {
 public:
  static constexpr int64_t kContext = 64;

  HookRun(const Program& program, int64_t chunk, KvType kv = KvType::kF16)
      : hooks(program, kContext, chunk, 0),
        program_(program),
        chunk_(chunk),
        runner_(std::move(*make_pool(1))),
        kv_(program.kv, kv, kContext, {}),
        reference_(program, cpu_targets().front(), &kv_, runner_.get(), {}) {
    reference_.set_hooks(&hooks);
  }
  HookRun(const HookRun&) = delete;
  HookRun& operator=(const HookRun&) = delete;

  absl::Status try_decode(std::span<const int32_t> ids, std::vector<float>* logits) {
    const auto n = static_cast<int64_t>(ids.size());
    hooks.begin_call(kind, position, n);
    const absl::Status status = run(ids, logits);
    if (status.ok()) {
      hooks.commit();
      position += n;
    } else {
      hooks.roll_back();
    }
    return status;
  }

  // Logits of all rows.
  std::vector<float> decode(std::span<const int32_t> ids) {
    std::vector<float> logits;
    const absl::Status status = try_decode(ids, &logits);
    INFO(status.message());
    REQUIRE(status.ok());
    return logits;
  }

  uint64_t add(HookSpec spec) {
    auto id = hooks.add(std::move(spec));
    INFO(id.status().message());
    REQUIRE(id.ok());
    return *id;
  }
  HookStats stats(uint64_t id) const {
    auto stats = hooks.stats(id);
    REQUIRE(stats.ok());
    return *stats;
  }

  Hooks hooks;
  int64_t position = 0;
  TokenKind kind = TokenKind::kAuto;

 private:
  absl::Status run(std::span<const int32_t> ids, std::vector<float>* logits) {
    const auto n = static_cast<int64_t>(ids.size());
    logits->resize(ids.size() * static_cast<size_t>(program_.n_vocab));
    ENGINE_RETURN_IF_ERROR(kv_.reserve(position, n));
    for (int64_t done = 0; done < n; done += chunk_) {
      const int64_t now = std::min(chunk_, n - done);
      ENGINE_RETURN_IF_ERROR(reference_.run_layers(
          ids.subspan(static_cast<size_t>(done), static_cast<size_t>(now)), position + done,
          [](void*) { return false; }, nullptr));
      for (int64_t row = 0; row < now; ++row) {
        ENGINE_RETURN_IF_ERROR(
            reference_.run_head(row, 1, logits->data() + (done + row) * program_.n_vocab));
      }
    }
    return absl::OkStatus();
  }

  const Program& program_;
  const int64_t chunk_;
  std::unique_ptr<ThreadRunner> runner_;
  KvCache kv_;
  Reference reference_;
};

inline bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

inline HookSpec hook_spec(HookAction action, std::string site, std::vector<int32_t> layers = {}) {
  HookSpec spec;
  spec.action = action;
  spec.site = std::move(site);
  spec.layers = std::move(layers);
  return spec;
}

inline std::vector<float> noise_row(uint64_t seed, int64_t n) {
  std::vector<float> row(static_cast<size_t>(n));
  for (size_t i = 0; i < row.size(); ++i) row[i] = toy_noise(seed, i);
  return row;
}

// A capture of `rows` rows with the memory that it fills.
struct CaptureBuffer {
  std::vector<float> values;
  std::vector<CaptureRecord> records;
  int64_t width;
  CaptureBuffer(int64_t rows, int64_t row_width)
      : values(static_cast<size_t>(rows * row_width), -7.0f),
        records(static_cast<size_t>(rows)),
        width(row_width) {}
  HookSpec spec(std::string site, std::vector<int32_t> layers = {}) {
    HookSpec spec = hook_spec(HookAction::kCapture, std::move(site), std::move(layers));
    spec.capture = values.data();
    spec.capture_records = records.data();
    spec.capture_rows = static_cast<int64_t>(records.size());
    return spec;
  }
  std::span<const float> row(int64_t i) const {
    return {values.data() + i * width, static_cast<size_t>(width)};
  }
};

}  // namespace engine

#endif  // ENGINE_TESTS_UNIT_HOOK_KIT_H_
