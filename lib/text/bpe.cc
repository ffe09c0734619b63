// A linked list of symbols and a heap of candidate pairs; stale candidates are recognised by their
// ids.
#include "lib/text/bpe.h"

#include <algorithm>
#include <functional>

namespace engine {

Bpe::Bpe(const std::vector<Vocab::Merge>& merges) : merges_(merges) {
  pair_rank_.reserve(merges.size());
  uint32_t rank = 0;
  for (const Vocab::Merge& merge : merges) {
    pair_rank_.try_emplace(pair_key(merge.left, merge.right), rank++);  // of equal pairs the first
  }
}

bool Bpe::add(int32_t left, Work* work) const {
  if (left < 0) return false;
  const Work::Symbol& symbol = work->symbols_[left];
  if (symbol.next < 0) return false;
  const auto found = pair_rank_.find(pair_key(symbol.id, work->symbols_[symbol.next].id));
  if (found == pair_rank_.end()) return false;
  work->heap_.push_back(uint64_t{found->second} << 32 | static_cast<uint32_t>(left));
  return true;
}

void Bpe::merge(std::span<const int32_t> symbols, Work* work, std::vector<int32_t>* ids) const {
  if (symbols.size() < 2) {
    ids->insert(ids->end(), symbols.begin(), symbols.end());
    return;
  }
  std::vector<Work::Symbol>& list = work->symbols_;
  std::vector<uint64_t>& heap = work->heap_;
  const int32_t n = static_cast<int32_t>(symbols.size());
  list.clear();
  heap.clear();
  for (int32_t i = 0; i < n; ++i) list.push_back({symbols[i], i - 1, i + 1 < n ? i + 1 : -1});
  for (int32_t i = 0; i + 1 < n; ++i) add(i, work);
  constexpr std::greater<uint64_t> kLeastFirst;
  std::make_heap(heap.begin(), heap.end(), kLeastFirst);
  const auto push = [&](int32_t at) {
    if (add(at, work)) std::push_heap(heap.begin(), heap.end(), kLeastFirst);
  };
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), kLeastFirst);
    const Vocab::Merge& merge = merges_[heap.back() >> 32];
    const int32_t at = static_cast<int32_t>(heap.back() & 0xFFFFFFFF);
    heap.pop_back();
    Work::Symbol& left = list[at];
    // A symbol that went into its left neighbour has id -1.
    if (left.id != merge.left || left.next < 0 || list[left.next].id != merge.right) continue;
    Work::Symbol& right = list[left.next];
    left.id = merge.result;
    left.next = right.next;
    right.id = -1;
    if (left.next >= 0) list[left.next].previous = at;
    push(left.previous);
    push(at);
  }
  for (int32_t i = 0; i >= 0; i = list[i].next) ids->push_back(list[i].id);
}

}  // namespace engine
