// Numbers of chat templates: arithmetic and ranges.
#include <cmath>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/text/jinja_library.h"

namespace engine::jinja {

StatusOrValue arithmetic(std::string_view op, const Value& left, const Value& right) {
  const bool divides = op == "/" || op == "//" || op == "%";
  if (divides && right.as_real() == 0) return template_error("division by zero");
  if (left.is_real() || right.is_real() || op == "/") {
    const double a = left.as_real(), b = right.as_real();
    if (op == "+") return Value::real(a + b);
    if (op == "-") return Value::real(a - b);
    if (op == "*") return Value::real(a * b);
    if (op == "/") return Value::real(a / b);
    if (op == "//") return Value::real(std::floor(a / b));
    if (op == "**") return Value::real(std::pow(a, b));
    return Value::real(a - std::floor(a / b) * b);
  }
  const int64_t a = left.as_integer(), b = right.as_integer();
  int64_t out = 0;
  bool overflows = false;
  if (op == "+") {
    overflows = __builtin_add_overflow(a, b, &out);
  } else if (op == "-") {
    overflows = __builtin_sub_overflow(a, b, &out);
  } else if (op == "*") {
    overflows = __builtin_mul_overflow(a, b, &out);
  } else if (op == "**") {
    if (b < 0) return Value::real(std::pow(left.as_real(), right.as_real()));
    out = 1;
    for (int64_t i = 0; i < b && !overflows && i < 64; ++i)
      overflows = __builtin_mul_overflow(out, a, &out);
    overflows |= b >= 64;
  } else if (a == INT64_MIN && b == -1) {
    overflows = true;
  } else {
    // Python rounds down.
    const int64_t rest = a % b;
    const bool down = rest != 0 && (rest < 0) != (b < 0);
    out = op == "//" ? a / b - down : rest + (down ? b : 0);
  }
  if (overflows) return template_error("an integer overflows");
  return Value::integer(out);
}

StatusOrValue range(const CallArguments& args, Budget* budget) {
  for (const Value& value : args.positional) {
    if (!value.is_integer()) return template_error("range wants integers");
  }
  const size_t n_args = args.positional.size();
  if (n_args < 1 || n_args > 3) return template_error("range wants one to three integers");
  const int64_t begin = n_args > 1 ? args.positional[0].as_integer() : 0;
  const int64_t end = args.positional[n_args > 1 ? 1 : 0].as_integer();
  const int64_t step = n_args > 2 ? args.positional[2].as_integer() : 1;
  constexpr int64_t kLargest = 1'000'000'000;
  if (step == 0 || std::abs(begin) > kLargest || std::abs(end) > kLargest ||
      std::abs(step) > kLargest) {
    return template_error("range's bounds are out of range");
  }
  List items;
  for (int64_t i = begin; step > 0 ? i < end : i > end; i += step) {
    ENGINE_RETURN_IF_ERROR(budget->make(sizeof(Value)));
    ENGINE_RETURN_IF_ERROR(budget->step());
    items.push_back(Value::integer(i));
  }
  return Value::list(std::move(items));
}

}  // namespace engine::jinja
