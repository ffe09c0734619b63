// Writes GGUF files for tests. Every field can be given a wrong value, and the place of each is
// known.
#ifndef ENGINE_TESTS_UNIT_GGUF_BUILDER_H_
#define ENGINE_TESTS_UNIT_GGUF_BUILDER_H_

#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "lib/file/gguf.h"
#include "lib/quant/format.h"

namespace engine {

// The adapter that lib/model gives to Gguf::parse, for tests of file/ alone.
inline BlockShape test_block_shape(uint32_t ggml_type) {
  const FormatInfo* info = format_info(ggml_type);
  if (info == nullptr) return {0, 0, refused_reason(ggml_type)};
  return {info->block_elements, info->block_bytes, info->name};
}

// A growing byte string, little-endian.
class ByteWriter {
 public:
  template <class T>
  ByteWriter& put(T value) {
    static_assert(std::is_arithmetic_v<T> || std::is_enum_v<T>);
    return raw(&value, sizeof(T));
  }
  ByteWriter& raw(const void* data, size_t n_bytes) {
    const auto* first = static_cast<const uint8_t*>(data);
    bytes.insert(bytes.end(), first, first + n_bytes);
    return *this;
  }
  ByteWriter& raw(const std::vector<uint8_t>& data) { return raw(data.data(), data.size()); }
  ByteWriter& text(std::string_view chars) { return raw(chars.data(), chars.size()); }
  // u64 length and the characters.
  ByteWriter& string(std::string_view chars) {
    put<uint64_t>(chars.size());
    return text(chars);
  }
  ByteWriter& pad(uint64_t unit) {
    while (unit != 0 && bytes.size() % unit != 0) bytes.push_back(0);
    return *this;
  }

  std::vector<uint8_t> bytes;
};

class GgufBuilder {
 public:
  // Header fields; a set count overrides the true one.
  std::string magic = "GGUF";
  uint32_t version = 3;
  std::optional<uint64_t> tensor_count;
  std::optional<uint64_t> value_count;
  // Unit of padding only; add the key general.alignment yourself.
  uint64_t alignment = 32;

  struct Tensor {
    std::string name;
    std::vector<uint64_t> dims;
    uint32_t type = 0;
    std::vector<uint8_t> data;       // written at the next aligned place
    std::optional<uint64_t> offset;  // overrides the offset in the table, not the place of the data
    std::optional<uint32_t> n_dims;  // overrides dims.size()
    std::optional<uint64_t> name_length;  // overrides name.size()
  };

  // A value of any type id from its encoded bytes (what follows the type).
  GgufBuilder& value(std::string key, uint32_t type, std::vector<uint8_t> encoded) {
    values_.push_back({std::move(key), type, std::move(encoded)});
    return *this;
  }
  template <class T>
  GgufBuilder& scalar(std::string key, T number) {
    return value(std::move(key), type_id<T>(), ByteWriter().put(number).bytes);
  }
  GgufBuilder& string(std::string key, std::string_view text) {
    return value(std::move(key), 8, ByteWriter().string(text).bytes);
  }
  template <class T>
  GgufBuilder& array(std::string key, const std::vector<T>& numbers) {
    ByteWriter out;
    out.put(type_id<T>()).put(uint64_t{numbers.size()});
    for (const T number : numbers) out.put(number);
    return value(std::move(key), 9, std::move(out.bytes));
  }
  GgufBuilder& strings(std::string key, const std::vector<std::string>& texts) {
    ByteWriter out;
    out.put<uint32_t>(8).put<uint64_t>(texts.size());
    for (const std::string& text : texts) out.string(text);
    return value(std::move(key), 9, std::move(out.bytes));
  }
  GgufBuilder& tensor(Tensor tensor) {
    tensors_.push_back(std::move(tensor));
    return *this;
  }
  // An F32 tensor of the given values.
  GgufBuilder& f32(std::string name, std::vector<uint64_t> dims,
                   const std::vector<float>& numbers) {
    return tensor({std::move(name),
                   std::move(dims),
                   0,
                   ByteWriter().raw(numbers.data(), numbers.size() * 4).bytes,
                   {},
                   {},
                   {}});
  }

  std::vector<uint8_t> build() {
    ByteWriter out;
    out.text(magic).put(version);
    out.put<uint64_t>(tensor_count.value_or(tensors_.size()));
    out.put<uint64_t>(value_count.value_or(values_.size()));
    for (const Value& value : values_) {
      key_offset[value.key] = out.bytes.size();
      out.string(value.key).put(value.type);
      value_offset[value.key] = out.bytes.size();
      out.raw(value.encoded);
    }
    uint64_t next = 0;
    for (const Tensor& tensor : tensors_) {
      info_offset[tensor.name] = out.bytes.size();
      out.put<uint64_t>(tensor.name_length.value_or(tensor.name.size())).text(tensor.name);
      out.put<uint32_t>(tensor.n_dims.value_or(static_cast<uint32_t>(tensor.dims.size())));
      dims_offset[tensor.name] = out.bytes.size();
      for (uint64_t dim : tensor.dims) out.put(dim);
      type_offset[tensor.name] = out.bytes.size();
      out.put(tensor.type).put<uint64_t>(tensor.offset.value_or(next));
      next += tensor.data.size();
      if (alignment != 0) next = (next + alignment - 1) / alignment * alignment;
    }
    if (!tensors_.empty()) out.pad(alignment);
    data_start = out.bytes.size();
    for (size_t i = 0; i < tensors_.size(); ++i) {
      out.raw(tensors_[i].data);
      if (i + 1 < tensors_.size()) out.pad(alignment);
    }
    return std::move(out.bytes);
  }

  // Filled by build(): the last entry of that name.
  std::map<std::string, uint64_t> key_offset;    // of the entry
  std::map<std::string, uint64_t> value_offset;  // after the type; the type is 4 bytes before
  std::map<std::string, uint64_t> info_offset;   // of the table row
  std::map<std::string, uint64_t> dims_offset;   // dims[0]; the dimension count is 4 bytes before
  std::map<std::string, uint64_t> type_offset;
  uint64_t data_start = 0;

 private:
  struct Value {
    std::string key;
    uint32_t type;
    std::vector<uint8_t> encoded;
  };

  template <class T>
  static constexpr uint32_t type_id() {
    if constexpr (std::is_same_v<T, bool>) return 7;
    if constexpr (std::is_same_v<T, float>) return 6;
    if constexpr (std::is_same_v<T, double>) return 12;
    if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
      constexpr uint32_t unsigned_ids[] = {0, 2, 4, 10};
      constexpr int log2_bytes = sizeof(T) == 1 ? 0 : sizeof(T) == 2 ? 1 : sizeof(T) == 4 ? 2 : 3;
      return unsigned_ids[log2_bytes] + (std::is_signed_v<T> ? 1 : 0);
    }
  }

  std::vector<Value> values_;
  std::vector<Tensor> tensors_;
};

}  // namespace engine

#endif  // ENGINE_TESTS_UNIT_GGUF_BUILDER_H_
