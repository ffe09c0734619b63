// SentencePiece's compiled normalisation table: the longest entry at each place is replaced.
#ifndef ENGINE_LIB_TEXT_CHARSMAP_H_
#define ENGINE_LIB_TEXT_CHARSMAP_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/status.h"

namespace engine {

class Charsmap {
 public:
  Charsmap() = default;
  // `blob`: u32 size of a double-array trie in bytes, the trie, then NUL-terminated replacements. Empty: no
  // entries. Anything may be in it: every step of a look-up is checked.
  static absl::StatusOr<Charsmap> read(std::string_view blob);

  struct Match {
    size_t n_bytes = 0;  // 0: no entry begins here
    std::string_view replacement;
  };
  Match longest(std::string_view text) const;

 private:
  std::vector<uint32_t> units_;
  std::string replacements_;
};

}  // namespace engine

#endif  // ENGINE_LIB_TEXT_CHARSMAP_H_
