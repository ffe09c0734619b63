// Attention scores and patterns against a plain loop in double, and against the kernel's own sequence.
#include "lib/session/attention_probe.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "catch2/catch_test_macros.hpp"
#include "lib/session/kv_cache.h"
#include "tests/unit/hook_kit.h"

namespace engine {
namespace {

constexpr int64_t kH = 4, kG = 2, kD = 20, kTokens = 150, kFirst = 130;

// Keys of all tokens, stored with the kernel; queries of the tokens from kFirst on.
struct Stored {
  std::vector<KvGeometry> geometry{{kG, kD, kD}, {kG, kD, kD}};
  KvType type;
  KvCache cache;
  std::vector<float> k = noise_row(1, kTokens*kG*kD), v = noise_row(2, kTokens*kG*kD);
  std::vector<float> q = noise_row(3, (kTokens - kFirst) * (kH * kD + 3));
  StoredQueries queries{q.data(), kH* kD + 3, kD};
  Step step;

  explicit Stored(KvType kv) : type(kv), cache(geometry, kv, 200, {}) {
    REQUIRE(cache.reserve(0, kTokens).ok());
    for (float& x : q) x *= 6.0f;
    bool finite = true;
    KvStoreArgs args{};
    args.k = k.data();
    args.k_stride = kG * kD;
    args.v = v.data();
    args.v_stride = kG * kD;
    args.n_kv_heads = kG;
    args.head_dim_k = args.head_dim_v = kD;
    args.n_tokens = kTokens;
    args.kv = cache.layer(1);
    args.finite = &finite;
    KernelKey key{.op = Op::kKvStore};
    key.kv = kv;
    const auto kernel = resolve_kernel(key, Target::kScalar);
    REQUIRE(kernel.ok());
    kernel->entry(&args);
    step.op = Op::kAttention;
    step.heads = kH;
    step.scale = 0.3f;
  }
  KvAttentionProbe probe() { return {step, cache.layer(1), type, geometry[1], kFirst, queries}; }
  float key(int64_t j, int64_t g, int64_t d) const {
    const float x = k[static_cast<size_t>((j * kG + g) * kD + d)];
    return type == KvType::kF16 ? f16_to_f32(f32_to_f16(x)) : x;
  }
};

TEST_CASE("scores are the documented fma chain, window and cap included") {
  for (const KvType kv : {KvType::kF16, KvType::kF32}) {
    Stored stored(kv);
    for (const float cap : {0.0f, 2.5f}) {
      for (const int64_t window : {0, 1, 70}) {
        stored.step.cap = cap;
        stored.step.window = window;
        const KvAttentionProbe probe = stored.probe();
        for (const int64_t row : {0, 7, 19}) {
          for (int64_t h = 0; h < kH; ++h) {
            const int64_t position = kFirst + row;
            std::vector<float> out(static_cast<size_t>(position + 2), 77.0f);
            probe.scores(row, h, out.data());
            CHECK(out.back() == 77.0f);
            for (int64_t j = 0; j <= position; ++j) {
              const float got = out[static_cast<size_t>(j)];
              INFO("row " << row << " head " << h << " key " << j << " window " << window);
              if (window > 0 && position - j >= window) {
                REQUIRE(got == -INFINITY);
                continue;
              }
              const float* q = stored.queries.query(row, h);
              float chain = 0.0f;
              double sum = 0.0, size = 0.0;
              for (int64_t d = 0; d < kD; ++d) {
                const float key = stored.key(j, h / (kH / kG), d);
                chain = std::fma(q[d], key, chain);
                sum += static_cast<double>(q[d]) * static_cast<double>(key);
                size += std::fabs(static_cast<double>(q[d]) * static_cast<double>(key));
              }
              double want = sum * static_cast<double>(0.3f);
              // kD roundings of sums below `size`, the scale's; then division, tanh, product.
              double bound = (kD + 1) * 0x1p-24 * size * 0.3;
              if (cap > 0.0f) {
                want = static_cast<double>(cap) * std::tanh(want / static_cast<double>(cap));
                bound += 3 * 0x1p-24 * static_cast<double>(cap);
              } else {
                REQUIRE(got == chain * 0.3f);
              }
              REQUIRE(std::fabs(static_cast<double>(got) - want) <= bound);
            }
          }
        }
      }
    }
  }
}

TEST_CASE("a pattern row is the softmax of the scores, 0 outside") {
  Stored stored(KvType::kF16);
  stored.step.window = 70;
  const KvAttentionProbe probe = stored.probe();
  const int64_t n_ctx = 200, row = 4, position = kFirst + row;
  const std::vector<int32_t> heads = {0, 3};
  std::vector<float> scores(static_cast<size_t>(kH * n_ctx), 5.0f), pattern = scores;
  attention_row(Site::kAttnScores, probe, row, position, heads, kH, n_ctx, scores.data());
  attention_row(Site::kAttnPattern, probe, row, position, heads, kH, n_ctx, pattern.data());
  for (int64_t h = 0; h < kH; ++h) {
    const float* s = scores.data() + h * n_ctx;
    const float* p = pattern.data() + h * n_ctx;
    if (h == 1 || h == 2) {
      CHECK(std::count(s, s + n_ctx, 0.0f) == n_ctx);
      CHECK(std::count(p, p + n_ctx, 0.0f) == n_ctx);
      continue;
    }
    double max = -1e9, sum = 0.0;
    for (int64_t j = 0; j < n_ctx; ++j) max = std::max(max, static_cast<double>(s[j]));
    for (int64_t j = 0; j < n_ctx; ++j) sum += std::exp(static_cast<double>(s[j]) - max);
    for (int64_t j = 0; j < n_ctx; ++j) {
      INFO("head " << h << " key " << j);
      REQUIRE((s[j] > -INFINITY) == (j > position - 70 && j <= position));
      const double want = std::exp(static_cast<double>(s[j]) - max) / sum;
      // s - max rounds to an ulp of at most 32; then exp, a sum of n/16 + 4 additions, and the division.
      const double bound = want * (16.0 * 0x1p-23 + (2.0 + 200.0 / 16.0 + 4.0 + 1.0) * 0x1p-24);
      REQUIRE(std::fabs(static_cast<double>(p[j]) - want) <= bound);
    }
  }
}

TEST_CASE("large scores do not overflow the pattern") {
  Stored stored(KvType::kF32);
  stored.step.scale = 1000.0f;
  const KvAttentionProbe probe = stored.probe();
  std::vector<float> row(static_cast<size_t>(kH * 200));
  const std::vector<int32_t> heads = {2};
  attention_row(Site::kAttnPattern, probe, 0, kFirst, heads, kH, 200, row.data());
  double sum = 0.0;
  for (const float p : row) sum += static_cast<double>(p);
  CHECK(std::fabs(sum - 1.0) < 1e-5);
}

}  // namespace
}  // namespace engine
