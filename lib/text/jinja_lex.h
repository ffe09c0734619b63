// Cuts a chat template into text and code, and code into tokens, with white space control applied.
#ifndef ENGINE_LIB_TEXT_JINJA_LEX_H_
#define ENGINE_LIB_TEXT_JINJA_LEX_H_

#include <string>
#include <string_view>
#include <vector>

#include "lib/base/status.h"

namespace engine::jinja {

struct Token {
  enum class Kind {
    kText,          // template text
    kOutput,        // {{
    kOutputEnd,     // }}
    kStatement,     // {%
    kStatementEnd,  // %}
    kName,
    kString,
    kInteger,
    kReal,
    kOperator,
    kEnd,
  };
  Kind kind;
  std::string text;  // of a string: its value
  size_t offset;     // in the source, for messages
};

// With trim_blocks and lstrip_blocks, and one line end at the very end dropped, as Hugging Face sets them. The
// last token is kEnd.
absl::StatusOr<std::vector<Token>> lex(std::string_view source);

}  // namespace engine::jinja

#endif  // ENGINE_LIB_TEXT_JINJA_LEX_H_
