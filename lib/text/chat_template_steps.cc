// The lexer of chat templates: trim_blocks and lstrip_blocks on, as chat templates are rendered.
#include <cstddef>

#include "lib/text/chat_template.h"

namespace engine {

namespace {

using Kind = TemplateStep::Kind;

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

bool is_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

// A string literal's value; `at` is its opening quote and becomes the place after the closing one.
bool read_literal(std::string_view code, size_t* at, std::string* value) {
  const char quote = code[(*at)++];
  while (*at < code.size()) {
    const char c = code[(*at)++];
    if (c == quote) return true;
    if (c != '\\') {
      value->push_back(c);
      continue;
    }
    if (*at >= code.size()) return false;
    const char escaped = code[(*at)++];
    switch (escaped) {
      case 'n': value->push_back('\n'); break;
      case 't': value->push_back('\t'); break;
      case '\\':
      case '\'':
      case '"': value->push_back(escaped); break;
      default: return false;
    }
  }
  return false;
}

std::string quote_literal(std::string_view value) {
  std::string out = "'";
  for (char c : value) {
    if (c == '\'' || c == '\\') out.push_back('\\');
    if (c == '\n') {
      out += "\\n";
    } else {
      out.push_back(c);
    }
  }
  return out + "'";
}

// One operand of a sum.
struct Operand {
  bool is_literal = false;
  std::string code;  // the value of a literal, else canonical code
};

// Makes the spelling canonical and cuts at the `+` outside brackets.
bool read_operands(std::string_view code, std::vector<Operand>* operands) {
  Operand operand;
  int depth = 0;
  for (size_t at = 0; at < code.size();) {
    const char c = code[at];
    if (is_blank(c)) {
      // Between two words a blank counts.
      while (at < code.size() && is_blank(code[at])) ++at;
      const bool after_word =
          !operand.code.empty() && !operand.is_literal && is_name(operand.code.back());
      if (after_word && at < code.size() && is_name(code[at])) operand.code.push_back(' ');
      continue;
    }
    if (c == '\'' || c == '"') {
      std::string value;
      if (!read_literal(code, &at, &value)) return false;
      if (operand.code.empty() && !operand.is_literal) {
        operand = {true, value};
      } else {
        if (operand.is_literal) operand = {false, quote_literal(operand.code)};
        operand.code += quote_literal(value);
      }
      continue;
    }
    if (c == '+' && depth == 0) {
      operands->push_back(operand);
      operand = {};
      ++at;
      continue;
    }
    if (operand.is_literal) operand = {false, quote_literal(operand.code)};
    if (c == '(' || c == '[' || c == '{') ++depth;
    if (c == ')' || c == ']' || c == '}') --depth;
    bool is_key = false;
    for (std::string_view key : {".role", ".content"}) {
      const std::string_view rest = code.substr(at);
      if (rest.substr(0, key.size()) != key) continue;
      if (rest.size() > key.size() && (is_name(rest[key.size()]) || rest[key.size()] == '(')) {
        continue;
      }
      operand.code += "[" + quote_literal(key.substr(1)) + "]";
      at += key.size();
      is_key = true;
    }
    if (is_key) continue;
    operand.code.push_back(c);
    ++at;
  }
  operands->push_back(operand);
  return depth == 0;
}

void add_text(std::string_view text, std::vector<TemplateStep>* steps) {
  if (text.empty()) return;
  if (!steps->empty() && steps->back().kind == Kind::kText) {
    steps->back().code += text;
  } else {
    steps->push_back({Kind::kText, std::string(text)});
  }
}

bool add_tag(bool is_statement, std::string_view code, std::vector<TemplateStep>* steps) {
  std::vector<Operand> operands;
  if (!read_operands(code, &operands)) return false;
  if (is_statement) {
    std::string joined;
    for (const Operand& operand : operands) {
      if (!joined.empty()) joined += "+";
      joined += operand.is_literal ? quote_literal(operand.code) : operand.code;
    }
    steps->push_back({Kind::kStatement, joined});
    return true;
  }
  for (const Operand& operand : operands) {
    if (operand.is_literal) {
      add_text(operand.code, steps);
    } else if (operand.code.empty()) {
      return false;
    } else {
      steps->push_back({Kind::kOutput, operand.code});
    }
  }
  return true;
}

// The end of the tag whose code begins at `at`, quotes regarded; npos when it never ends.
size_t tag_end(std::string_view text, size_t at, std::string_view closing) {
  char quote = 0;
  for (; at < text.size(); ++at) {
    const char c = text[at];
    if (quote != 0) {
      if (c == '\\') ++at;
      if (c == quote) quote = 0;
    } else if (closing[0] != '#' && (c == '\'' || c == '"')) {
      quote = c;
    } else if (text.substr(at, 2) == closing) {
      return at;
    }
  }
  return std::string_view::npos;
}

}  // namespace

std::vector<TemplateStep> template_steps(std::string_view text) {
  std::vector<TemplateStep> steps;
  if (!text.empty() && text.back() == '\n') text.remove_suffix(1);
  bool trim_all = false;      // the tag before ended in `-`
  bool trim_newline = false;  // trim_blocks
  size_t at = 0;
  while (true) {
    size_t open = text.find('{', at);
    while (open != std::string_view::npos && open + 1 < text.size() && text[open + 1] != '{' &&
           text[open + 1] != '%' && text[open + 1] != '#') {
      open = text.find('{', open + 1);
    }
    if (open != std::string_view::npos && open + 1 >= text.size()) open = std::string_view::npos;
    const bool at_end = open == std::string_view::npos;
    std::string_view plain = text.substr(at, at_end ? std::string_view::npos : open - at);
    const bool newline_trimmed = trim_newline && !plain.empty() && plain[0] == '\n';
    if (newline_trimmed) plain.remove_prefix(1);
    while (trim_all && !plain.empty() && is_blank(plain[0])) plain.remove_prefix(1);
    if (at_end) {
      add_text(plain, &steps);
      return steps;
    }
    const char kind = text[open + 1];
    size_t code_at = open + 2;
    const char control = code_at < text.size() ? text[code_at] : 0;
    if (control == '-' || control == '+') ++code_at;
    if (control == '-') {
      while (!plain.empty() && is_blank(plain.back())) plain.remove_suffix(1);
    } else if (control != '+' && kind != '{') {
      // lstrip_blocks: blanks between the start of the line and the tag.
      std::string_view kept = plain;
      while (!kept.empty() && (kept.back() == ' ' || kept.back() == '\t')) kept.remove_suffix(1);
      const bool line_begins_here = kept.empty() && (at == 0 || newline_trimmed);
      if ((!kept.empty() && kept.back() == '\n') || line_begins_here) plain = kept;
    }
    add_text(plain, &steps);
    const char closing[] = {kind == '{' ? '}' : kind, '}', 0};
    size_t end = tag_end(text, code_at, closing);
    if (end == std::string_view::npos) return {};
    at = end + 2;
    std::string_view code = text.substr(code_at, end - code_at);
    trim_all = !code.empty() && code.back() == '-';
    if (!code.empty() && (code.back() == '-' || code.back() == '+')) code.remove_suffix(1);
    trim_newline = kind != '{';
    if (kind != '#' && !add_tag(kind == '%', code, &steps)) return {};
  }
}

}  // namespace engine
