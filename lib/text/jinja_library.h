// Filters, tests and methods of template values, and the limits that bound them.
#ifndef ENGINE_LIB_TEXT_JINJA_LIBRARY_H_
#define ENGINE_LIB_TEXT_JINJA_LIBRARY_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lib/text/jinja_value.h"

namespace engine::jinja {

// What one rendering may use; a template that wants more is refused.
class Budget {
 public:
  explicit Budget(uint64_t input_bytes)
      : steps_(kSteps + input_bytes), bytes_(kBytes + kBytesPerInput * input_bytes) {}
  absl::Status step(uint64_t n = 1) {
    return take(n, &steps_, "more steps than a chat template needs");
  }
  // Bytes of a value that is made.
  absl::Status make(uint64_t n_bytes) {
    return take(n_bytes, &bytes_, "more memory than a chat template needs");
  }

 private:
  static constexpr uint64_t kSteps = 2'000'000;
  static constexpr uint64_t kBytes = uint64_t{64} << 20;
  static constexpr uint64_t kBytesPerInput = 64;

  static absl::Status take(uint64_t n, uint64_t* left, std::string_view what) {
    if (n > *left) return template_error(what);
    *left -= n;
    return absl::OkStatus();
  }

  uint64_t steps_;
  uint64_t bytes_;
};

struct CallArguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;

  // By place or name; an undefined value where it is not given.
  Value get(size_t place, std::string_view name) const;
};

using StatusOrValue = absl::StatusOr<Value>;

StatusOrValue apply_filter(std::string_view name, const Value& value, const CallArguments& args,
                           Budget* budget);
absl::StatusOr<bool> apply_test(std::string_view name, const Value& value,
                                const CallArguments& args);
bool has_method(const Value& object, std::string_view name);
StatusOrValue call_method(const Value& object, std::string_view name, const CallArguments& args,
                          Budget* budget);
// Attribute or item; undefined where there is none, an error on an undefined or None object.
StatusOrValue attribute(const Value& object, std::string_view name);
StatusOrValue item(const Value& object, const Value& key, Budget* budget);
// Python's slices; undefined bounds are not given.
StatusOrValue slice(const Value& object, const Value& begin, const Value& end, const Value& step,
                    Budget* budget);
// What a loop goes through: items, keys, or characters.
absl::StatusOr<List> iterate(const Value& value, Budget* budget);
absl::StatusOr<bool> contains(const Value& container, const Value& element);
// + - * / // % ** of two numbers, as Python counts.
StatusOrValue arithmetic(std::string_view op, const Value& left, const Value& right);
StatusOrValue range(const CallArguments& args, Budget* budget);
StatusOrValue format_time(int64_t unix_time, std::string_view format);

}  // namespace engine::jinja

#endif  // ENGINE_LIB_TEXT_JINJA_LIBRARY_H_
