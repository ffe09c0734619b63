// One backward search; arithmetic of luck.
#include "lib/session/draft_source.h"

#include <algorithm>

namespace engine {

std::span<const int32_t> lookup_draft(std::span<const int32_t> ids, int64_t shortest,
                                      int64_t longest, int64_t n_most) {
  const auto n = static_cast<int64_t>(ids.size());
  if (n_most < 1 || shortest < 1) return {};
  int64_t best = 0, best_end = 0;  // ids before best_end are the match
  for (int64_t end = n - 1; end >= shortest && best < longest; --end) {
    int64_t match = 0;
    const int64_t limit = std::min(longest, end);
    while (match < limit &&
           ids[static_cast<size_t>(end - 1 - match)] == ids[static_cast<size_t>(n - 1 - match)]) {
      ++match;
    }
    if (match >= shortest && match > best) {
      best = match;
      best_end = end;
    }
  }
  if (best == 0) return {};
  return ids.subspan(static_cast<size_t>(best_end),
                     static_cast<size_t>(std::min(n_most, n - best_end)));
}

int64_t DraftLength::next(int64_t n_most) {
  if (credit_ > 0) return std::min(length_, n_most);
  if (++n_skipped_ < kProbeEvery) return 0;
  n_skipped_ = 0;
  return std::min<int64_t>(2, n_most);
}

// Moving averages; a pass that was interrupted counts at most twice what is usual.
void DraftLength::learn_cost(int64_t n_guessed, uint64_t time_ns) {
  const auto time = static_cast<double>(time_ns);
  if (time_ns == 0) return;
  if (n_guessed == 0) {
    if (plain_ns_ == 0) plain_ns_ = time;
    plain_ns_ += (std::min(time, 2 * plain_ns_) - plain_ns_) / 8;
  } else if (plain_ns_ > 0) {
    const double sample = (time / plain_ns_ - 1) / static_cast<double>(n_guessed);
    cost_ += (std::clamp(sample, 0.0, 2.0) - cost_) / 4;
  }
}

void DraftLength::learn(int64_t n_guessed, int64_t n_right, uint64_t time_ns) {
  learn_cost(n_guessed, time_ns);
  if (n_guessed == 0) return;
  const double won = static_cast<double>(n_right) - cost_ * static_cast<double>(n_guessed);
  credit_ = std::clamp(credit_ + won, -kMost, kMost);
  length_ = n_right == n_guessed ? 2 * length_ : std::max<int64_t>(2, n_right + 1);
  length_ = std::min<int64_t>(length_, 64);
}

}  // namespace engine
