// Byte-pair merging of one word by rank: the lowest rank first, of equal ranks the leftmost.
#ifndef ENGINE_LIB_TEXT_BPE_H_
#define ENGINE_LIB_TEXT_BPE_H_

#include <cstdint>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "lib/text/vocab.h"

namespace engine {

class Bpe {
 public:
  explicit Bpe(const std::vector<Vocab::Merge>& merges);

  // Buffers of one caller, kept between words.
  class Work {
    friend class Bpe;
    struct Symbol {
      int32_t id;
      int32_t previous;
      int32_t next;  // -1 at the ends
    };
    std::vector<Symbol> symbols_;
    std::vector<uint64_t> heap_;  // candidates: rank << 32 | index of the left symbol
  };

  // Appends the ids that `symbols` merge into. Time n log n.
  void merge(std::span<const int32_t> symbols, Work* work, std::vector<int32_t>* ids) const;

 private:
  static uint64_t pair_key(int32_t left, int32_t right) {
    return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
  }
  // Adds the candidate of a symbol and its right neighbour, if they merge; the heap is not put in
  // order.
  bool add(int32_t left, Work* work) const;

  std::vector<Vocab::Merge> merges_;                   // by rank
  absl::flat_hash_map<uint64_t, uint32_t> pair_rank_;  // pair_key -> rank
};

}  // namespace engine

#endif  // ENGINE_LIB_TEXT_BPE_H_
