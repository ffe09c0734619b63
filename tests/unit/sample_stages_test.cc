// The sampler against a direct implementation in double: full sort, library exp, no shortcuts.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "lib/sample/candidates.h"
#include "lib/sample/rng.h"
#include "lib/sample/sampler.h"

namespace engine {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

struct Scored {
  double z;
  int32_t id;
};

// All stages of the definition, one after the other; sorted survivors.
std::vector<Scored> reference_survivors(const SamplerParams& p, const std::vector<int32_t>& history,
                                        const std::vector<float>& logits) {
  std::vector<Scored> list;
  const size_t n_window = p.penalty_last_n < 0
                              ? history.size()
                              : std::min(history.size(), static_cast<size_t>(p.penalty_last_n));
  for (size_t id = 0; id < logits.size(); ++id) {
    if (logits[id] == -kInf) continue;
    const auto count = std::count(history.end() - static_cast<std::ptrdiff_t>(n_window),
                                  history.end(), static_cast<int32_t>(id));
    double z = logits[id];
    if (count > 0) {
      const double r = p.repeat_penalty == 0 ? 1.0 : p.repeat_penalty;
      z = z > 0 ? z / r : z * r;
      z -= static_cast<double>(count) * p.frequency_penalty + p.presence_penalty;
      z = static_cast<float>(z);
    }
    list.push_back({z, static_cast<int32_t>(id)});
  }
  std::sort(list.begin(), list.end(),
            [](const Scored& a, const Scored& b) { return a.z != b.z ? a.z > b.z : a.id < b.id; });
  if (p.top_k > 0 && static_cast<size_t>(p.top_k) < list.size()) {
    list.resize(static_cast<size_t>(p.top_k));
  }
  const auto weight = [&](const Scored& s) { return std::exp(s.z - list[0].z); };
  if (p.top_p < 1) {
    double total = 0;
    for (const Scored& s : list) total += weight(s);
    double sum = 0;
    size_t n = 0;
    while (n < list.size()) {
      sum += weight(list[n++]) / total;
      if (sum >= static_cast<double>(p.top_p) * (1 - 1e-14)) break;
    }
    list.resize(n);
  }
  if (p.min_p > 0) {
    while (weight(list.back()) < static_cast<double>(p.min_p) * (1 - 1e-14)) list.pop_back();
  }
  return list;
}

int32_t reference_draw(const SamplerParams& p, const std::vector<Scored>& list, double unit) {
  if (p.temperature <= 0) return list[0].id;
  const auto weight = [&](const Scored& s) { return std::exp((s.z - list[0].z) / p.temperature); };
  double total = 0;
  for (const Scored& s : list) total += weight(s);
  double sum = 0;
  for (const Scored& s : list) {
    sum += weight(s) / total;
    if (sum > unit) return s.id;
  }
  return list.back().id;
}

class Source {
 public:
  explicit Source(uint64_t seed) : rng_(seed) {}
  double in(double low, double high) { return low + (high - low) * rng_.next_unit(); }
  int32_t below(uint32_t n) { return static_cast<int32_t>(rng_.next() % n); }
  bool one_in(uint32_t n) { return below(n) == 0; }
  std::vector<float> logits(size_t n) {
    std::vector<float> z(n);
    const bool coarse = one_in(3);  // many ties
    for (float& v : z) {
      v = static_cast<float>(in(-6, 6) + in(-6, 6));
      if (coarse) v = std::round(v * 2) / 2;
      if (one_in(9)) v = -kInf;
    }
    z[static_cast<size_t>(below(static_cast<uint32_t>(n)))] =
        1.5f;  // at least one token is allowed
    return z;
  }

 private:
  Rng rng_;
};

SamplerParams random_params(Source& source) {
  SamplerParams p;
  p.seed = static_cast<uint64_t>(source.below(1u << 30));
  p.temperature = source.one_in(6) ? 0.0f : static_cast<float>(source.in(0.05, 3));
  if (source.one_in(2)) p.top_k = 1 + source.below(source.one_in(2) ? 5 : 700);
  if (source.one_in(2)) p.top_p = source.one_in(8) ? 0.0f : static_cast<float>(source.in(0, 1));
  if (source.one_in(2)) p.min_p = static_cast<float>(source.in(0, source.one_in(2) ? 0.01 : 1));
  if (source.one_in(2)) p.repeat_penalty = static_cast<float>(source.in(0.5, 2));
  if (source.one_in(2)) p.frequency_penalty = static_cast<float>(source.in(-0.5, 1));
  if (source.one_in(2)) p.presence_penalty = static_cast<float>(source.in(-1, 2));
  p.penalty_last_n = source.one_in(4) ? -1 : source.below(20);
  return p;
}

std::vector<int32_t> ids_of(const Candidates& candidates) {
  std::vector<int32_t> ids;
  for (const Candidate& c : candidates.kept()) ids.push_back(c.id);
  std::sort(ids.begin(), ids.end());
  return ids;
}

std::vector<int32_t> ids_of(const std::vector<Scored>& list) {
  std::vector<int32_t> ids;
  for (const Scored& s : list) ids.push_back(s.id);
  std::sort(ids.begin(), ids.end());
  return ids;
}

}  // namespace

TEST_CASE("sample_stages: what each stage keeps is what its definition keeps") {
  Source source(1);
  for (int round = 0; round < 600; ++round) {
    const std::vector<float> logits = source.logits(1 + static_cast<size_t>(source.below(3000)));
    SamplerParams p;
    Candidates candidates;
    REQUIRE(candidates.fill(logits, {}, {}) == Candidates::Fill::kOk);
    INFO("round " << round);
    CHECK(ids_of(candidates) == ids_of(reference_survivors(p, {}, logits)));
    if (source.one_in(2)) {
      p.top_k = 1 + source.below(1000);
      candidates.keep_top_k(static_cast<size_t>(p.top_k));
      REQUIRE(ids_of(candidates) == ids_of(reference_survivors(p, {}, logits)));
    }
    if (source.one_in(2)) {
      p.top_p = static_cast<float>(source.in(0, 1));
      candidates.keep_top_p(p.top_p);
      REQUIRE(ids_of(candidates) == ids_of(reference_survivors(p, {}, logits)));
    }
    if (source.one_in(2)) {
      p.min_p = static_cast<float>(source.in(0, 0.2));
      candidates.keep_min_p(p.min_p);
      REQUIRE(ids_of(candidates) == ids_of(reference_survivors(p, {}, logits)));
    }
  }
}

TEST_CASE("sample_stages: whole sampler draws what the reference draws, with history") {
  Source source(2);
  for (int round = 0; round < 400; ++round) {
    const SamplerParams p = random_params(source);
    absl::StatusOr<Sampler> sampler = Sampler::create(p);
    REQUIRE(sampler.ok());
    Rng rng(p.seed);
    const size_t n_vocab = 1 + static_cast<size_t>(source.below(source.one_in(2) ? 8 : 2500));
    std::vector<int32_t> history;
    for (int i = source.below(10); i > 0; --i) {
      history.push_back(source.below(12));  // may be beyond the vocabulary
      sampler->accept(history.back());
    }
    for (int step = 0; step < 25; ++step) {
      const std::vector<float> logits = source.logits(n_vocab);
      const double unit = p.temperature > 0 ? rng.next_unit() : 0;
      const int32_t expected = reference_draw(p, reference_survivors(p, history, logits), unit);
      const absl::StatusOr<int32_t> id = sampler->sample(logits);
      REQUIRE(id.ok());
      INFO("round " << round << " step " << step);
      REQUIRE(*id == expected);
      history.push_back(*id);
    }
  }
}

TEST_CASE("sample_stages: a real vocabulary size") {
  Source source(3);
  for (const int32_t top_k : {0, 40}) {
    for (const float top_p : {1.0f, 0.95f}) {
      SamplerParams p;
      p.temperature = 1.2f;
      p.top_k = top_k;
      p.top_p = top_p;
      p.seed = 77;
      Sampler sampler = *Sampler::create(p);
      Rng rng(p.seed);
      const std::vector<float> logits = source.logits(262144);
      for (int i = 0; i < 2; ++i) {
        CHECK(*sampler.sample(logits) ==
              reference_draw(p, reference_survivors(p, {}, logits), rng.next_unit()));
      }
    }
  }
}

TEST_CASE("sample_stages: ties go to the lowest id") {
  const std::vector<float> logits = {0, 2, 1, 2, 2, 1};
  Candidates candidates;
  REQUIRE(candidates.fill(logits, {}, {}) == Candidates::Fill::kOk);
  CHECK(candidates.greedy() == 1);
  candidates.keep_top_k(2);
  CHECK(ids_of(candidates) == std::vector<int32_t>{1, 3});
  REQUIRE(candidates.fill(logits, {}, {}) == Candidates::Fill::kOk);
  candidates.keep_top_k(4);
  CHECK(ids_of(candidates) == std::vector<int32_t>{1, 2, 3, 4});
  CHECK(argmax(logits) == 1);
  CHECK(argmax(std::vector<float>{-kInf, -kInf}) == 0);
  CHECK(argmax(std::vector<float>{NAN, -1, NAN, 3, 3}) == 3);
  CHECK(argmax({}) == -1);
}

TEST_CASE("sample_stages: a token at the threshold is kept") {
  // Four equal tokens: the sum reaches one half with the second; min_p 1 keeps all of them.
  const std::vector<float> logits = {3, 3, 3, 3};
  Candidates candidates;
  REQUIRE(candidates.fill(logits, {}, {}) == Candidates::Fill::kOk);
  candidates.keep_min_p(1);
  CHECK(candidates.kept().size() == 4);
  candidates.keep_top_p(0.5);
  CHECK(ids_of(candidates) == std::vector<int32_t>{0, 1});
  candidates.keep_top_p(0);
  CHECK(ids_of(candidates) == std::vector<int32_t>{0});
  REQUIRE(candidates.fill(logits, {}, {}) == Candidates::Fill::kOk);
  candidates.keep_top_k(3);
  candidates.keep_min_p(1);  // of a sorted list
  CHECK(ids_of(candidates) == std::vector<int32_t>{0, 1, 2});
}

TEST_CASE("sample_stages: penalties keep logits finite") {
  const float largest = std::numeric_limits<float>::max();
  Candidates candidates;
  Penalties lift;
  lift.repeat = 1e-30;
  Penalties sink;
  sink.frequency = 1e38;
  const std::vector<TokenWindow::Count> counts = {{0, 3}, {1, 4000000000u}};
  REQUIRE(candidates.fill(std::vector<float>{1e20f, 0}, counts, lift) == Candidates::Fill::kOk);
  CHECK(candidates.kept()[0].logit == largest);
  REQUIRE(candidates.fill(std::vector<float>{0, -1e20f}, counts, sink) == Candidates::Fill::kOk);
  CHECK(candidates.kept()[1].logit == -largest);
}

}  // namespace engine
