// Finds added tokens inside text: leftmost, then longest, in linear time, for each matching level.
#ifndef ENGINE_LIB_TEXT_SPECIAL_SPLIT_H_
#define ENGINE_LIB_TEXT_SPECIAL_SPLIT_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "lib/text/tokenizer.h"

namespace engine {

// An Aho-Corasick automaton over the reversed tokens. The text is walked from its end, so that the
// state at a byte knows the longest token that begins there; the choice of tokens then runs
// forward.
class SpecialSplit {
 public:
  struct Pattern {
    std::string_view text;  // not empty; of equal texts the first added wins
    int32_t id;
    SpecialPolicy level;  // the lowest level that matches it
  };
  struct Hit {
    size_t begin;
    size_t n_bytes;
    int32_t id;
  };

  explicit SpecialSplit(const std::vector<Pattern>& patterns);

  // The tokens of `text` that `level` allows, in order, never overlapping.
  std::vector<Hit> find(std::string_view text, SpecialPolicy level) const;

 private:
  static constexpr size_t kLevels = 3;

  struct Match {
    int32_t id = -1;
    uint32_t n_bytes = 0;
  };
  struct State {
    uint32_t fail = 0;
    std::array<Match, kLevels> longest;  // that begins at this byte, for each level
  };

  uint32_t step(uint32_t state, uint8_t byte) const;

  std::vector<State> states_;
  std::array<uint32_t, 256> root_{};
  absl::flat_hash_map<uint64_t, uint32_t> next_;  // state * 256 + byte -> state, without the root's
  std::array<bool, kLevels> any_{};
};

}  // namespace engine

#endif  // ENGINE_LIB_TEXT_SPECIAL_SPLIT_H_
