// The router: choice, ties and the three rules of weights against double; a NaN stays visible.
#include <algorithm>
#include <initializer_list>
#include <numeric>

#include "tests/kernels/pointwise_data.h"

namespace engine::test {
namespace {

Floats floats(std::initializer_list<float> values) {
  Floats out(static_cast<int64_t>(values.size()));
  std::copy(values.begin(), values.end(), out.data());
  return out;
}

Floats route(const Floats& scores, int64_t n_experts, int64_t k, MoeRule rule) {
  const auto n_tokens = scores.size() / n_experts;
  Floats out(n_tokens * 2 * k, kNanF);
  const MoeRouteArgs args = {.scores = scores.data(),
                             .stride = n_experts,
                             .n_experts = n_experts,
                             .n_used = k,
                             .rule = rule,
                             .n_tokens = n_tokens,
                             .out = out.data(),
                             .out_stride = 2 * k};
  scalar_entry(Op::kMoeRoute)(&args);
  return out;
}

}  // namespace

TEST_CASE("the router takes the k largest scores, the lower index first among equals") {
  const Floats out = route(floats({1, 5, 3, 5, -2, 3}), 6, 4, MoeRule::kSoftmaxOfChosen);
  CHECK(out[4] == 1.0f);
  CHECK(out[5] == 3.0f);
  CHECK(out[6] == 2.0f);
  CHECK(out[7] == 5.0f);
  CHECK(out[0] == out[1]);
  CHECK(out[2] == out[3]);
}

TEST_CASE("weights of the chosen experts by each rule") {
  Rng rng(21);
  for (const auto& [n_experts, k] : {std::pair<int64_t, int64_t>{8, 2}, {128, 8}, {5, 5}, {1, 1}}) {
    const Floats scores = random_floats(rng, 3 * n_experts, -6.0f, 6.0f);
    for (const MoeRule rule :
         {MoeRule::kSoftmax, MoeRule::kRenormalised, MoeRule::kSoftmaxOfChosen}) {
      const Floats out = route(scores, n_experts, k, rule);
      for (int64_t t = 0; t < 3; ++t) {
        const float* row = scores.data() + t * n_experts;
        std::vector<int64_t> order(static_cast<size_t>(n_experts));
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(),
                         [&](int64_t a, int64_t b) { return row[a] > row[b]; });
        const double max = row[order[0]];
        double all = 0, chosen = 0;
        for (int64_t i = 0; i < n_experts; ++i) all += std::exp(row[i] - max);
        for (int64_t j = 0; j < k; ++j)
          chosen += std::exp(row[order[static_cast<size_t>(j)]] - max);
        for (int64_t j = 0; j < k; ++j) {
          CAPTURE(n_experts, k, rule, t, j);
          CHECK(out[t * 2 * k + k + j] == static_cast<float>(order[static_cast<size_t>(j)]));
          const double want = std::exp(row[order[static_cast<size_t>(j)]] - max) /
                              (rule == MoeRule::kSoftmax ? all : chosen);
          // Up to 128 roundings of a sum, those of exp and of two quotients.
          CHECK(std::fabs(out[t * 2 * k + j] - want) <= 160 * kUnit * want);
        }
      }
    }
  }
}

TEST_CASE("scores that are no numbers give weights that are none") {
  const Floats out = route(Floats(3, kNanF), 3, 2, MoeRule::kRenormalised);
  CHECK(std::isnan(out[0]));
  CHECK(out[2] == 0.0f);
  CHECK(out[3] == 0.0f);
}

}  // namespace engine::test
