// The published pre-tokenizer expressions and the names that files use for them, as data.
#ifndef ENGINE_LIB_TEXT_PRETOKENIZE_RULES_H_
#define ENGINE_LIB_TEXT_PRETOKENIZE_RULES_H_

#include <span>
#include <string_view>

namespace engine {

// Stages that are no expressions. They cut runs of digits into threes, counted from their right end;
// the published expressions look ahead to the end of the run at every digit, which takes quadratic
// time.
// Only as the last stage: runs of \d, which stay joined to what follows them.
inline constexpr std::string_view kThreesFromRight = "<threes from right>";
// Runs of \p{N}, also cut from what is around them.
inline constexpr std::string_view kThreesAlone = "<threes alone>";
// Runs of \d that no letter, mark, number or connector follows, also cut from what is around them;
// other runs are left as they are.
inline constexpr std::string_view kThreesBeforeBoundary = "<threes before boundary>";

// How a vocabulary writes bytes and spaces.
enum class Alphabet {
  kBytes,          // every byte has a code point of its own
  kEscapedSpaces,  // text as it is, spaces as U+2581; what has no piece becomes <0xXX>
};

struct PretokenizeRule {
  std::string_view name;  // tokenizer.ggml.pre
  std::span<const std::string_view> stages;
  bool ignore_merges = false;  // a word that is a piece is taken whole
  bool adds_bos = false;       // when the file has no add_bos_token
  bool nfc = false;            // the text is brought to NFC first
  Alphabet alphabet = Alphabet::kBytes;
  bool starts_with_space = false;  // U+2581 is put before every text that lacks it
};

// A name that is in use, and why it is refused.
struct UnsupportedPretokenizer {
  std::string_view name;
  std::string_view why;
};

// nullptr for an unknown name.
const PretokenizeRule* find_pretokenize_rule(std::string_view name);
std::span<const PretokenizeRule> pretokenize_rules();
std::span<const UnsupportedPretokenizer> unsupported_pretokenizers();

}  // namespace engine

#endif  // ENGINE_LIB_TEXT_PRETOKENIZE_RULES_H_
