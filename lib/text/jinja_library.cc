// Access to values: attributes, items, slices, loops; time; tests.
#include "lib/text/jinja_library.h"

#include <algorithm>
#include <array>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/text/utf8_scan.h"

namespace engine::jinja {

namespace {

// Where each character of a text begins, and its end.
std::vector<size_t> char_starts(std::string_view text) {
  std::vector<size_t> starts;
  for (size_t at = 0; at < text.size(); at += utf8_step(text.substr(at)).n_bytes) {
    starts.push_back(at);
  }
  starts.push_back(text.size());
  return starts;
}

absl::StatusOr<int64_t> bound(const Value& value, int64_t otherwise) {
  if (value.is_undefined() || value.is_none()) return otherwise;
  if (!value.is_integer() && !value.is_bool()) return template_error("a slice needs integers");
  return value.as_integer();
}

// The indices of a slice of n elements, as Python counts them.
absl::StatusOr<std::vector<int64_t>> slice_indices(int64_t n, const Value& begin, const Value& end,
                                                   const Value& step_value) {
  ENGINE_ASSIGN_OR_RETURN(const int64_t step, bound(step_value, 1));
  if (step == 0) return template_error("a slice's step is 0");
  const auto clip = [&](int64_t i) {
    if (i < 0) i = std::max<int64_t>(i, -n) + n;
    return std::clamp<int64_t>(i, step < 0 ? -1 : 0, step < 0 ? n - 1 : n);
  };
  ENGINE_ASSIGN_OR_RETURN(int64_t at, bound(begin, step < 0 ? n - 1 : 0));
  at = begin.is_undefined() ? at : clip(at);
  int64_t last = step < 0 ? -1 : n;
  if (!end.is_undefined() && !end.is_none()) {
    ENGINE_ASSIGN_OR_RETURN(last, bound(end, last));
    // -1 as a given bound counts from the end.
    last = last < 0 ? (last < -n ? -1 : last + n) : last;
    last = std::clamp<int64_t>(last, step < 0 ? -1 : 0, step < 0 ? n - 1 : n);
  }
  std::vector<int64_t> indices;
  const int64_t stride = std::clamp<int64_t>(step, -n - 1, n + 1);
  for (; stride > 0 ? at < last : at > last; at += stride) indices.push_back(at);
  return indices;
}

}  // namespace

Value CallArguments::get(size_t place, std::string_view name) const {
  if (place < positional.size()) return positional[place];
  for (const auto& [key, value] : named) {
    if (key == name) return value;
  }
  return Value();
}

StatusOrValue attribute(const Value& object, std::string_view name) {
  if (object.is_undefined()) {
    return template_error(absl::StrCat("'", object.undefined_name(), "' is undefined"));
  }
  if (object.is_dict()) {
    const Value* found = object.find(name);
    if (found != nullptr) return *found;
  }
  return Value::undefined(std::string(name));
}

StatusOrValue item(const Value& object, const Value& key, Budget* budget) {
  if (key.is_text()) return attribute(object, key.chars());
  if (object.is_undefined()) {
    return template_error(absl::StrCat("'", object.undefined_name(), "' is undefined"));
  }
  const bool indexed = object.is_list() || object.is_text();
  if (!indexed || !(key.is_integer() || key.is_bool())) return Value::undefined("item");
  int64_t at = key.as_integer();
  if (object.is_list()) {
    const List& list = object.as_list();
    const int64_t n = static_cast<int64_t>(list.size());
    if (at < 0) at += n;
    return at >= 0 && at < n ? list[static_cast<size_t>(at)] : Value::undefined("item");
  }
  ENGINE_RETURN_IF_ERROR(budget->step(object.chars().size() / 64));
  const std::vector<size_t> starts = char_starts(object.chars());
  const int64_t n = static_cast<int64_t>(starts.size()) - 1;
  if (at < 0) at += n;
  if (at < 0 || at >= n) return Value::undefined("item");
  const size_t begin = starts[static_cast<size_t>(at)];
  return Value::text(object.as_text().part(begin, starts[static_cast<size_t>(at) + 1] - begin));
}

StatusOrValue slice(const Value& object, const Value& begin, const Value& end, const Value& step,
                    Budget* budget) {
  if (object.is_list()) {
    const List& list = object.as_list();
    ENGINE_ASSIGN_OR_RETURN(const auto indices,
                            slice_indices(static_cast<int64_t>(list.size()), begin, end, step));
    ENGINE_RETURN_IF_ERROR(budget->make(indices.size() * sizeof(Value)));
    List out;
    for (int64_t i : indices) out.push_back(list[static_cast<size_t>(i)]);
    return Value::list(std::move(out), object.is_tuple());
  }
  if (object.is_text()) {
    const Text& text = object.as_text();
    ENGINE_RETURN_IF_ERROR(budget->make(text.chars.size() * 16));
    const std::vector<size_t> starts = char_starts(text.chars);
    ENGINE_ASSIGN_OR_RETURN(
        const auto indices,
        slice_indices(static_cast<int64_t>(starts.size()) - 1, begin, end, step));
    Text out;
    for (int64_t i : indices) {
      const size_t from = starts[static_cast<size_t>(i)];
      out.append(text.part(from, starts[static_cast<size_t>(i) + 1] - from));
    }
    return Value::text(std::move(out));
  }
  return template_error(absl::StrCat(object.type_name(), " cannot be sliced"));
}

absl::StatusOr<List> iterate(const Value& value, Budget* budget) {
  List out;
  if (value.is_undefined()) return out;
  if (value.is_list()) {
    ENGINE_RETURN_IF_ERROR(budget->make(value.as_list().size() * sizeof(Value)));
    return value.as_list();
  }
  if (value.is_dict()) {
    ENGINE_RETURN_IF_ERROR(budget->make(value.as_dict().size() * sizeof(Value)));
    for (const auto& [key, entry] : value.as_dict()) out.push_back(Value::text(key, true));
    return out;
  }
  if (value.is_text()) {
    const Text& text = value.as_text();
    ENGINE_RETURN_IF_ERROR(budget->make(text.chars.size() * 128));
    const std::vector<size_t> starts = char_starts(text.chars);
    for (size_t i = 0; i + 1 < starts.size(); ++i) {
      out.push_back(Value::text(text.part(starts[i], starts[i + 1] - starts[i])));
    }
    return out;
  }
  return template_error(absl::StrCat(value.type_name(), " cannot be iterated"));
}

absl::StatusOr<bool> contains(const Value& container, const Value& element) {
  if (container.is_undefined()) return false;
  if (container.is_text()) {
    if (!element.is_text()) {
      return template_error(absl::StrCat("'in' wants a str, not ", element.type_name()));
    }
    return container.chars().find(element.chars()) != std::string::npos;
  }
  if (container.is_dict()) return element.is_text() && container.find(element.chars()) != nullptr;
  if (container.is_list()) {
    const List& list = container.as_list();
    return std::any_of(list.begin(), list.end(), [&](const Value& v) { return equal(v, element); });
  }
  return template_error(absl::StrCat("'in' cannot look into ", container.type_name()));
}

StatusOrValue format_time(int64_t unix_time, std::string_view format) {
  using std::chrono::days, std::chrono::seconds;
  constexpr int64_t kLatest = int64_t{1} << 36;  // a year of four digits
  if (unix_time < 0 || unix_time > kLatest) return template_error("the time is out of range");
  const std::chrono::sys_seconds time{seconds(unix_time)};
  const auto day = std::chrono::floor<days>(time);
  const std::chrono::year_month_day date(day);
  const std::chrono::hh_mm_ss clock(time - day);
  constexpr std::array<std::string_view, 12> kMonths = {
      "January", "February", "March",     "April",   "May",      "June",
      "July",    "August",   "September", "October", "November", "December"};
  constexpr std::array<std::string_view, 7> kDays = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                                     "Thursday", "Friday", "Saturday"};
  const std::string_view month = kMonths[static_cast<unsigned>(date.month()) - 1];
  const std::string_view week_day = kDays[std::chrono::weekday(day).c_encoding()];
  std::string out;
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%' || i + 1 == format.size()) {
      out.push_back(format[i]);
      continue;
    }
    switch (format[++i]) {
      case 'Y': absl::StrAppendFormat(&out, "%04d", static_cast<int>(date.year())); break;
      case 'y': absl::StrAppendFormat(&out, "%02d", static_cast<int>(date.year()) % 100); break;
      case 'm': absl::StrAppendFormat(&out, "%02d", static_cast<unsigned>(date.month())); break;
      case 'd': absl::StrAppendFormat(&out, "%02d", static_cast<unsigned>(date.day())); break;
      case 'H': absl::StrAppendFormat(&out, "%02d", clock.hours().count()); break;
      case 'M': absl::StrAppendFormat(&out, "%02d", clock.minutes().count()); break;
      case 'S': absl::StrAppendFormat(&out, "%02d", clock.seconds().count()); break;
      case 'B': absl::StrAppend(&out, month); break;
      case 'b': absl::StrAppend(&out, month.substr(0, 3)); break;
      case 'A': absl::StrAppend(&out, week_day); break;
      case 'a': absl::StrAppend(&out, week_day.substr(0, 3)); break;
      case '%': out.push_back('%'); break;
      default:
        return template_error(
            absl::StrCat("strftime_now: '%", format.substr(i, 1), "' is not supported"));
    }
  }
  return Value::text(out);
}

absl::StatusOr<bool> apply_test(std::string_view name, const Value& value,
                                const CallArguments& args) {
  const Value other = args.get(0, "other");
  if (name == "defined") return !value.is_undefined();
  if (name == "undefined") return value.is_undefined();
  if (name == "none") return value.is_none();
  if (name == "string") return value.is_text();
  if (name == "mapping") return value.is_dict();
  if (name == "sequence" || name == "iterable") {
    return value.is_text() || value.is_list() || value.is_dict() || value.is_undefined();
  }
  if (name == "boolean") return value.is_bool();
  if (name == "true") return value.is_bool() && value.truth();
  if (name == "false") return value.is_bool() && !value.truth();
  if (name == "integer") return value.is_integer();
  if (name == "float") return value.is_real();
  if (name == "number") return value.is_number();
  if (name == "callable") return value.is_callable();
  if (name == "equalto" || name == "eq" || name == "==") return equal(value, other);
  if (name == "ne" || name == "!=") return !equal(value, other);
  if (name == "in") return contains(other, value);
  if (name == "odd" || name == "even") {
    if (!value.is_number() || value.is_real())
      return template_error(absl::StrCat("test '", name, "' wants an int"));
    return (value.as_integer() % 2 != 0) == (name == "odd");
  }
  if (name == "gt" || name == "greaterthan" || name == "lt" || name == "lessthan") {
    ENGINE_ASSIGN_OR_RETURN(const int order, compare(value, other));
    return name[0] == 'g' ? order > 0 : order < 0;
  }
  return template_error(absl::StrCat("test '", name, "' is not supported"));
}

}  // namespace engine::jinja
