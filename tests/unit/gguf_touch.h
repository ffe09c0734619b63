// Reads everything that a parsed GGUF offers, so that a sanitizer sees any view that leaves the
// file.
#ifndef ENGINE_TESTS_UNIT_GGUF_TOUCH_H_
#define ENGINE_TESTS_UNIT_GGUF_TOUCH_H_

#include <cstdint>
#include <string_view>

#include "lib/file/gguf.h"
#include "tests/unit/gguf_builder.h"

namespace engine {

// A checksum, so that no read is optimised away.
inline uint64_t touch_all(const Gguf& gguf) {
  uint64_t sum = gguf.version() + gguf.alignment() + gguf.data_start();
  const auto add = [&sum](std::string_view text) {
    for (const char c : text) sum = sum * 31 + static_cast<uint8_t>(c);
  };
  const auto add_status = [&add, &sum](const auto& result) {
    if (!result.ok()) add(std::string_view(result.status().message()));
    return result.ok() && result->has_value() && ++sum;
  };
  for (const GgufValue& value : gguf.values()) {
    add(value.key);
    add({reinterpret_cast<const char*>(value.data), static_cast<size_t>(value.data_bytes)});
    sum += gguf.find(value.key) == &value;
    if (auto read = gguf.get_uint(value.key); add_status(read)) sum += **read;
    if (auto read = gguf.get_int(value.key); add_status(read)) sum += static_cast<uint64_t>(**read);
    if (auto read = gguf.get_float(value.key); add_status(read)) sum += **read > 0;
    if (auto read = gguf.get_bool(value.key); add_status(read)) sum += **read;
    if (auto read = gguf.get_string(value.key); add_status(read)) add(**read);
    if (auto read = gguf.get_strings(value.key); add_status(read)) {
      for (const std::string_view text : **read) add(text);
    }
    if (auto read = gguf.get_ints(value.key); add_status(read)) {
      for (const int64_t number : **read) sum += static_cast<uint64_t>(number);
    }
    if (auto read = gguf.get_floats(value.key); add_status(read)) {
      for (const float number : **read) sum += number > 0;
    }
  }
  for (const GgufTensor& tensor : gguf.tensors()) {
    add(tensor.name);
    sum += gguf.find_tensor(tensor.name) == &tensor;
    const uint8_t* data = gguf.tensor_data(tensor);
    if (data != nullptr) {
      add({reinterpret_cast<const char*>(data), static_cast<size_t>(tensor.bytes)});
    }
  }
  return sum;
}

// A small good file with a value of every kind and tensors of several types.
inline std::vector<uint8_t> small_good_file(uint32_t alignment = 32) {
  GgufBuilder builder;
  builder.alignment = alignment;
  if (alignment != 32) builder.scalar<uint32_t>("general.alignment", alignment);
  builder.string("general.architecture", "llama")
      .scalar<uint8_t>("u8", 1)
      .scalar<int16_t>("i16", -2);
  builder.scalar<uint32_t>("llama.block_count", 2)
      .scalar<int64_t>("i64", -3)
      .scalar<float>("f", 1.5f);
  builder.scalar<double>("d", 2.5).scalar<bool>("b", true).strings("tokens", {"<s>", "", "a"});
  builder.array<float>("scores", {0, -1, -2}).array<int32_t>("types", {3, 1, 1});
  builder.array<bool>("flags", {true, false}).array<uint8_t>("none", {});
  builder.f32("norm", {4}, {1, 2, 3, 4});
  const auto tensor = [&builder](const char* name, std::vector<uint64_t> dims, uint32_t type,
                                 size_t n_bytes) {
    builder.tensor({name, std::move(dims), type, std::vector<uint8_t>(n_bytes, 7), {}, {}, {}});
  };
  tensor("q8", {32, 2}, 8, 68);
  tensor("q4k", {256}, 12, 144);
  tensor("f16", {2, 1, 1, 2}, 1, 8);
  return builder.build();
}

}  // namespace engine

#endif  // ENGINE_TESTS_UNIT_GGUF_TOUCH_H_
