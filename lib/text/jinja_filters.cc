// Filters and methods.
#include <utf8proc.h>

#include <algorithm>
#include <charconv>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "lib/text/jinja_library.h"
#include "lib/text/utf8_scan.h"

namespace engine::jinja {

namespace {

// White space of Python's str.strip.
bool is_python_space(uint32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

// Without characters of `set` (null: white space) at the chosen ends.
Text stripped(const Text& text, const Value& set, bool left, bool right) {
  const auto goes = [&](std::string_view one) {
    if (set.is_text()) return set.chars().find(one) != std::string::npos;
    const Utf8Step step = utf8_step(one);
    return step.valid && is_python_space(step.scalar);
  };
  const std::string_view chars = text.chars;
  size_t begin = chars.size();
  size_t end = 0;
  for (size_t at = 0; at < chars.size();) {
    const size_t n_bytes = utf8_step(chars.substr(at)).n_bytes;
    if (!goes(chars.substr(at, n_bytes))) {
      begin = std::min(begin, at);
      end = at + n_bytes;
    }
    at += n_bytes;
  }
  if (!left) begin = 0;
  if (!right) end = chars.size();
  return begin < end ? text.part(begin, end - begin) : Text();
}

// kTitle: str.title, where a letter begins a word that follows no letter; kTitleFilter: Jinja's filter, where
// blanks, hyphens and opening brackets part the words.
enum class Case { kLower, kUpper, kTitle, kTitleFilter, kCapitalize };

Text recased(const Text& text, Case mode) {
  Text out;
  bool after_letter = false;
  bool first = true;
  bool begins_word = true;
  std::string_view rest = text.chars;
  size_t at = 0;
  while (at < text.chars.size()) {
    const Utf8Step step = utf8_step(rest.substr(at));
    const bool upper = mode == Case::kUpper || (mode == Case::kTitle && !after_letter) ||
                       (mode == Case::kTitleFilter && begins_word) ||
                       (mode == Case::kCapitalize && first);
    const auto scalar = static_cast<utf8proc_int32_t>(step.scalar);
    const utf8proc_int32_t changed = upper ? utf8proc_toupper(scalar) : utf8proc_tolower(scalar);
    if (!step.valid) {
      out.append(text.part(at, step.n_bytes));
    } else {
      Text one;
      utf8_append(static_cast<uint32_t>(changed), &one.chars);
      one.owners.assign(one.chars.size(), text.owners[at]);
      out.append(one);
    }
    const auto category = step.valid ? utf8proc_category(scalar) : UTF8PROC_CATEGORY_CN;
    after_letter = category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
    first = false;
    begins_word = step.valid && (is_python_space(step.scalar) ||
                                 (step.scalar < 0x80 &&
                                  std::strchr("-({[<", static_cast<int>(step.scalar)) != nullptr &&
                                  step.scalar != 0));
    at += step.n_bytes;
  }
  return out;
}

StatusOrValue split_text(const Text& text, const Value& separator, const Value& max_value,
                         bool from_right, Budget* budget) {
  int64_t most = -1;
  if (max_value.is_integer()) most = max_value.as_integer();
  const std::string_view chars = text.chars;
  std::vector<std::pair<size_t, size_t>> parts;  // begin, end
  if (separator.is_undefined() || separator.is_none()) {
    if (most >= 0) return template_error("split by white space with a limit is not supported");
    size_t begin = std::string::npos;
    for (size_t at = 0; at < chars.size();) {
      const Utf8Step step = utf8_step(chars.substr(at));
      const bool space = step.valid && is_python_space(step.scalar);
      if (!space && begin == std::string::npos) begin = at;
      if (space && begin != std::string::npos) {
        parts.emplace_back(begin, at);
        begin = std::string::npos;
      }
      at += step.n_bytes;
    }
    if (begin != std::string::npos) parts.emplace_back(begin, chars.size());
  } else if (!separator.is_text() || separator.chars().empty()) {
    return template_error("split wants a separator");
  } else if (from_right) {
    const std::string& by = separator.chars();
    size_t end = chars.size();
    while (most != 0) {
      const size_t at = end < by.size() ? std::string::npos : chars.rfind(by, end - by.size());
      if (at == std::string::npos) break;
      parts.emplace_back(at + by.size(), end);
      end = at;
      if (most > 0) --most;
    }
    parts.emplace_back(0, end);
    std::reverse(parts.begin(), parts.end());
  } else {
    const std::string& by = separator.chars();
    size_t begin = 0;
    while (most != 0) {
      const size_t at = chars.find(by, begin);
      if (at == std::string::npos) break;
      parts.emplace_back(begin, at);
      begin = at + by.size();
      if (most > 0) --most;
    }
    parts.emplace_back(begin, chars.size());
  }
  ENGINE_RETURN_IF_ERROR(budget->make(parts.size() * 128));
  List out;
  for (const auto& [begin, end] : parts) out.push_back(Value::text(text.part(begin, end - begin)));
  return Value::list(std::move(out));
}

StatusOrValue replaced(const Text& text, const Value& from, const Value& to, const Value& count,
                       Budget* budget) {
  if (!from.is_text() || !to.is_text()) return template_error("replace wants two strings");
  if (from.chars().empty()) return template_error("replace of the empty string is not supported");
  int64_t most = count.is_integer() ? count.as_integer() : -1;
  Text out;
  size_t at = 0;
  while (most != 0) {
    const size_t found = text.chars.find(from.chars(), at);
    if (found == std::string::npos) break;
    ENGINE_RETURN_IF_ERROR(budget->make(found - at + to.chars().size()));
    out.append(text.part(at, found - at));
    out.append(to.as_text());
    at = found + from.chars().size();
    if (most > 0) --most;
  }
  out.append(text.part(at, std::string::npos));
  return Value::text(std::move(out));
}

StatusOrValue length_of(const Value& value) {
  if (value.is_undefined()) return Value::integer(0);
  if (value.is_list()) return Value::integer(static_cast<int64_t>(value.as_list().size()));
  if (value.is_dict()) return Value::integer(static_cast<int64_t>(value.as_dict().size()));
  if (!value.is_text()) return template_error(absl::StrCat(value.type_name(), " has no length"));
  int64_t n = 0;
  std::string_view rest = value.chars();
  for (; !rest.empty(); ++n) rest.remove_prefix(utf8_step(rest).n_bytes);
  return Value::integer(n);
}

Value pairs_of(const Value& dict, Budget*) {
  List out;
  for (const auto& [key, value] : dict.as_dict()) {
    out.push_back(Value::list({Value::text(key, true), value}, true));
  }
  return Value::list(std::move(out));
}

// The attribute of each element that a filter names, with dots for attributes of attributes.
StatusOrValue path_of(const Value& element, const Value& path, Budget* budget) {
  if (!path.is_text()) return item(element, path, budget);
  Value value = element;
  std::string_view rest = path.chars();
  while (true) {
    const size_t dot = rest.find('.');
    ENGINE_ASSIGN_OR_RETURN(value, attribute(value, rest.substr(0, dot)));
    if (dot == std::string_view::npos) return value;
    rest.remove_prefix(dot + 1);
  }
}

// select, reject, selectattr, rejectattr.
StatusOrValue selected(std::string_view name, const Value& value, const CallArguments& args,
                       Budget* budget) {
  const bool keeps = name.starts_with("select");
  const size_t test_at = name.ends_with("attr") ? 1 : 0;
  ENGINE_ASSIGN_OR_RETURN(const List items, iterate(value, budget));
  CallArguments test_args;
  for (size_t i = test_at + 1; i < args.positional.size(); ++i) {
    test_args.positional.push_back(args.positional[i]);
  }
  const Value test = args.get(test_at, "");
  List out;
  for (const Value& element : items) {
    ENGINE_RETURN_IF_ERROR(budget->step());
    Value subject = element;
    if (test_at == 1) {
      ENGINE_ASSIGN_OR_RETURN(subject, path_of(element, args.get(0, ""), budget));
    }
    bool good = subject.truth();
    if (test.is_text()) {
      ENGINE_ASSIGN_OR_RETURN(good, apply_test(test.chars(), subject, test_args));
    }
    if (good == keeps) out.push_back(element);
  }
  return Value::list(std::move(out));
}

StatusOrValue mapped(const Value& value, const CallArguments& args, Budget* budget) {
  ENGINE_ASSIGN_OR_RETURN(const List items, iterate(value, budget));
  const Value path = args.get(99, "attribute");
  const Value otherwise = args.get(99, "default");
  CallArguments rest;
  for (size_t i = 1; i < args.positional.size(); ++i) rest.positional.push_back(args.positional[i]);
  List out;
  for (const Value& element : items) {
    ENGINE_RETURN_IF_ERROR(budget->step());
    Value made;
    if (!path.is_undefined()) {
      ENGINE_ASSIGN_OR_RETURN(made, path_of(element, path, budget));
      if (made.is_undefined() && !otherwise.is_undefined()) made = otherwise;
    } else {
      const Value filter = args.get(0, "");
      if (!filter.is_text()) return template_error("map wants a filter or an attribute");
      ENGINE_ASSIGN_OR_RETURN(made, apply_filter(filter.chars(), element, rest, budget));
    }
    out.push_back(std::move(made));
  }
  return Value::list(std::move(out));
}

StatusOrValue joined(const Value& value, const Value& separator, const Value& path,
                     Budget* budget) {
  ENGINE_ASSIGN_OR_RETURN(const List items, iterate(value, budget));
  const Text between = separator.is_undefined() ? Text() : to_text(separator);
  Text out;
  for (size_t i = 0; i < items.size(); ++i) {
    Value element = items[i];
    if (!path.is_undefined()) {
      ENGINE_ASSIGN_OR_RETURN(element, path_of(element, path, budget));
    }
    const Text text = to_text(element);
    ENGINE_RETURN_IF_ERROR(budget->make(text.chars.size() + between.chars.size()));
    if (i > 0) out.append(between);
    out.append(text);
  }
  return Value::text(std::move(out));
}

StatusOrValue sorted(const Value& value, const CallArguments& args, Budget* budget) {
  ENGINE_ASSIGN_OR_RETURN(List items, iterate(value, budget));
  const Value path = args.get(99, "attribute");
  std::vector<std::pair<Value, size_t>> keys;
  for (size_t i = 0; i < items.size(); ++i) {
    Value key = items[i];
    if (!path.is_undefined()) {
      ENGINE_ASSIGN_OR_RETURN(key, path_of(key, path, budget));
    }
    if (key.is_text()) key = Value::text(recased(key.as_text(), Case::kLower));
    if (!keys.empty()) ENGINE_RETURN_IF_ERROR(compare(keys[0].first, key).status());
    keys.emplace_back(std::move(key), i);
  }
  std::stable_sort(keys.begin(), keys.end(), [](const auto& a, const auto& b) {
    return compare(a.first, b.first).value_or(0) < 0;
  });
  if (args.get(0, "reverse").truth()) std::reverse(keys.begin(), keys.end());
  List out;
  for (const auto& [key, i] : keys) out.push_back(items[i]);
  return Value::list(std::move(out));
}

StatusOrValue indented(const Text& text, const CallArguments& args, Budget* budget) {
  const Value width = args.get(0, "width");
  const std::string pad(
      static_cast<size_t>(width.is_integer() ? std::clamp<int64_t>(width.as_integer(), 0, 100) : 4),
      ' ');
  const bool first = args.get(1, "first").truth();
  const bool blank = args.get(2, "blank").truth();
  Text out;
  size_t at = 0;
  for (bool is_first = true; at <= text.chars.size(); is_first = false) {
    const size_t end = std::min(text.chars.find('\n', at), text.chars.size());
    ENGINE_RETURN_IF_ERROR(budget->make(end - at + pad.size()));
    if (is_first ? first : blank || end > at) out.append(pad);
    out.append(text.part(at, end - at));
    if (end == text.chars.size()) break;
    out.append(text.part(end, 1));
    at = end + 1;
  }
  return Value::text(std::move(out));
}

bool is_one_of(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

StatusOrValue text_filter(std::string_view name, const Value& value, const CallArguments& args,
                          Budget* budget) {
  Text text = to_text(value);
  ENGINE_RETURN_IF_ERROR(budget->make(text.chars.size()));
  if (name == "string" || name == "safe") return Value::text(std::move(text));
  if (name == "trim") return Value::text(stripped(text, args.get(0, "chars"), true, true));
  if (name == "lower") return Value::text(recased(text, Case::kLower));
  if (name == "upper") return Value::text(recased(text, Case::kUpper));
  if (name == "title") return Value::text(recased(text, Case::kTitleFilter));
  if (name == "capitalize") return Value::text(recased(text, Case::kCapitalize));
  if (name == "indent") return indented(text, args, budget);
  return replaced(text, args.get(0, "old"), args.get(1, "new"), args.get(2, "count"), budget);
}

StatusOrValue number_filter(std::string_view name, const Value& value) {
  if (name == "abs") {
    if (!value.is_number()) return template_error("abs wants a number");
    if (value.is_real())
      return Value::real(value.as_real() < 0 ? -value.as_real() : value.as_real());
    if (value.as_integer() == INT64_MIN) return template_error("an integer overflows");
    return Value::integer(std::abs(value.as_integer()));
  }
  double number = 0;
  bool good = value.is_number();
  if (good) {
    number = value.as_real();
    if (name == "int" && !value.is_real()) return Value::integer(value.as_integer());
  } else if (value.is_text()) {
    const Text text = stripped(value.as_text(), Value(), true, true);
    const auto end = text.chars.data() + text.chars.size();
    good = !text.chars.empty() && std::from_chars(text.chars.data(), end, number).ptr == end;
  }
  if (!good) number = 0;
  if (name == "float") return Value::real(number);
  constexpr double kLimit = 9e15;
  if (!(number > -kLimit && number < kLimit)) return template_error("a number is no integer");
  return Value::integer(static_cast<int64_t>(number));
}

}  // namespace

StatusOrValue apply_filter(std::string_view name, const Value& value, const CallArguments& args,
                           Budget* budget) {
  if (is_one_of(name, {"string", "safe", "trim", "lower", "upper", "title", "capitalize", "indent",
                       "replace"})) {
    return text_filter(name, value, args, budget);
  }
  if (is_one_of(name, {"int", "float", "abs"})) return number_filter(name, value);
  if (is_one_of(name, {"select", "reject", "selectattr", "rejectattr"}))
    return selected(name, value, args, budget);
  if (name == "length" || name == "count") return length_of(value);
  if (name == "tojson") {
    const Value indent = args.get(0, "indent");
    const int64_t width = indent.is_integer() ? std::max<int64_t>(indent.as_integer(), 0) : -1;
    ENGINE_ASSIGN_OR_RETURN(Text text, to_json(value, width));
    ENGINE_RETURN_IF_ERROR(budget->make(text.chars.size()));
    return Value::text(std::move(text));
  }
  if (name == "default" || name == "d") {
    const bool missing = value.is_undefined() || (args.get(1, "boolean").truth() && !value.truth());
    if (!missing) return value;
    const Value given = args.get(0, "default_value");
    return given.is_undefined() ? Value::text("") : given;
  }
  if (name == "items") {
    if (value.is_undefined()) return Value::list({});
    if (!value.is_dict()) return template_error("items wants a dict");
    return pairs_of(value, budget);
  }
  if (name == "dictsort") {
    if (!value.is_dict()) return template_error("dictsort wants a dict");
    Dict entries = value.as_dict();
    const auto key = [](const auto& entry) {
      return recased(Text(entry.first, false), Case::kLower).chars;
    };
    std::stable_sort(entries.begin(), entries.end(),
                     [&](const auto& a, const auto& b) { return key(a) < key(b); });
    return pairs_of(Value::dict(std::move(entries)), budget);
  }
  if (name == "join") return joined(value, args.get(0, "d"), args.get(1, "attribute"), budget);
  if (name == "map") return mapped(value, args, budget);
  if (name == "sort") return sorted(value, args, budget);
  if (is_one_of(name, {"list", "first", "last", "reverse", "unique"})) {
    if (name == "reverse" && value.is_text())
      return slice(value, Value(), Value(), Value::integer(-1), budget);
    ENGINE_ASSIGN_OR_RETURN(List items, iterate(value, budget));
    if (name == "list") return Value::list(std::move(items));
    if (name == "first") return items.empty() ? Value::undefined("first") : items.front();
    if (name == "last") return items.empty() ? Value::undefined("last") : items.back();
    if (name == "reverse") {
      std::reverse(items.begin(), items.end());
      return Value::list(std::move(items));
    }
    if (name == "unique") {
      List out;
      for (const Value& element : items) {
        ENGINE_RETURN_IF_ERROR(budget->step(out.size()));
        const auto same = [&](const Value& v) { return equal(v, element); };
        if (std::none_of(out.begin(), out.end(), same)) out.push_back(element);
      }
      return Value::list(std::move(out));
    }
  }
  return template_error(absl::StrCat("filter '", name, "' is not supported"));
}

bool has_method(const Value& object, std::string_view name) {
  if (object.is_text()) {
    return is_one_of(name, {"strip", "lstrip", "rstrip", "split", "rsplit", "startswith",
                            "endswith", "lower", "upper", "title", "capitalize", "replace", "join",
                            "find", "count", "splitlines", "isdigit"});
  }
  return object.is_dict() && is_one_of(name, {"items", "keys", "values", "get"});
}

StatusOrValue call_method(const Value& object, std::string_view name, const CallArguments& args,
                          Budget* budget) {
  const Value first = args.get(0, name == "split" || name == "rsplit" ? "sep" : "");
  if (object.is_dict()) {
    if (name == "get") {
      const Value* found = first.is_text() ? object.find(first.chars()) : nullptr;
      if (found != nullptr) return *found;
      const Value otherwise = args.get(1, "default");
      return args.positional.size() > 1 ? otherwise : Value::none();
    }
    if (name == "items") return pairs_of(object, budget);
    List out;
    for (const auto& [key, value] : object.as_dict()) {
      out.push_back(name == "keys" ? Value::text(key, true) : value);
    }
    return Value::list(std::move(out));
  }
  const Text& text = object.as_text();
  ENGINE_RETURN_IF_ERROR(budget->make(text.chars.size()));
  if (name == "strip") return Value::text(stripped(text, first, true, true));
  if (name == "lstrip") return Value::text(stripped(text, first, true, false));
  if (name == "rstrip") return Value::text(stripped(text, first, false, true));
  if (name == "split" || name == "rsplit") {
    return split_text(text, first, args.get(1, "maxsplit"), name == "rsplit", budget);
  }
  if (name == "lower") return Value::text(recased(text, Case::kLower));
  if (name == "upper") return Value::text(recased(text, Case::kUpper));
  if (name == "title") return Value::text(recased(text, Case::kTitle));
  if (name == "capitalize") return Value::text(recased(text, Case::kCapitalize));
  if (name == "replace")
    return replaced(text, first, args.get(1, "new"), args.get(2, "count"), budget);
  if (name == "join") return joined(first, object, Value(), budget);
  if (name == "splitlines") {
    ENGINE_ASSIGN_OR_RETURN(Value lines,
                            split_text(text, Value::text("\n"), Value(), false, budget));
    if (!lines.as_list().empty() && lines.as_list().back().chars().empty())
      lines.as_list().pop_back();
    return lines;
  }
  if (name == "isdigit") {
    return Value::boolean(!text.chars.empty() &&
                          std::all_of(text.chars.begin(), text.chars.end(),
                                      [](char c) { return c >= '0' && c <= '9'; }));
  }
  if (name == "startswith" || name == "endswith") {
    const auto fits = [&](const Value& part) {
      if (!part.is_text()) return false;
      return name == "startswith" ? text.chars.starts_with(part.chars())
                                  : text.chars.ends_with(part.chars());
    };
    if (first.is_list())
      return Value::boolean(std::any_of(first.as_list().begin(), first.as_list().end(), fits));
    if (!first.is_text())
      return template_error(absl::StrCat(name, " wants a str, not ", first.type_name()));
    return Value::boolean(fits(first));
  }
  if (!first.is_text())
    return template_error(absl::StrCat(name, " wants a str, not ", first.type_name()));
  if (name == "find") {
    const size_t found = text.chars.find(first.chars());
    if (found == std::string::npos) return Value::integer(-1);
    return length_of(Value::text(text.part(0, found)));
  }
  if (first.chars().empty()) return template_error("count of the empty string is not supported");
  int64_t n = 0;  // count
  for (size_t at = text.chars.find(first.chars()); at != std::string::npos;
       at = text.chars.find(first.chars(), at + first.chars().size())) {
    ++n;
  }
  return Value::integer(n);
}

}  // namespace engine::jinja
