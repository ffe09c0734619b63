// SentencePiece merging of a text by score: the highest first, of equal scores the leftmost.
#ifndef ENGINE_LIB_TEXT_SPM_H_
#define ENGINE_LIB_TEXT_SPM_H_

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "lib/base/status.h"
#include "lib/text/vocab.h"

namespace engine {

class Spm {
 public:
  // `vocab` must outlive this.
  explicit Spm(const Vocab& vocab);

  // Appends the ids of `text`, whose spaces are already U+2581 and which holds no added token.
  // Bytes that no piece covers become byte pieces, or else the unknown token, once for each run of
  // them.
  absl::Status encode(std::string_view text, std::vector<int32_t>* ids) const;

 private:
  struct Symbol {
    const char* begin;
    uint32_t n_bytes;  // 0: it went into its left neighbour
    int32_t previous;
    int32_t next;  // -1 at the ends
  };
  struct Candidate {
    float score;
    int32_t left;
    uint32_t n_bytes;
  };
  // What one call needs.
  struct Work {
    std::vector<Symbol> symbols;
    std::vector<Candidate> heap;
    // An UNUSED piece is never put out: the size of the left of the two parts it was made of.
    absl::flat_hash_map<int32_t, uint32_t> unused_left_bytes;
  };

  bool may_join(std::string_view left_char, std::string_view right_char) const;
  // Adds the candidate of a symbol and its right neighbour, if they make a piece; the heap is not
  // put in order.
  bool add(int32_t left, Work* work) const;
  void merge_word(std::string_view word, Work* work) const;
  absl::Status put(std::string_view piece, Work* work, std::vector<int32_t>* ids) const;

  const Vocab& vocab_;
  std::array<int32_t, 256> byte_ids_;
  std::vector<uint64_t> joins_;  // bits of hashed pairs of neighbouring characters inside pieces
};

}  // namespace engine

#endif  // ENGINE_LIB_TEXT_SPM_H_
