// A ring of ids and a sorted list of counts.
#include "lib/sample/token_window.h"

#include <algorithm>

namespace engine {
namespace {

auto find_place(std::vector<TokenWindow::Count>& counts, int32_t id) {
  return std::lower_bound(counts.begin(), counts.end(), id,
                          [](const TokenWindow::Count& c, int32_t value) { return c.id < value; });
}

// So that what follows cannot throw; doubling keeps the cost of one push constant.
template <class T>
void make_room_for_one(std::vector<T>& v) {
  if (v.size() == v.capacity()) v.reserve(std::max<size_t>(64, v.capacity() * 2));
}

}  // namespace

void TokenWindow::push(int32_t id) {
  if (last_n_ == 0) return;
  make_room_for_one(counts_);
  if (last_n_ > 0) {
    if (ring_.size() < static_cast<size_t>(last_n_)) {
      make_room_for_one(ring_);
      ring_.push_back(id);
    } else {
      remove(ring_[oldest_]);
      ring_[oldest_] = id;
      oldest_ = (oldest_ + 1) % ring_.size();
    }
  }
  add(id);
}

std::vector<int32_t> TokenWindow::tokens() const {
  std::vector<int32_t> tokens(ring_);
  std::rotate(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(oldest_), tokens.end());
  return tokens;
}

void TokenWindow::add(int32_t id) {
  const auto place = find_place(counts_, id);
  if (place != counts_.end() && place->id == id) {
    ++place->count;
  } else {
    counts_.insert(place, {id, 1});
  }
}

void TokenWindow::remove(int32_t id) {
  const auto place = find_place(counts_, id);
  if (--place->count == 0) counts_.erase(place);
}

}  // namespace engine
