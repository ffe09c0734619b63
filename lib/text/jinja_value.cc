// Truth, order, equality and the printed forms of values.
#include "lib/text/jinja_value.h"

#include <utf8proc.h>

#include <charconv>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/text/utf8_scan.h"

namespace engine::jinja {

namespace {

// Lists that share parts can print far longer than they are; no conversation does.
constexpr size_t kMaxNestedBytes = size_t{4} << 20;

// Python's repr of a float: the shortest digits, with a point.
std::string real_text(double x) {
  if (std::isnan(x)) return "nan";
  if (std::isinf(x)) return x > 0 ? "inf" : "-inf";
  char buffer[64];
  const double size = std::fabs(x);
  const bool fixed = x == 0 || (size >= 1e-4 && size < 1e16);
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), x,
                                 fixed ? std::chars_format::fixed : std::chars_format::scientific);
  std::string text(buffer, end.ptr);
  if (fixed && text.find('.') == std::string::npos) text += ".0";
  return text;
}

// What Python's repr does not escape.
bool is_printable(uint32_t scalar) {
  if (scalar == ' ') return true;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(scalar))) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP: return false;
    default: return true;
  }
}

// Python's repr of a string.
void put_quoted(const Text& text, Text* out) {
  const bool has_single = text.chars.find('\'') != std::string::npos;
  const char quote = has_single && text.chars.find('"') == std::string::npos ? '"' : '\'';
  out->append(std::string_view(&quote, 1));
  for (size_t at = 0; at < text.chars.size();) {
    const char c = text.chars[at];
    const Utf8Step step = utf8_step(std::string_view(text.chars).substr(at));
    if (c == '\n') {
      out->append("\\n");
    } else if (c == '\r') {
      out->append("\\r");
    } else if (c == '\t') {
      out->append("\\t");
    } else if (step.valid && !is_printable(step.scalar)) {
      const uint32_t scalar = step.scalar;
      out->append(scalar < 0x100     ? absl::StrFormat("\\x%02x", scalar)
                  : scalar < 0x10000 ? absl::StrFormat("\\u%04x", scalar)
                                     : absl::StrFormat("\\U%08x", scalar));
    } else {
      if (c == '\\' || c == quote) out->append("\\");
      out->append(text.part(at, step.n_bytes));
    }
    at += step.n_bytes;
  }
  out->append(std::string_view(&quote, 1));
}

void put(const Value& value, bool quoted, Text* out) {
  if (value.is_text()) {
    if (quoted) {
      put_quoted(value.as_text(), out);
    } else {
      out->append(value.as_text());
    }
  } else if (value.is_none()) {
    out->append("None");
  } else if (value.is_bool()) {
    out->append(value.as_integer() ? "True" : "False");
  } else if (value.is_integer()) {
    out->append(absl::StrCat(value.as_integer()));
  } else if (value.is_real()) {
    out->append(real_text(value.as_real()));
  } else if (out->chars.size() > kMaxNestedBytes) {
    out->is_cut = true;
  } else if (value.is_list()) {
    const List& items = value.as_list();
    out->append(value.is_tuple() ? "(" : "[");
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out->append(", ");
      put(items[i], true, out);
    }
    if (value.is_tuple() && items.size() == 1) out->append(",");
    out->append(value.is_tuple() ? ")" : "]");
  } else if (value.is_dict()) {
    out->append("{");
    bool first = true;
    for (const auto& [key, item] : value.as_dict()) {
      if (!first) out->append(", ");
      first = false;
      put_quoted(Text(key, false), out);
      out->append(": ");
      put(item, true, out);
    }
    out->append("}");
  } else if (value.is_callable()) {
    out->append("<function>");
  }
}

void put_json_string(const Text& text, Text* out) {
  constexpr std::string_view kHex = "0123456789abcdef";
  out->append("\"");
  for (size_t i = 0; i < text.chars.size(); ++i) {
    const char c = text.chars[i];
    switch (c) {
      case '"': out->append("\\\""); break;
      case '\\': out->append("\\\\"); break;
      case '\n': out->append("\\n"); break;
      case '\r': out->append("\\r"); break;
      case '\t': out->append("\\t"); break;
      case '\b': out->append("\\b"); break;
      case '\f': out->append("\\f"); break;
      default:
        if (static_cast<uint8_t>(c) < 0x20) {
          out->append("\\u00");
          out->append(kHex.substr(static_cast<uint8_t>(c) >> 4, 1));
          out->append(kHex.substr(c & 15, 1));
        } else {
          out->append(text.part(i, 1));
        }
    }
  }
  out->append("\"");
}

absl::Status put_json(const Value& value, int64_t indent, int depth, Text* out) {
  if (out->chars.size() > kMaxNestedBytes) return template_error("tojson: the value is too large");
  const auto new_line = [&](int level) {
    if (indent >= 0) {
      out->append("\n");
      out->append(std::string(static_cast<size_t>(indent * level), ' '));
    }
  };
  const std::string_view comma = indent >= 0 ? "," : ", ";
  if (value.is_text()) {
    put_json_string(value.as_text(), out);
  } else if (value.is_none()) {
    out->append("null");
  } else if (value.is_bool()) {
    out->append(value.as_integer() ? "true" : "false");
  } else if (value.is_number()) {
    put(value, false, out);
  } else if (value.is_list()) {
    const List& items = value.as_list();
    out->append("[");
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out->append(comma);
      new_line(depth + 1);
      ENGINE_RETURN_IF_ERROR(put_json(items[i], indent, depth + 1, out));
    }
    if (!items.empty()) new_line(depth);
    out->append("]");
  } else if (value.is_dict()) {
    out->append("{");
    bool first = true;
    for (const auto& [key, item] : value.as_dict()) {
      if (!first) out->append(comma);
      first = false;
      new_line(depth + 1);
      put_json_string(Text(key, true), out);
      out->append(": ");
      ENGINE_RETURN_IF_ERROR(put_json(item, indent, depth + 1, out));
    }
    if (!first) new_line(depth);
    out->append("}");
  } else {
    return template_error(absl::StrCat("tojson: ", value.type_name(), " has no JSON form"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status template_error(std::string_view message) {
  return error_at(Code::kChatTemplate, "tokenizer.chat_template", kNoOffset,
                  absl::StrCat("the chat template cannot be rendered: ", message));
}

bool Value::truth() const {
  if (is_undefined() || is_none()) return false;
  if (is_real()) return as_real() != 0;
  if (is_number()) return as_integer() != 0;
  if (is_text()) return !chars().empty();
  if (is_list()) return !as_list().empty();
  if (is_dict()) return !as_dict().empty();
  return true;
}

std::string_view Value::type_name() const {
  if (is_undefined()) return "an undefined value";
  if (is_none()) return "None";
  if (is_bool()) return "a bool";
  if (is_integer()) return "an int";
  if (is_real()) return "a float";
  if (is_text()) return "a str";
  if (is_list()) return is_tuple() ? "a tuple" : "a list";
  return is_dict() ? "a dict" : "a function";
}

const Value* Value::find(std::string_view key) const {
  for (const auto& [name, value] : as_dict()) {
    if (name == key) return &value;
  }
  return nullptr;
}

void Value::set(std::string_view key, Value value) const {
  for (auto& [name, old] : as_dict()) {
    if (name == key) {
      old = std::move(value);
      return;
    }
  }
  as_dict().emplace_back(key, std::move(value));
}

namespace {

// `left`: comparisons that may still be made. Values that share parts can be far larger than their memory.
bool equal_within(const Value& a, const Value& b, int64_t* left) {
  if (--*left < 0) return false;
  if (a.is_number() && b.is_number()) {
    if (a.is_real() || b.is_real()) return a.as_real() == b.as_real();
    return a.as_integer() == b.as_integer();
  }
  if (a.is_text() && b.is_text()) return a.chars() == b.chars();
  if (a.is_none() || b.is_none()) return a.is_none() && b.is_none();
  if (a.is_undefined() || b.is_undefined()) return a.is_undefined() && b.is_undefined();
  if (a.is_list() && b.is_list()) {
    const List &x = a.as_list(), &y = b.as_list();
    if (x.size() != y.size() || a.is_tuple() != b.is_tuple()) return false;
    for (size_t i = 0; i < x.size(); ++i) {
      if (!equal_within(x[i], y[i], left)) return false;
    }
    return true;
  }
  if (a.is_dict() && b.is_dict()) {
    if (a.as_dict().size() != b.as_dict().size()) return false;
    for (const auto& [key, value] : a.as_dict()) {
      const Value* other = b.find(key);
      if (other == nullptr || !equal_within(value, *other, left)) return false;
    }
    return true;
  }
  return false;
}

}  // namespace

bool equal(const Value& a, const Value& b) {
  int64_t left = 1'000'000;
  return equal_within(a, b, &left);
}

absl::StatusOr<int> compare(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    if (a.is_real() || b.is_real()) {
      return a.as_real() < b.as_real() ? -1 : a.as_real() > b.as_real() ? 1 : 0;
    }
    return a.as_integer() < b.as_integer() ? -1 : a.as_integer() > b.as_integer() ? 1 : 0;
  }
  if (a.is_text() && b.is_text()) {
    const int order = a.chars().compare(b.chars());
    return order < 0 ? -1 : order > 0 ? 1 : 0;
  }
  return template_error(absl::StrCat(a.type_name(), " and ", b.type_name(), " have no order"));
}

Text to_text(const Value& value) {
  Text out;
  put(value, false, &out);
  return out;
}

absl::StatusOr<Text> to_json(const Value& value, int64_t indent) {
  Text out;
  ENGINE_RETURN_IF_ERROR(put_json(value, std::min<int64_t>(indent, 16), 0, &out));
  return out;
}

}  // namespace engine::jinja
