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
    struct Candidate {
      uint32_t rank;
      int32_t left;  // index of the left symbol: its place in the word
      int32_t left_id;
      int32_t right_id;
      int32_t result;
    };
    std::vector<Symbol> symbols_;
    std::vector<Candidate> heap_;
  };

  // Appends the ids that `symbols` merge into. Time n log n.
  void merge(std::span<const int32_t> symbols, Work* work, std::vector<int32_t>* ids) const;

 private:
  struct Ranked {
    uint32_t rank;
    int32_t result;
  };
  static uint64_t pair_key(int32_t left, int32_t right) {
    return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
  }
  void push(int32_t left, Work* work) const;

  absl::flat_hash_map<uint64_t, Ranked> pairs_;
};

}  // namespace engine

#endif  // ENGINE_LIB_TEXT_BPE_H_
