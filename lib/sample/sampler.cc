// Parameters, the order of the stages, and what a call commits.
#include "lib/sample/sampler.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <new>
#include <string>
#include <utility>

#if defined(__linux__)
#include <sys/random.h>
#elif defined(_WIN32)
#include <random>
#endif

#include "lib/base/float_state.h"
#include "lib/base/status.h"

namespace engine {
namespace {

absl::Status check(bool good, const char* name, const char* allowed) {
  if (good) return absl::OkStatus();
  return error(Code::kArgument, std::string(name) + " is not " + allowed);
}

absl::Status check_params(const SamplerParams& p) {
  ENGINE_RETURN_IF_ERROR(check(p.temperature < std::numeric_limits<float>::infinity(),
                               "temperature", "a number below infinity"));
  ENGINE_RETURN_IF_ERROR(check(p.top_p >= 0, "top_p", "a number >= 0"));
  ENGINE_RETURN_IF_ERROR(check(p.min_p >= 0 && p.min_p <= 1, "min_p", "in 0 .. 1"));
  ENGINE_RETURN_IF_ERROR(check(std::isfinite(p.repeat_penalty) && p.repeat_penalty >= 0,
                               "repeat_penalty", "a finite number >= 0"));
  ENGINE_RETURN_IF_ERROR(
      check(std::isfinite(p.frequency_penalty), "frequency_penalty", "a finite number"));
  ENGINE_RETURN_IF_ERROR(
      check(std::isfinite(p.presence_penalty), "presence_penalty", "a finite number"));
  return check(p.penalty_last_n >= -1, "penalty_last_n", "-1 or more");
}

double repeat_factor(const SamplerParams& p) {
  return p.repeat_penalty == 0 ? 1.0 : static_cast<double>(p.repeat_penalty);
}

bool any_penalty(const SamplerParams& p) {
  return p.penalty_last_n != 0 &&
         (repeat_factor(p) != 1 || p.frequency_penalty != 0 || p.presence_penalty != 0);
}

}  // namespace

Sampler::Sampler(const SamplerParams& params)
    : params_(params),
      has_penalties_(any_penalty(params)),
      rng_(params.seed),
      window_(has_penalties_ ? params.penalty_last_n : 0) {}

absl::StatusOr<Sampler> Sampler::create(const SamplerParams& params) {
  ENGINE_RETURN_IF_ERROR(check_params(params));
  return Sampler(params);
}

void Sampler::accept(int32_t id) {
  if (id >= 0) window_.push(id);
}

absl::StatusOr<int32_t> Sampler::sample(std::span<const float> logits) {
  if (logits.empty() || logits.size() > static_cast<size_t>(INT32_MAX)) {
    return error(Code::kArgument, "the number of logits is not in 1 .. 2147483647");
  }
  const FloatStateGuard float_state;
  try {
    Rng rng = rng_;
    const double unit = params_.temperature > 0 ? rng.next_unit() : 0;
    ENGINE_ASSIGN_OR_RETURN(const int32_t id, choose(logits, unit));
    accept(id);
    rng_ = rng;
    return id;
  } catch (const std::bad_alloc&) {
    return error(Code::kMemory, "no memory for " + std::to_string(logits.size()) + " candidates");
  }
}

absl::StatusOr<int32_t> Sampler::choose(std::span<const float> logits, double unit) {
  const Penalties penalties{repeat_factor(params_), params_.frequency_penalty,
                            params_.presence_penalty};
  switch (candidates_.fill(logits, window_.counts(), penalties)) {
    case Candidates::Fill::kOk: break;
    case Candidates::Fill::kNonFinite:
      return error(Code::kNonFinite, "a logit is NaN or +infinity");
    case Candidates::Fill::kNone:
      return error(Code::kNonFinite, "no logit is finite: every token is masked");
  }
  // The largest logit survives every stage, so the stages do not matter to it.
  if (!(params_.temperature > 0)) return candidates_.greedy();
  if (params_.top_k > 0) candidates_.keep_top_k(static_cast<size_t>(params_.top_k));
  if (params_.top_p < 1) candidates_.keep_top_p(params_.top_p);
  if (params_.min_p > 0) candidates_.keep_min_p(params_.min_p);
  return candidates_.draw(params_.temperature, unit);
}

absl::StatusOr<uint64_t> random_seed() {
  uint64_t seed = 0;
#if defined(__linux__)
  ssize_t n = -1;
  do {
    n = getrandom(&seed, sizeof seed, 0);
  } while (n < 0 && errno == EINTR);
  if (n != static_cast<ssize_t>(sizeof seed)) {
    return error(Code::kInternal, "the operating system gave no random seed");
  }
#elif defined(_WIN32)
  std::random_device device;
  seed = (uint64_t{device()} << 32) | device();
#else
  arc4random_buf(&seed, sizeof seed);
#endif
  return seed;
}

int32_t argmax(std::span<const float> logits) {
  int32_t best = -1;
  float best_logit = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (best < 0 ? logits[i] == logits[i] : logits[i] > best_logit) {
      best = static_cast<int32_t>(i);
      best_logit = logits[i];
    }
  }
  return best;
}

}  // namespace engine
