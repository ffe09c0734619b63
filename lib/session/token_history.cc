// Ids and runs of writer sets.
#include "lib/session/token_history.h"

#include <algorithm>

namespace engine {

WriterSet TokenHistory::writers_at(int64_t position) const {
  WriterSet writers = kNoWriters;
  for (const Run& run : runs_) {
    if (run.begin > position) break;
    writers = run.writers;
  }
  return writers;
}

void TokenHistory::reserve(int64_t n) {
  ids_.reserve(static_cast<size_t>(n));
  if (runs_.size() == runs_.capacity()) runs_.reserve(2 * runs_.size() + 4);
}

void TokenHistory::append(std::span<const int32_t> ids, WriterSet writers) {
  if (runs_.empty() || runs_.back().writers != writers) runs_.push_back({size(), writers});
  ids_.insert(ids_.end(), ids.begin(), ids.end());
}

void TokenHistory::truncate(int64_t n) {
  ids_.resize(static_cast<size_t>(n));
  while (!runs_.empty() && runs_.back().begin >= n) runs_.pop_back();
}

}  // namespace engine
