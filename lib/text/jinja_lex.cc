// White space control first, then the tokens of each piece of code.
#include "lib/text/jinja_lex.h"

#include <array>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "lib/text/jinja_value.h"
#include "lib/text/utf8_scan.h"

namespace engine::jinja {

namespace {

absl::Status lex_error(size_t at, std::string_view message) {
  return template_error(absl::StrCat("at byte ", at, ": ", message));
}

bool is_space(char c) { return absl::ascii_isspace(static_cast<unsigned char>(c)); }
bool is_name_char(char c) { return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_'; }

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {
    if (source_.ends_with('\n')) source_.remove_suffix(1);
  }

  absl::StatusOr<std::vector<Token>> run() {
    while (at_ < source_.size()) {
      const size_t open = next_open(at_);
      const char kind = open < source_.size() ? source_[open + 1] : '\0';
      put_text(open, kind);
      at_ = open;
      if (kind == '\0') break;
      at_ += 2;
      if (at_ < source_.size() && (source_[at_] == '-' || source_[at_] == '+')) ++at_;
      if (kind == '#') {
        ENGINE_RETURN_IF_ERROR(skip_comment());
      } else if (kind == '%' && is_raw()) {
        ENGINE_RETURN_IF_ERROR(put_raw());
      } else {
        ENGINE_RETURN_IF_ERROR(put_code(kind));
      }
    }
    tokens_.push_back({Token::Kind::kEnd, "", source_.size()});
    return std::move(tokens_);
  }

 private:
  // The next "{{", "{%" or "{#", or the end.
  size_t next_open(size_t from) const {
    for (size_t i = from; i + 1 < source_.size(); ++i) {
      if (source_[i] == '{' &&
          (source_[i + 1] == '{' || source_[i + 1] == '%' || source_[i + 1] == '#')) {
        return i;
      }
    }
    return source_.size();
  }

  // Text up to `open`, whose white space the code before and after it may take.
  void put_text(size_t open, char kind) {
    size_t begin = at_;
    size_t end = open;
    if (strip_after_) {
      while (begin < end && is_space(source_[begin])) ++begin;
    } else if (trim_newline_ && begin < end && source_[begin] == '\n') {
      ++begin;
    }
    strip_after_ = trim_newline_ = false;
    if (kind != '\0') {
      const char control = open + 2 < source_.size() ? source_[open + 2] : '\0';
      if (control == '-') {
        while (end > begin && is_space(source_[end - 1])) --end;
      } else if (kind != '{' && control != '+') {
        // lstrip_blocks: blanks between the start of the line and the code.
        size_t line = end;
        while (line > begin && (source_[line - 1] == ' ' || source_[line - 1] == '\t')) --line;
        const bool at_start = line == 0 || source_[line - 1] == '\n';
        if (at_start) end = line;
      }
    }
    if (end > begin) {
      tokens_.push_back(
          {Token::Kind::kText, std::string(source_.substr(begin, end - begin)), begin});
    }
  }

  void after_code(bool minus, bool plus, bool trims) {
    strip_after_ = minus;
    trim_newline_ = trims && !plus;
  }

  absl::Status skip_comment() {
    const size_t close = source_.find("#}", at_);
    if (close == std::string_view::npos) return lex_error(at_, "a comment has no end");
    after_code(source_[close - 1] == '-', source_[close - 1] == '+', true);
    at_ = close + 2;
    return absl::OkStatus();
  }

  // Whether a statement is `raw`.
  bool is_raw() const {
    size_t i = at_;
    while (i < source_.size() && is_space(source_[i])) ++i;
    return source_.substr(i, 3) == "raw" &&
           (i + 3 >= source_.size() || !is_name_char(source_[i + 3]));
  }

  absl::Status put_raw() {
    const size_t close = source_.find("%}", at_);
    if (close == std::string_view::npos) return lex_error(at_, "a statement has no end");
    const size_t begin = close + 2;
    for (size_t open = source_.find("{%", begin); open != std::string_view::npos;
         open = source_.find("{%", open + 2)) {
      size_t i = open + 2;
      while (i < source_.size() && (is_space(source_[i]) || source_[i] == '-')) ++i;
      if (source_.substr(i, 6) != "endraw") continue;
      const size_t end = source_.find("%}", i);
      if (end == std::string_view::npos) break;
      tokens_.push_back(
          {Token::Kind::kText, std::string(source_.substr(begin, open - begin)), begin});
      after_code(source_[end - 1] == '-', false, true);
      at_ = end + 2;
      return absl::OkStatus();
    }
    return lex_error(at_, "raw has no end");
  }

  absl::Status put_code(char kind) {
    const bool output = kind == '{';
    tokens_.push_back({output ? Token::Kind::kOutput : Token::Kind::kStatement, "", at_});
    const std::string_view close = output ? "}}" : "%}";
    int depth = 0;  // of braces, which may end an expression in "}}"
    while (true) {
      while (at_ < source_.size() && is_space(source_[at_])) ++at_;
      if (at_ >= source_.size()) return lex_error(at_, "code has no end");
      const std::string_view rest = source_.substr(at_);
      const size_t sign = rest[0] == '-' || rest[0] == '+' ? 1 : 0;
      if (depth == 0 && rest.substr(sign, 2) == close) {
        after_code(sign == 1 && rest[0] == '-', sign == 1 && rest[0] == '+', !output);
        tokens_.push_back({output ? Token::Kind::kOutputEnd : Token::Kind::kStatementEnd, "", at_});
        at_ += sign + 2;
        return absl::OkStatus();
      }
      if (rest[0] == '{') ++depth;
      if (rest[0] == '}') --depth;
      ENGINE_RETURN_IF_ERROR(put_token());
    }
  }

  absl::Status put_token() {
    const size_t begin = at_;
    const char c = source_[at_];
    if (c == '"' || c == '\'') return put_string(c);
    if (absl::ascii_isdigit(static_cast<unsigned char>(c))) {
      bool real = false;
      while (at_ < source_.size()) {
        const bool point = source_[at_] == '.' && !real && at_ + 1 < source_.size() &&
                           absl::ascii_isdigit(static_cast<unsigned char>(source_[at_ + 1]));
        if (!point && !absl::ascii_isdigit(static_cast<unsigned char>(source_[at_])) &&
            source_[at_] != '_')
          break;
        real |= point;
        ++at_;
      }
      std::string digits;
      for (char d : source_.substr(begin, at_ - begin)) {
        if (d != '_') digits.push_back(d);
      }
      tokens_.push_back({real ? Token::Kind::kReal : Token::Kind::kInteger, digits, begin});
      return absl::OkStatus();
    }
    if (is_name_char(c)) {
      while (at_ < source_.size() && is_name_char(source_[at_])) ++at_;
      tokens_.push_back(
          {Token::Kind::kName, std::string(source_.substr(begin, at_ - begin)), begin});
      return absl::OkStatus();
    }
    constexpr std::array<std::string_view, 23> kOperators = {
        "==", "!=", "<=", ">=", "//", "**", "+", "-", "*", "/", "%", "~",
        "<",  ">",  "=",  "(",  ")",  "[",  "]", "{", "}", ",", ":"};
    for (const std::string_view op : kOperators) {
      if (source_.substr(at_, op.size()) != op) continue;
      at_ += op.size();
      tokens_.push_back({Token::Kind::kOperator, std::string(op), begin});
      return absl::OkStatus();
    }
    if (c == '.' || c == '|') {
      ++at_;
      tokens_.push_back({Token::Kind::kOperator, std::string(1, c), begin});
      return absl::OkStatus();
    }
    return lex_error(at_, absl::StrCat("unexpected character ", static_cast<int>(c)));
  }

  absl::Status put_string(char quote) {
    const size_t begin = at_++;
    std::string text;
    for (; at_ < source_.size() && source_[at_] != quote; ++at_) {
      if (source_[at_] != '\\' || at_ + 1 >= source_.size()) {
        text.push_back(source_[at_]);
        continue;
      }
      const char c = source_[++at_];
      switch (c) {
        case 'n': text.push_back('\n'); break;
        case 't': text.push_back('\t'); break;
        case 'r': text.push_back('\r'); break;
        case 'b': text.push_back('\b'); break;
        case 'f': text.push_back('\f'); break;
        case 'v': text.push_back('\v'); break;
        case '0': text.push_back('\0'); break;
        case '\n': break;
        case 'x':
        case 'u':
        case 'U': {
          const size_t n = c == 'x' ? 2 : c == 'u' ? 4 : 8;
          uint32_t scalar = 0;
          for (size_t i = 0; i < n; ++i) {
            const char digit = at_ + 1 < source_.size() ? source_[++at_] : '\0';
            if (!absl::ascii_isxdigit(static_cast<unsigned char>(digit))) {
              return lex_error(begin, "an escape has too few digits");
            }
            scalar = scalar * 16 +
                     static_cast<uint32_t>(digit <= '9' ? digit - '0' : (digit | 32) - 'a' + 10);
          }
          if (scalar > 0x10FFFF || (scalar >= 0xD800 && scalar < 0xE000)) {
            return lex_error(begin, "an escape is no character");
          }
          utf8_append(scalar, &text);
          break;
        }
        case '\\':
        case '\'':
        case '"': text.push_back(c); break;
        default: text.push_back('\\'); text.push_back(c);
      }
    }
    if (at_ >= source_.size()) return lex_error(begin, "a string has no end");
    ++at_;
    tokens_.push_back({Token::Kind::kString, std::move(text), begin});
    return absl::OkStatus();
  }

  std::string_view source_;
  size_t at_ = 0;
  bool strip_after_ = false;
  bool trim_newline_ = false;
  std::vector<Token> tokens_;
};

}  // namespace

absl::StatusOr<std::vector<Token>> lex(std::string_view source) { return Lexer(source).run(); }

}  // namespace engine::jinja
