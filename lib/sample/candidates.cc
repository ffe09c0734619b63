// Filling, cutting down and drawing from the list of candidates.
#include "lib/sample/candidates.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "lib/base/det_math.h"

namespace engine {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kLargest = std::numeric_limits<float>::max();
// First number of candidates that are sorted when it is not known how many are needed, and its
// growth.
constexpr size_t kFirstSorted = 128;
constexpr size_t kSortedGrowth = 4;

bool comes_before(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

// The formulas of engine_sampler_params, repetition first. The result stays finite: a penalty
// neither masks a token nor lets it win alone.
float penalised(float logit, uint32_t count, const Penalties& penalties) {
  double z = logit;
  z = z > 0 ? z / penalties.repeat : z * penalties.repeat;
  z -= static_cast<double>(count) * penalties.frequency + penalties.presence;
  return static_cast<float>(
      std::clamp(z, -static_cast<double>(kLargest), static_cast<double>(kLargest)));
}

// Calls use(i, exp((logit - max) / temperature)) for every candidate in order, until it returns false.
template <class F>
void for_weights(std::span<const Candidate> list, float max, double temperature, F&& use) {
  constexpr size_t kBlock = 256;
  double weights[kBlock];
  for (size_t begin = 0; begin < list.size(); begin += kBlock) {
    const size_t n = std::min(kBlock, list.size() - begin);
    for (size_t i = 0; i < n; ++i) {
      weights[i] = (static_cast<double>(list[begin + i].logit) - max) / temperature;
    }
    det_exp_many(weights, n, weights);
    for (size_t i = 0; i < n; ++i) {
      if (!use(begin + i, weights[i])) return;
    }
  }
}

double weight_sum(std::span<const Candidate> list, float max, double temperature) {
  double sum = 0;
  for_weights(list, max, temperature, [&](size_t, double w) {
    sum += w;
    return true;
  });
  return sum;
}

}  // namespace

Candidates::Fill Candidates::fill(std::span<const float> logits,
                                  const std::vector<TokenWindow::Count>& counts,
                                  const Penalties& penalties) {
  n_sorted_ = 0;
  list_.resize(logits.size());
  size_t n = 0;
  auto next = counts.begin();
  max_ = -kInf;
  for (size_t i = 0; i < logits.size(); ++i) {
    const int32_t id = static_cast<int32_t>(i);
    float z = logits[i];
    if (!(z < kInf)) return Fill::kNonFinite;
    const bool is_counted = next != counts.end() && next->id == id;
    if (z != -kInf) {
      if (is_counted) z = penalised(z, next->count, penalties);
      list_[n++] = {z, id};
      max_ = std::max(max_, z);
    }
    if (is_counted) ++next;
  }
  list_.resize(n);
  return n == 0 ? Fill::kNone : Fill::kOk;
}

void Candidates::keep_top_k(size_t k) {
  if (k == 0 || k >= list_.size()) return;
  sort_prefix(k);
  list_.resize(k);
}

void Candidates::keep_top_p(double top_p) {
  const double wanted = top_p * weight_sum(list_, max_, 1.0);
  double sum = 0;
  size_t n = 0;
  do {
    sum += det_exp(static_cast<double>(at_sorted(n).logit) - max_);
    ++n;
  } while (sum < wanted && n < list_.size());
  list_.resize(n);
  n_sorted_ = n;
}

void Candidates::keep_min_p(double min_p) {
  if (n_sorted_ == list_.size()) {  // a prefix of the order
    size_t n = 1;
    while (n < list_.size() && det_exp(static_cast<double>(list_[n].logit) - max_) >= min_p) ++n;
    list_.resize(n);
    n_sorted_ = n;
    return;
  }
  size_t kept = 0;
  for_weights(list_, max_, 1.0, [&](size_t i, double w) {
    if (w >= min_p) list_[kept++] = list_[i];
    return true;
  });
  list_.resize(kept);
  n_sorted_ = 0;
}

int32_t Candidates::greedy() const {
  return std::min_element(list_.begin(), list_.end(), comes_before)->id;
}

int32_t Candidates::draw(double temperature, double unit) {
  const auto weight = [&](const Candidate& c) {
    return det_exp((static_cast<double>(c.logit) - max_) / temperature);
  };
  const double target = unit * weight_sum(list_, max_, temperature);
  double sum = 0;
  int32_t last = at_sorted(0).id;
  for (size_t i = 0; i < list_.size(); ++i) {
    const Candidate& c = at_sorted(i);
    const double w = weight(c);
    if (w == 0) break;  // the rest weighs nothing either
    last = c.id;
    sum += w;
    if (sum > target) break;
  }
  return last;  // by rounding the sum may fall short of the target: then the last that weighs
                // something
}

void Candidates::sort_prefix(size_t n) {
  n = std::min(n, list_.size());
  if (n <= n_sorted_) return;
  const auto first = list_.begin() + static_cast<std::ptrdiff_t>(n_sorted_);
  const auto middle = list_.begin() + static_cast<std::ptrdiff_t>(n);
  if (middle != list_.end()) std::nth_element(first, middle, list_.end(), comes_before);
  std::sort(first, middle, comes_before);
  n_sorted_ = n;
}

const Candidate& Candidates::at_sorted(size_t i) {
  if (i >= n_sorted_) sort_prefix(std::max({i + 1, kFirstSorted, n_sorted_ * kSortedGrowth}));
  return list_[i];
}

}  // namespace engine
