// The published pre-tokenizer expressions and the names that files use for them, as data.
#ifndef ENGINE_LIB_TEXT_PRETOKENIZE_RULES_H_
#define ENGINE_LIB_TEXT_PRETOKENIZE_RULES_H_

#include <span>
#include <string_view>

namespace engine {

// Only as the last stage: cuts runs of \d into threes, counted from their right end. Not an
// expression: the published one looks ahead to the end of the run at every digit, which takes
// quadratic time.
inline constexpr std::string_view kThreesFromRight = "<threes from right>";

struct PretokenizeRule {
  std::string_view name;  // tokenizer.ggml.pre
  std::span<const std::string_view> stages;
  bool ignore_merges = false;  // a word that is a piece is taken whole
  bool adds_bos = false;       // when the file has no add_bos_token
  bool nfc = false;            // the text is brought to NFC first
};

// nullptr for an unknown name.
const PretokenizeRule* find_pretokenize_rule(std::string_view name);
std::span<const PretokenizeRule> pretokenize_rules();

}  // namespace engine

#endif  // ENGINE_LIB_TEXT_PRETOKENIZE_RULES_H_
