// Base, divisors and scaling as one number per pair (formats/architectures.md 1.4), in double by our own maths.
#include "lib/plan/rope_rule.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "lib/base/det_math.h"

namespace engine {
namespace {

constexpr double kPi = 3.14159265358979323846;

// The part of pair i that is interpolated: 0 for pairs that turn often within the original context, 1 for
// slow ones, a ramp between.
class YarnRamp {
 public:
  YarnRamp(const RopeConfig& rope, int64_t n_rot) {
    const auto pair_of = [&](double turns) {
      const double n = static_cast<double>(rope.n_ctx_original) / (turns * 2.0 * kPi);
      return static_cast<double>(n_rot) * det_log(n) / (2.0 * det_log(rope.base));
    };
    low_ = pair_of(rope.beta_fast);
    high_ = pair_of(rope.beta_slow);
    if (rope.ramp_truncates) {
      low_ = std::floor(low_);
      high_ = std::ceil(high_);
    }
    low_ = std::max(low_, 0.0);
    high_ = std::min(high_, static_cast<double>(n_rot - 1));
  }
  double operator()(int64_t pair) const {
    const double r = (static_cast<double>(pair) - low_) / std::max(0.001, high_ - low_);
    return std::clamp(r, 0.0, 1.0);
  }

 private:
  double low_, high_;
};

}  // namespace

RopeRule rope_rule(const RopeConfig& rope, const ModelWeights& weights) {
  const int64_t n_rot = rope.n_rot;
  RopeRule rule;
  rule.mscale = rope.mscale;
  const YarnRamp ramp(rope, n_rot);
  const auto angles = [&](const WeightView& divisors) {
    std::vector<double> theta;
    const auto* divisor = reinterpret_cast<const float*>(divisors.data);
    for (int64_t i = 0; i < n_rot / 2; ++i) {
      double t = rope_theta(rope.base, -2.0 * static_cast<double>(i) / static_cast<double>(n_rot));
      if (divisor != nullptr) t /= static_cast<double>(divisor[i]);
      if (rope.scaling == RopeScaling::kLinear) t /= rope.factor;
      if (rope.scaling == RopeScaling::kYarn) {
        const double r = ramp(i);
        t = r * (t / rope.factor) + (1.0 - r) * t;
      }
      theta.push_back(t);
    }
    return theta;
  };
  switch (rope.divisors) {
    case RopeDivisors::kNone: rule.theta = angles({}); break;
    case RopeDivisors::kFreqs: rule.theta = angles(weights.rope_freqs); break;
    case RopeDivisors::kFactors:
      rule.theta = angles(weights.rope_short);
      rule.theta_long = angles(weights.rope_long);
      rule.n_ctx_short = rope.n_ctx_original;
      break;
  }
  return rule;
}

}  // namespace engine
