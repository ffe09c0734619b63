// The router's choice of experts: the sequence of MoeRouteArgs.
#include <limits>

#include "backends/cpu/cpu_kernels.h"
#include "backends/cpu/math_scalar.h"

namespace engine {
namespace {

constexpr float kMinWeightSum = 0x1p-14f;

// The largest score after (score, index) in the order of the choice; -1 where the rest is NaN.
int64_t next_best(const float* scores, int64_t n, float score, int64_t index) {
  int64_t best = -1;
  for (int64_t i = 0; i < n; ++i) {
    const bool is_after = scores[i] < score || (scores[i] == score && i > index);
    if (is_after && (best < 0 || scores[i] > scores[best])) best = i;
  }
  return best;
}

void route(const MoeRouteArgs& args, const float* scores, float* out) {
  const int64_t k = args.n_used;
  float* const weights = out;
  float* const experts = out + k;
  float score = std::numeric_limits<float>::infinity();
  int64_t index = -1;
  for (int64_t j = 0; j < k; ++j) {
    index = next_best(scores, args.n_experts, score, index);
    // A NaN among the scores: any expert will do, since its weight is NaN and fails the finite check.
    score = index < 0 ? std::numeric_limits<float>::quiet_NaN() : scores[index];
    if (index < 0) index = 0;
    weights[j] = score;
    experts[j] = static_cast<float>(index);
  }
  const float max = weights[0];
  float sum = 0.0f;
  if (args.rule == MoeRule::kSoftmaxOfChosen) {
    for (int64_t j = 0; j < k; ++j) sum += math::exp_f32(weights[j] - max);
  } else {
    for (int64_t i = 0; i < args.n_experts; ++i) sum += math::exp_f32(scores[i] - max);
  }
  for (int64_t j = 0; j < k; ++j) weights[j] = math::exp_f32(weights[j] - max) / sum;
  if (args.rule != MoeRule::kRenormalised) return;
  float chosen = 0.0f;
  for (int64_t j = 0; j < k; ++j) chosen += weights[j];
  if (chosen < kMinWeightSum) chosen = kMinWeightSum;
  for (int64_t j = 0; j < k; ++j) weights[j] /= chosen;
}

void moe_route(const void* raw_args) {
  const MoeRouteArgs& args = *static_cast<const MoeRouteArgs*>(raw_args);
  for (int64_t t = 0; t < args.n_tokens; ++t) {
    route(args, args.scores + t * args.stride, args.out + t * args.out_stride);
  }
}

}  // namespace

KernelEntry moe_route_scalar(Target) { return &moe_route; }

}  // namespace engine
