// A linked list of symbols and a heap of candidate pairs; stale candidates are recognised by their ids.
#include "lib/text/bpe.h"

#include <algorithm>

namespace engine {

namespace {

// Heap order of std::push_heap: the greatest comes out first.
constexpr auto kLater = [](const auto& a, const auto& b) {
  return a.rank != b.rank ? a.rank > b.rank : a.left > b.left;
};

}  // namespace

Bpe::Bpe(const std::vector<Vocab::Merge>& merges) {
  pairs_.reserve(merges.size());
  uint32_t rank = 0;
  for (const Vocab::Merge& merge : merges) {
    pairs_.try_emplace(pair_key(merge.left, merge.right), Ranked{rank++, merge.result});
  }
}

void Bpe::push(int32_t left, Work* work) const {
  if (left < 0) return;
  const Work::Symbol& symbol = work->symbols_[left];
  if (symbol.next < 0) return;
  const int32_t right_id = work->symbols_[symbol.next].id;
  const auto found = pairs_.find(pair_key(symbol.id, right_id));
  if (found == pairs_.end()) return;
  work->heap_.push_back({found->second.rank, left, symbol.id, right_id, found->second.result});
  std::push_heap(work->heap_.begin(), work->heap_.end(), kLater);
}

void Bpe::merge(std::span<const int32_t> symbols, Work* work, std::vector<int32_t>* ids) const {
  if (symbols.size() < 2) {
    ids->insert(ids->end(), symbols.begin(), symbols.end());
    return;
  }
  std::vector<Work::Symbol>& list = work->symbols_;
  std::vector<Work::Candidate>& heap = work->heap_;
  const int32_t n = static_cast<int32_t>(symbols.size());
  list.clear();
  heap.clear();
  for (int32_t i = 0; i < n; ++i) list.push_back({symbols[i], i - 1, i + 1 < n ? i + 1 : -1});
  for (int32_t i = 0; i + 1 < n; ++i) push(i, work);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), kLater);
    const Work::Candidate best = heap.back();
    heap.pop_back();
    Work::Symbol& left = list[best.left];
    // A symbol that went into its left neighbour has id -1.
    if (left.id != best.left_id || left.next < 0 || list[left.next].id != best.right_id) continue;
    Work::Symbol& right = list[left.next];
    left.id = best.result;
    left.next = right.next;
    right.id = -1;
    if (left.next >= 0) list[left.next].previous = best.left;
    push(left.previous, work);
    push(best.left, work);
  }
  for (int32_t i = 0; i >= 0; i = list[i].next) ids->push_back(list[i].id);
}

}  // namespace engine
