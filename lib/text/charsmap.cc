// Walks the double-array trie that SentencePiece writes.
#include "lib/text/charsmap.h"

#include <cstring>

namespace engine {

namespace {

constexpr uint32_t kHasLeaf = 1U << 8;
constexpr uint32_t kValueMask = 0x7FFFFFFF;
constexpr uint32_t kLabelMask = 0x800000FF;  // a leaf's unit has the upper bit and matches no byte

// Distance to the children of a unit; bit 9 stands for eight more bits of it.
uint32_t offset_of(uint32_t unit) { return (unit >> 10) << ((unit & (1U << 9)) >> 6); }

}  // namespace

absl::StatusOr<Charsmap> Charsmap::read(std::string_view blob) {
  Charsmap map;
  if (blob.empty()) return map;
  uint32_t trie_bytes = 0;
  if (blob.size() < sizeof(trie_bytes)) {
    return error(Code::kTokenizer, "the normalisation table has no size");
  }
  std::memcpy(&trie_bytes, blob.data(), sizeof(trie_bytes));
  blob.remove_prefix(sizeof(trie_bytes));
  if (trie_bytes == 0 || trie_bytes % sizeof(uint32_t) != 0 || trie_bytes > blob.size()) {
    return error(Code::kTokenizer, "the normalisation table's size does not fit");
  }
  map.units_.resize(trie_bytes / sizeof(uint32_t));
  std::memcpy(map.units_.data(), blob.data(), trie_bytes);
  map.replacements_ = std::string(blob.substr(trie_bytes));
  return map;
}

Charsmap::Match Charsmap::longest(std::string_view text) const {
  Match best;
  if (units_.empty()) return best;
  uint32_t at = offset_of(units_[0]);
  for (size_t i = 0; i < text.size(); ++i) {
    const uint8_t byte = static_cast<uint8_t>(text[i]);
    at ^= byte;
    if (at >= units_.size() || (units_[at] & kLabelMask) != byte) break;
    const bool has_leaf = (units_[at] & kHasLeaf) != 0;
    at ^= offset_of(units_[at]);
    if (at >= units_.size()) break;
    if (!has_leaf) continue;
    const uint32_t value = units_[at] & kValueMask;
    if (value >= replacements_.size()) continue;
    const size_t end = replacements_.find('\0', value);
    best = {i + 1, std::string_view(replacements_).substr(value, end - value)};
  }
  return best;
}

}  // namespace engine
