// Values of a chat template: Python's, as far as templates see them. Every character of a string knows
// whether the caller wrote it.
#ifndef ENGINE_LIB_TEXT_JINJA_VALUE_H_
#define ENGINE_LIB_TEXT_JINJA_VALUE_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "lib/base/status.h"

namespace engine::jinja {

// A string, and for each of its bytes whether it is the caller's (1) or the template's (0).
struct Text {
  std::string chars;
  std::string owners;
  bool is_cut = false;  // the text of a value that prints as too much; it may not be put out

  Text() = default;
  Text(std::string_view text, bool from_caller)
      : chars(text), owners(text.size(), from_caller ? '\1' : '\0') {}
  void append(const Text& other) {
    chars += other.chars;
    owners += other.owners;
    is_cut = is_cut || other.is_cut;
  }
  void append(std::string_view text) {
    chars += text;
    owners.append(text.size(), '\0');
  }
  Text part(size_t begin, size_t n_bytes) const {
    Text out;
    out.chars = chars.substr(begin, n_bytes);
    out.owners = owners.substr(begin, n_bytes);
    return out;
  }
};

class Value;
using List = std::vector<Value>;
using Dict = std::vector<std::pair<std::string, Value>>;  // in order of insertion

struct MacroNode;  // of the syntax tree
enum class Builtin { kNamespace, kRange, kRaise, kStrftimeNow, kDict };
// A method or function that a template may call.
struct Callable {
  Builtin builtin = Builtin::kNamespace;
  const MacroNode* macro = nullptr;
};

struct None {};
struct Undefined {
  std::string name;  // for messages
};

class Value {
 public:
  Value() : data_(Undefined{}) {}
  static Value undefined(std::string name) { return Value(Undefined{std::move(name)}); }
  static Value none() { return Value(None{}); }
  static Value boolean(bool b) { return Value(b); }
  static Value integer(int64_t n) { return Value(n); }
  static Value real(double x) { return Value(x); }
  static Value text(Text t) { return Value(std::make_shared<const Text>(std::move(t))); }
  static Value text(std::string_view chars, bool from_caller = false) {
    return text(Text(chars, from_caller));
  }
  static Value list(List items, bool tuple = false) {
    int32_t depth = 0;
    for (const Value& item : items) depth = std::max(depth, item.depth_);
    Value made(std::make_shared<List>(std::move(items)));
    made.is_tuple_ = tuple;
    made.depth_ = depth + 1;
    return made;
  }
  static Value dict(Dict items) {
    int32_t depth = 0;
    for (const auto& [key, item] : items) depth = std::max(depth, item.depth_);
    Value made(std::make_shared<Dict>(std::move(items)));
    made.depth_ = depth + 1;
    return made;
  }
  // A dict that a template may change; nothing else can hold it, so that nothing can hold itself.
  static Value namespace_object() {
    Value made = dict({});
    made.is_namespace_ = true;
    return made;
  }
  static Value callable(Callable c) { return Value(c); }

  bool is_undefined() const { return std::holds_alternative<Undefined>(data_); }
  bool is_none() const { return std::holds_alternative<None>(data_); }
  bool is_bool() const { return std::holds_alternative<bool>(data_); }
  bool is_integer() const { return std::holds_alternative<int64_t>(data_); }
  bool is_real() const { return std::holds_alternative<double>(data_); }
  bool is_number() const { return is_integer() || is_real() || is_bool(); }
  bool is_text() const { return std::holds_alternative<std::shared_ptr<const Text>>(data_); }
  bool is_list() const { return std::holds_alternative<std::shared_ptr<List>>(data_); }
  bool is_tuple() const { return is_list() && is_tuple_; }
  bool is_dict() const { return std::holds_alternative<std::shared_ptr<Dict>>(data_); }
  bool is_callable() const { return std::holds_alternative<Callable>(data_); }

  bool is_namespace() const { return is_namespace_; }
  // How deeply lists and dicts lie in each other.
  int32_t depth() const { return depth_; }

  const Text& as_text() const { return *std::get<std::shared_ptr<const Text>>(data_); }
  const std::string& chars() const { return as_text().chars; }
  List& as_list() const { return *std::get<std::shared_ptr<List>>(data_); }
  Dict& as_dict() const { return *std::get<std::shared_ptr<Dict>>(data_); }
  const Callable& as_callable() const { return std::get<Callable>(data_); }
  const std::string& undefined_name() const { return std::get<Undefined>(data_).name; }
  // Of an integer or a bool.
  int64_t as_integer() const {
    return is_bool() ? std::get<bool>(data_) : std::get<int64_t>(data_);
  }
  double as_real() const {
    return is_real() ? std::get<double>(data_) : static_cast<double>(as_integer());
  }

  bool truth() const;
  std::string_view type_name() const;  // Python's
  // nullptr when a dict has no such key.
  const Value* find(std::string_view key) const;
  void set(std::string_view key,
           Value value) const;  // of a namespace, or of a dict that is being made

 private:
  template <class T>
  explicit Value(T data) : data_(std::move(data)) {}

  std::variant<Undefined, None, bool, int64_t, double, std::shared_ptr<const Text>,
               std::shared_ptr<List>, std::shared_ptr<Dict>, Callable>
      data_;
  bool is_tuple_ = false;
  bool is_namespace_ = false;
  int32_t depth_ = 0;
};

// Python's ==; -1, 0, 1 of values that Python orders, else an error.
bool equal(const Value& a, const Value& b);
absl::StatusOr<int> compare(const Value& a, const Value& b);
// Python's str(): what a template prints. Lists and dicts within, deeper than any template's, are cut.
Text to_text(const Value& value);
// Python's json.dumps(value, ensure_ascii=False, indent=...); indent < 0: on one line.
absl::StatusOr<Text> to_json(const Value& value, int64_t indent);

absl::Status template_error(std::string_view message);

}  // namespace engine::jinja

#endif  // ENGINE_LIB_TEXT_JINJA_VALUE_H_
