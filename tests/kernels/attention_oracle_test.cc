// The scalar attention against a softmax in double over the stored keys and values, within a
// derived bound.
#include <algorithm>

#include "tests/kernels/attention_case.h"

namespace engine::test {
namespace {

// Compares every output; returns the largest error in parts of its bound.
//
// With u = 2^-24, first order: a score s = scale * sum q k has error ds <= (Dk + 2) u * scale * sum
// |q k|; the cap does not amplify it and adds 6 u cap. The weight e = exp(s - m) has a relative
// error of dw <= 2 ds + u |s - m| + 2 u (s, m, the difference, exp's 1 ulp). A split's sum adds up
// to 256 roundings, its l (16 lanes of 16 and 4 levels) 20; each merge rescales and adds: 2 for the
// factors' exp, their arguments' u |m - m'|, 3 roundings; the end has 2. Numerator and denominator
// errors add up:
//   |error| <= (2 max dw + (256 + 20 + 2 splits (2 * 2 + A + 3) + 2) u) sum e|v| / l
// with A = max |s - m|.
double worst_part(const AttentionShape& shape, Rng& rng) {
  const AttentionCase problem(shape, rng);
  const Floats got = problem.run(scalar_entry(Op::kAttention, shape.type), 0, problem.n_items());
  const int64_t dk = shape.kv.head_dim_k, dv = shape.kv.head_dim_v;
  double worst = 0;
  for (int64_t t = 0; t < shape.n_tokens; ++t) {
    for (int64_t h = 0; h < shape.n_heads; ++h) {
      const int64_t g = h / (shape.n_heads / shape.kv.n_kv_heads);
      const int64_t last = shape.first_position + t;
      std::vector<int64_t> seen;
      for (int64_t j = 0; j <= last; ++j) {
        if (shape.window == 0 || last - j < shape.window) seen.push_back(j);
      }
      std::vector<double> scores;
      double score_error = 0;
      for (const int64_t j : seen) {
        double dot = 0, magnitude = 0;
        for (int64_t d = 0; d < dk; ++d) {
          const double term =
              static_cast<double>(problem.q()[t * problem.q_stride() + h * dk + d]) *
              problem.pages().k(j, g, d);
          dot += term;
          magnitude += std::fabs(term);
        }
        double s = dot * problem.scale();
        score_error = std::max(score_error,
                               static_cast<double>(dk + 2) * kUnit * problem.scale() * magnitude);
        if (shape.softcap > 0) {
          const double cap = shape.softcap;
          s = cap * std::tanh(s / cap);
        }
        scores.push_back(s);
      }
      if (shape.softcap > 0) score_error += 6 * kUnit * static_cast<double>(shape.softcap);
      const double max = *std::max_element(scores.begin(), scores.end());
      double reach = max - *std::min_element(scores.begin(), scores.end());
      double sum = 0;
      for (const double s : scores) sum += std::exp(s - max);
      double splits = static_cast<double>(last / kAttentionSplit - seen.front() / kAttentionSplit);
      if (shape.sinks) {  // merged as one more split of one score
        const double sink = problem.sinks()[h];
        sum += std::exp(sink - max);
        reach = std::max(reach, std::fabs(sink - max));
        splits += 1;
      }
      const double relative = 2 * (2 * score_error + kUnit * (reach + 2)) +
                              kUnit * (256 + 20 + 2 * splits * (4 + reach + 3) + 2);
      for (int64_t d = 0; d < dv; ++d) {
        double want = 0, magnitude = 0;
        for (size_t i = 0; i < seen.size(); ++i) {
          const double term = std::exp(scores[i] - max) * problem.pages().v(seen[i], g, d);
          want += term;
          magnitude += std::fabs(term);
        }
        const double error = std::fabs(got[t * problem.out_stride() + h * dv + d] - want / sum);
        worst = std::max(worst, error / (relative * magnitude / sum));
      }
    }
  }
  return worst;
}

}  // namespace

TEST_CASE("the scalar attention is the softmax of the visible positions") {
  Rng rng(41);
  for (const KvType type : {KvType::kF16, KvType::kF32, KvType::kQ8_0}) {
    for (const float softcap : {0.0f, 3.0f}) {
      for (const int64_t window : {0, 1, 33, 300}) {
        for (const int64_t first : {0, 5, 63, 255, 256, 600}) {
          CAPTURE(type, softcap, window, first);
          const AttentionShape shape = {.type = type,
                                        .n_heads = 4,
                                        .kv = {2, 40, 24},
                                        .first_position = first,
                                        .n_tokens = 3,
                                        .softcap = softcap,
                                        .window = window,
                                        .sinks = first == 63 || first == 600};
          CHECK(worst_part(shape, rng) <= 1.0);
        }
      }
    }
  }
}

}  // namespace engine::test
