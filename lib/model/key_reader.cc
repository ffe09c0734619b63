// Values of any width are read; what does not fit is refused by name.
#include "lib/model/key_reader.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"

namespace engine {

std::string KeyReader::full(std::string_view key) const { return absl::StrCat(prefix_, ".", key); }

absl::Status KeyReader::fail(std::string_view key, std::string_view message) const {
  const std::string name = full(key);
  const GgufValue* value = file_.find(name);
  return error_at(Code::kModelKey, name, value ? value->offset : kNoOffset,
                  absl::StrCat(name, ": ", message));
}

absl::StatusOr<int64_t> KeyReader::integer(std::string_view key, int64_t low, int64_t high,
                                           int64_t fallback) const {
  auto value = file_.get_int(full(key));
  if (!value.ok()) return as_key_error(key, value.status());
  if (!value->has_value()) {
    if (fallback < 0) return fail(key, "required key is missing");
    return fallback;
  }
  if (**value < low || **value > high) {
    return fail(key, absl::StrCat("value ", **value, " is outside ", low, " .. ", high));
  }
  return **value;
}

absl::StatusOr<std::optional<double>> KeyReader::real(std::string_view key) const {
  auto value = file_.get_float(full(key));
  if (!value.ok()) return as_key_error(key, value.status());
  if (value->has_value() && !std::isfinite(**value)) return fail(key, "value is not finite");
  return *value;
}

absl::StatusOr<double> KeyReader::positive(std::string_view key, double fallback) const {
  ENGINE_ASSIGN_OR_RETURN(const std::optional<double> value, real(key));
  if (value && !(*value > 0)) return fail(key, "value is not positive");
  return value.value_or(fallback);
}

absl::StatusOr<double> KeyReader::not_negative(std::string_view key, double fallback) const {
  ENGINE_ASSIGN_OR_RETURN(const std::optional<double> value, real(key));
  if (value && *value < 0) return fail(key, "value is negative");
  return value.value_or(fallback);
}

absl::StatusOr<std::vector<int64_t>> KeyReader::per_layer(std::string_view key, int64_t n_layer,
                                                          int64_t low, int64_t high,
                                                          int64_t fallback) const {
  const GgufValue* value = file_.find(full(key));
  if (value == nullptr || value->type != GgufType::kArray) {
    ENGINE_ASSIGN_OR_RETURN(const int64_t all, integer(key, low, high, fallback));
    return std::vector<int64_t>(static_cast<size_t>(n_layer), all);
  }
  auto list = file_.get_ints(full(key));
  if (!list.ok()) return as_key_error(key, list.status());
  if (static_cast<int64_t>((*list)->size()) != n_layer) {
    return fail(key,
                absl::StrCat("array has ", (*list)->size(), " values for ", n_layer, " blocks"));
  }
  for (const int64_t v : **list) {
    if (v < low || v > high) {
      return fail(key, absl::StrCat("value ", v, " is outside ", low, " .. ", high));
    }
  }
  return std::move(**list);
}

absl::Status KeyReader::as_key_error(std::string_view key, const absl::Status& status) const {
  const ErrorWhere where = where_of(status);
  return error_at(Code::kModelKey, full(key), where.offset, status.message());
}

}  // namespace engine
