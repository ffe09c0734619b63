// Spaces as U+2581, which is how SentencePiece and its relatives write them in pieces.
#ifndef ENGINE_LIB_TEXT_ESCAPED_SPACES_H_
#define ENGINE_LIB_TEXT_ESCAPED_SPACES_H_

#include <string>
#include <string_view>

namespace engine {

inline constexpr std::string_view kEscapedSpace = "\xE2\x96\x81";  // U+2581

inline std::string escape_spaces(std::string_view text) {
  std::string out;
  out.reserve(text.size() + text.size() / 2);
  for (char c : text) {
    if (c == ' ') {
      out.append(kEscapedSpace);
    } else {
      out.push_back(c);
    }
  }
  return out;
}

inline std::string unescape_spaces(std::string_view text) {
  std::string out;
  size_t at = 0;
  while (true) {
    const size_t found = text.find(kEscapedSpace, at);
    out.append(text.substr(at, found - at));
    if (found == std::string_view::npos) return out;
    out.push_back(' ');
    at = found + kEscapedSpace.size();
  }
}

}  // namespace engine

#endif  // ENGINE_LIB_TEXT_ESCAPED_SPACES_H_
