// Lookups and typed reads of parsed GGUF metadata.
#include <limits>
#include <new>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "lib/base/checked.h"
#include "lib/file/gguf.h"
#include "lib/file/gguf_common.h"

namespace engine {
namespace {

absl::Status wrong_type(const GgufValue& value, std::string_view wanted) {
  const std::string found = value.type == GgufType::kArray
                                ? absl::StrCat("array of ", gguf_type_name(value.element_type))
                                : std::string(gguf_type_name(value.type));
  return gguf_error(Code::kModelKey, value.key, value.offset,
                    absl::StrCat("must be ", wanted, ", found ", found));
}

bool is_integer(GgufType type) {
  switch (type) {
    case GgufType::kU8:
    case GgufType::kI8:
    case GgufType::kU16:
    case GgufType::kI16:
    case GgufType::kU32:
    case GgufType::kI32:
    case GgufType::kU64:
    case GgufType::kI64: return true;
    default: return false;
  }
}

// An integer of any width and sign.
struct AnyInt {
  bool negative;  // then `bits` is the two's complement
  uint64_t bits;
};

AnyInt load_int(GgufType type, const uint8_t* data) {
  int64_t value = 0;
  switch (type) {
    case GgufType::kU8:
    case GgufType::kBool: value = *data; break;
    case GgufType::kI8: value = static_cast<int8_t>(*data); break;
    case GgufType::kU16: value = load_unaligned<uint16_t>(data); break;
    case GgufType::kI16: value = load_unaligned<int16_t>(data); break;
    case GgufType::kU32: value = load_unaligned<uint32_t>(data); break;
    case GgufType::kI32: value = load_unaligned<int32_t>(data); break;
    case GgufType::kI64: value = load_unaligned<int64_t>(data); break;
    case GgufType::kU64: return {false, load_unaligned<uint64_t>(data)};
    default: break;
  }
  return {value < 0, static_cast<uint64_t>(value)};
}

// Widening must not let a file of one-byte elements claim eight times its size: beyond any real
// array (2 Mi elements), the elements may take at most half of the 4 x file size that parse()
// promises.
absl::Status check_widened(const GgufValue& value, uint64_t file_bytes) {
  constexpr uint64_t kAlwaysAllowed = uint64_t{2} << 20;
  if (value.count <= kAlwaysAllowed || value.count <= file_bytes / 2) return absl::OkStatus();
  return gguf_error(Code::kModelKey, value.key, value.offset,
                    absl::StrCat("array of ", value.count, " elements is too long"));
}

// Too large for f32: an infinity, where a plain cast would be undefined.
float narrow(double value) {
  constexpr double kMax = std::numeric_limits<float>::max();
  constexpr float kInf = std::numeric_limits<float>::infinity();
  if (value > kMax) return kInf;
  return value < -kMax ? -kInf : static_cast<float>(value);
}

// Runs a read that allocates; the library lets no exception out.
template <class Fn>
auto without_exceptions(const GgufValue& value, Fn read) -> decltype(read()) {
  try {
    return read();
  } catch (const std::bad_alloc&) {
    return gguf_error(Code::kMemory, value.key, value.offset, "out of memory");
  }
}

}  // namespace

absl::Status gguf_error(Code code, std::string_view name, uint64_t offset,
                        std::string_view message) {
  constexpr size_t kShownBytes = 80;
  std::string shown;
  if (!name.empty()) {
    shown = absl::CHexEscape(name.substr(0, kShownBytes));
    absl::StrAppend(&shown, name.size() > kShownBytes ? "...: " : ": ");
  }
  return error_at(code, name, offset, absl::StrCat(shown, message, " (offset ", offset, ")"));
}

uint64_t gguf_type_bytes(GgufType type) {
  switch (type) {
    case GgufType::kU8:
    case GgufType::kI8:
    case GgufType::kBool: return 1;
    case GgufType::kU16:
    case GgufType::kI16: return 2;
    case GgufType::kU32:
    case GgufType::kI32:
    case GgufType::kF32: return 4;
    case GgufType::kU64:
    case GgufType::kI64:
    case GgufType::kF64: return 8;
    case GgufType::kString:
    case GgufType::kArray: break;
  }
  return 0;
}

std::string_view gguf_type_name(GgufType type) {
  switch (type) {
    case GgufType::kU8: return "u8";
    case GgufType::kI8: return "i8";
    case GgufType::kU16: return "u16";
    case GgufType::kI16: return "i16";
    case GgufType::kU32: return "u32";
    case GgufType::kI32: return "i32";
    case GgufType::kF32: return "f32";
    case GgufType::kBool: return "bool";
    case GgufType::kString: return "string";
    case GgufType::kArray: return "array";
    case GgufType::kU64: return "u64";
    case GgufType::kI64: return "i64";
    case GgufType::kF64: return "f64";
  }
  return "unknown";
}

const GgufValue* Gguf::find(std::string_view key) const {
  const auto place = value_index_.find(key);
  return place == value_index_.end() ? nullptr : &values_[place->second];
}

const GgufTensor* Gguf::find_tensor(std::string_view name) const {
  const auto place = tensor_index_.find(name);
  return place == tensor_index_.end() ? nullptr : &tensors_[place->second];
}

const uint8_t* Gguf::tensor_data(const GgufTensor& tensor) const {
  uint64_t begin = 0;
  uint64_t end = 0;
  if (tensor.bytes == 0 || !checked_add(data_start_, tensor.offset, &begin) ||
      !checked_add(begin, tensor.bytes, &end) || end > bytes_.size()) {
    return nullptr;
  }
  return bytes_.data() + begin;
}

absl::StatusOr<std::optional<uint64_t>> Gguf::get_uint(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!is_integer(value->type)) return wrong_type(*value, "an integer");
  const AnyInt number = load_int(value->type, value->data);
  if (number.negative) {
    return gguf_error(Code::kModelKey, value->key, value->offset,
                      absl::StrCat(static_cast<int64_t>(number.bits), " must not be negative"));
  }
  return number.bits;
}

absl::StatusOr<std::optional<int64_t>> Gguf::get_int(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!is_integer(value->type)) return wrong_type(*value, "an integer");
  const AnyInt number = load_int(value->type, value->data);
  if (!number.negative && number.bits > static_cast<uint64_t>(INT64_MAX)) {
    return gguf_error(Code::kModelKey, value->key, value->offset,
                      absl::StrCat(number.bits, " is too large"));
  }
  return static_cast<int64_t>(number.bits);
}

absl::StatusOr<std::optional<double>> Gguf::get_float(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (value->type == GgufType::kF32) return double{load_unaligned<float>(value->data)};
  if (value->type == GgufType::kF64) return load_unaligned<double>(value->data);
  return wrong_type(*value, "a float");
}

absl::StatusOr<std::optional<bool>> Gguf::get_bool(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (value->type != GgufType::kBool) return wrong_type(*value, "a bool");
  return *value->data != 0;
}

absl::StatusOr<std::optional<std::string_view>> Gguf::get_string(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (value->type != GgufType::kString) return wrong_type(*value, "a string");
  return std::string_view(reinterpret_cast<const char*>(value->data),
                          static_cast<size_t>(value->data_bytes));
}

absl::StatusOr<std::optional<std::vector<std::string_view>>> Gguf::get_strings(
    std::string_view key) const {
  using Result = absl::StatusOr<std::optional<std::vector<std::string_view>>>;
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (value->type != GgufType::kArray || value->element_type != GgufType::kString) {
    return wrong_type(*value, "an array of strings");
  }
  return without_exceptions(*value, [value]() -> Result {
    std::vector<std::string_view> strings;
    strings.reserve(static_cast<size_t>(value->count));
    const uint8_t* at = value->data;
    for (uint64_t i = 0; i < value->count; ++i) {  // parse() checked every length
      const auto length = static_cast<size_t>(load_unaligned<uint64_t>(at));
      strings.emplace_back(reinterpret_cast<const char*>(at + 8), length);
      at += 8 + length;
    }
    return strings;
  });
}

absl::StatusOr<std::optional<std::vector<int64_t>>> Gguf::get_ints(std::string_view key) const {
  using Result = absl::StatusOr<std::optional<std::vector<int64_t>>>;
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (value->type != GgufType::kArray ||
      !(is_integer(value->element_type) || value->element_type == GgufType::kBool)) {
    return wrong_type(*value, "an array of integers");
  }
  ENGINE_RETURN_IF_ERROR(check_widened(*value, bytes_.size()));
  return without_exceptions(*value, [value]() -> Result {
    std::vector<int64_t> numbers;
    numbers.reserve(static_cast<size_t>(value->count));
    const uint64_t width = gguf_type_bytes(value->element_type);
    for (uint64_t i = 0; i < value->count; ++i) {
      const AnyInt number = load_int(value->element_type, value->data + i * width);
      if (!number.negative && number.bits > static_cast<uint64_t>(INT64_MAX)) {
        return gguf_error(Code::kModelKey, value->key, value->offset,
                          absl::StrCat("element ", i, ", ", number.bits, ", is too large"));
      }
      numbers.push_back(static_cast<int64_t>(number.bits));
    }
    return numbers;
  });
}

absl::StatusOr<std::optional<std::vector<float>>> Gguf::get_floats(std::string_view key) const {
  using Result = absl::StatusOr<std::optional<std::vector<float>>>;
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  const bool is_f32 = value->element_type == GgufType::kF32;
  if (value->type != GgufType::kArray || !(is_f32 || value->element_type == GgufType::kF64)) {
    return wrong_type(*value, "an array of floats");
  }
  return without_exceptions(*value, [value, is_f32]() -> Result {
    std::vector<float> numbers;
    numbers.reserve(static_cast<size_t>(value->count));
    for (uint64_t i = 0; i < value->count; ++i) {
      numbers.push_back(is_f32 ? load_unaligned<float>(value->data + 4 * i)
                               : narrow(load_unaligned<double>(value->data + 8 * i)));
    }
    return numbers;
  });
}

}  // namespace engine
