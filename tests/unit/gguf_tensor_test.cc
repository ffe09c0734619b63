// The tensor table: shapes, types, extents, alignment and overlap, and each refusal with its place.
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "tests/unit/gguf_check.h"

namespace engine {
namespace {

constexpr uint32_t kF32 = 0;
constexpr uint32_t kQ4K = 12;
constexpr GgufOptions kMetadataOnly = {.metadata_only = true};

std::vector<uint8_t> bytes_of(size_t n_bytes, uint8_t value = 1) {
  return std::vector<uint8_t>(n_bytes, value);
}
GgufBuilder::Tensor tensor_of(std::string name, std::vector<uint64_t> dims, uint32_t type,
                              std::vector<uint8_t> data) {
  return {std::move(name), std::move(dims), type, std::move(data), {}, {}, {}};
}

TEST_CASE("tensors are read with their shapes and bytes", "[gguf]") {
  GgufBuilder builder;
  builder.f32("norm", {3}, {1, 2, 3}).f32("grid", {2, 3}, {1, 2, 3, 4, 5, 6});
  builder.tensor(tensor_of("q", {256, 2, 1, 1}, kQ4K, bytes_of(288, 9)));
  builder.tensor(tensor_of("scalar", {}, kF32, bytes_of(4, 8)));
  const auto file = builder.build();
  const auto parsed = Gguf::parse(file, test_block_shape);
  REQUIRE(parsed.ok());
  REQUIRE(parsed->tensors().size() == 4);
  CHECK(parsed->data_start() == builder.data_start);
  const GgufTensor* grid = parsed->find_tensor("grid");
  REQUIRE(grid != nullptr);
  CHECK(grid == &parsed->tensors()[1]);
  CHECK(grid->n_dims == 2);
  CHECK((grid->dims[0] == 2 && grid->dims[1] == 3 && grid->dims[2] == 1 && grid->dims[3] == 1));
  CHECK(grid->bytes == 24);
  CHECK(grid->info_offset == builder.info_offset["grid"]);
  const float expected[6] = {1, 2, 3, 4, 5, 6};
  CHECK(std::memcmp(parsed->tensor_data(*grid), expected, sizeof(expected)) == 0);
  CHECK(parsed->find_tensor("q")->bytes == 288);
  CHECK(*parsed->tensor_data(*parsed->find_tensor("q")) == 9);
  CHECK(parsed->find_tensor("scalar")->bytes == 4);
  CHECK(parsed->find_tensor("absent") == nullptr);
}

TEST_CASE("dimensions must be positive, in every position (case 1)", "[gguf]") {
  struct Row {
    std::vector<uint64_t> dims;
    int at;
    std::string shown;
  };
  const uint64_t kNegative = UINT64_MAX;
  const std::vector<Row> rows = {
      {{4, 0}, 1, "0"},          {{0}, 0, "0"},
      {{4, 0, 1, 1}, 1, "0"},    {{0, 4, 1, 1}, 0, "0"},
      {{4, 1, 0, 1}, 2, "0"},    {{4, 1, 1, 0}, 3, "0"},
      {{4, kNegative}, 1, "-1"}, {{1ull << 63}, 0, "-9223372036854775808"},
  };
  for (const Row& row : rows) {
    for (const GgufOptions& options : {GgufOptions{}, kMetadataOnly}) {
      GgufBuilder builder;
      const auto file = builder.tensor(tensor_of("t", row.dims, kF32, bytes_of(16))).build();
      check_refused(
          file, Code::kFileFormat, "t",
          builder.dims_offset["t"] + 8 * static_cast<uint64_t>(row.at),
          "t: dimension must be positive, dims[" + std::to_string(row.at) + "] is " + row.shown,
          options);
    }
  }
  GgufBuilder builder;
  auto tensor = tensor_of("t", {1, 1, 1, 1, 1}, kF32, bytes_of(4));
  const auto file = builder.tensor(tensor).build();
  check_refused(file, Code::kFileFormat, "t", builder.dims_offset["t"] - 4,
                "t: 5 dimensions, at most 4 are allowed");
}

TEST_CASE("sizes that wrap are refused (case 2)", "[gguf]") {
  const auto refused = [](std::vector<uint64_t> dims, uint32_t type, uint64_t bad_dim,
                          const std::string& message) {
    GgufBuilder builder;
    const auto file =
        builder.tensor(tensor_of("t", std::move(dims), type, bytes_of(4 << 20))).build();
    const uint64_t at =
        bad_dim == 9 ? builder.type_offset["t"] : builder.dims_offset["t"] + 8 * bad_dim;
    check_refused(file, Code::kFileFormat, "t", at, "t: " + message);
  };
  const std::string bytes_wrap = "the size in bytes overflows 64 bits";
  const std::string elements_wrap = "the number of elements overflows 63 bits";
  refused({1ull << 20, (1ull << 42) + 1}, kF32, 9, bytes_wrap);  // wraps to 4 MiB
  refused({1ull << 20, (1ull << 41) + 1}, 27, 9, bytes_wrap);    // I64: wraps to 8 MiB
  refused({1ull << 20, 1ull << 43}, kF32, 1, elements_wrap);     // 2^63
  refused({1ull << 32, 1ull << 32}, kF32, 1, elements_wrap);     // 2^64
  refused({1ull << 32, 1ull << 16, 1ull << 16, 4}, 24, 2, elements_wrap);
}

TEST_CASE("data outside the file or wrapped back into it is refused (case 5)", "[gguf]") {
  const auto build = [](uint64_t offset, size_t data_bytes, GgufBuilder* builder) {
    auto tensor = tensor_of("t", {16}, kF32, bytes_of(data_bytes));
    tensor.offset = offset;
    builder->string("filler", std::string(100, 'x'));  // the header is longer than 64 bytes
    return builder->tensor(tensor).build();
  };
  const auto message = [](uint64_t offset, uint64_t section) {
    return "t: 64 bytes at data offset " + std::to_string(offset) +
           " end beyond the file: the data section has " + std::to_string(section) + " bytes";
  };
  GgufBuilder probe;
  const uint64_t file_bytes = build(0, 64, &probe).size();
  const uint64_t data_start = probe.data_start;
  REQUIRE(data_start > 128);
  for (uint64_t offset : {file_bytes, uint64_t{32}, uint64_t{64}, UINT64_MAX - 31,
                          0 - data_start + 64, 0 - data_start, uint64_t{1} << 63}) {
    GgufBuilder builder;
    const auto file = build(offset, 64, &builder);
    check_refused(file, Code::kFileFormat, "t", builder.info_offset["t"], message(offset, 64));
    CHECK(Gguf::parse(file, test_block_shape, kMetadataOnly).ok());
  }
  GgufBuilder one_byte_short;
  auto file = build(0, 63, &one_byte_short);
  check_refused(file, Code::kFileFormat, "t", one_byte_short.info_offset["t"], message(0, 63));
  // Without the data section, and even its padding.
  file.resize(one_byte_short.type_offset["t"] + 12);
  check_refused(file, Code::kFileFormat, "t", one_byte_short.info_offset["t"], message(0, 0));
  const auto metadata = Gguf::parse(file, test_block_shape, kMetadataOnly);
  REQUIRE(metadata.ok());
  CHECK(metadata->tensor_data(metadata->tensors()[0]) == nullptr);
  GgufBuilder unaligned;
  file = build(8, 128, &unaligned);
  check_refused(file, Code::kFileFormat, "t", unaligned.info_offset["t"],
                "t: data offset 8 is not a multiple of the alignment 32");
}

TEST_CASE("tensors that share bytes are refused, gaps and any order are not (case 5)", "[gguf]") {
  const auto build = [](uint64_t first, uint64_t second, GgufBuilder* builder) {
    auto a = tensor_of("a", {16}, kF32, bytes_of(64));
    auto b = tensor_of("b", {16}, kF32, bytes_of(128));
    a.offset = first;
    b.offset = second;
    return builder->tensor(a).tensor(b).build();
  };
  struct Row {
    uint64_t first, second;
    std::string refused, other;
  };
  for (const Row& row : std::vector<Row>{{0, 0, "b", "a"}, {0, 32, "b", "a"}, {64, 32, "a", "b"}}) {
    GgufBuilder builder;
    const auto file = build(row.first, row.second, &builder);
    const uint64_t at = row.refused == "a" ? row.first : row.second;
    check_refused(file, Code::kFileFormat, row.refused, builder.info_offset[row.refused],
                  row.refused + ": its data at data offset " + std::to_string(at) +
                      " overlaps that of tensor " + row.other);
  }
  for (const Row& row :
       std::vector<Row>{{0, 64, "", ""}, {64, 0, "", ""}, {0, 128, "", ""}, {128, 32, "", ""}}) {
    GgufBuilder builder;
    const auto file = build(row.first, row.second, &builder);
    CHECK(Gguf::parse(file, test_block_shape).ok());
  }
}

TEST_CASE("removed, foreign and unknown types are refused by name and number (case 7)", "[gguf]") {
  const auto reason = [](uint32_t type) -> std::string {
    for (uint32_t removed : {4u, 5u, 31u, 32u, 33u, 36u, 37u, 38u}) {
      if (type == removed) return "removed from GGUF, re-quantise the model";
    }
    return type == 97 || type == 150 ? "belongs to a fork" : "unknown";
  };
  for (uint32_t type :
       {4u, 5u, 31u, 32u, 33u, 36u, 37u, 38u, 97u, 150u, 0x7FFFFFFFu, 0xFFFFFFFFu}) {
    GgufBuilder builder;
    builder.f32("good", {4}, {1, 2, 3, 4});
    const auto file = builder.tensor(tensor_of("t", {32}, type, bytes_of(64))).build();
    check_refused(file, Code::kFileUnsupported, "t", builder.type_offset["t"],
                  "t: tensor type " + std::to_string(type) + " is not supported: " + reason(type));
    const auto parsed = Gguf::parse(file, test_block_shape, kMetadataOnly);
    REQUIRE(parsed.ok());
    const GgufTensor& tensor = parsed->tensors()[1];
    CHECK(tensor.type == type);
    CHECK(tensor.bytes == 0);
    CHECK(parsed->tensor_data(tensor) == nullptr);
  }
  // A caller that gives no reason.
  GgufBuilder builder;
  const auto file = builder.tensor(tensor_of("t", {32}, 4, bytes_of(64))).build();
  const auto parsed = Gguf::parse(file, [](uint32_t) { return BlockShape(); });
  check_error(parsed.status(), Code::kFileUnsupported, "t", builder.type_offset["t"],
              "t: tensor type 4 is not supported: unknown");
}

TEST_CASE("a row that is no multiple of the block is refused (case 21)", "[gguf]") {
  GgufBuilder builder;
  const auto file = builder.tensor(tensor_of("t", {288, 8}, kQ4K, bytes_of(1296))).build();
  for (const GgufOptions& options : {GgufOptions{}, kMetadataOnly}) {
    check_refused(file, Code::kFileFormat, "t", builder.type_offset["t"],
                  "t: row length 288 is not a multiple of the block size 256 of Q4_K", options);
  }
}

TEST_CASE("empty, overlong and repeated tensor names are refused (case 8)", "[gguf]") {
  GgufBuilder twice;
  twice.f32("blk.0.attn_q.weight", {1}, {1});
  auto file = twice.f32("other", {1}, {1}).f32("blk.0.attn_q.weight", {1}, {2}).build();
  for (const GgufOptions& options : {GgufOptions{}, kMetadataOnly}) {
    check_refused(file, Code::kFileFormat, "blk.0.attn_q.weight",
                  twice.info_offset["blk.0.attn_q.weight"],
                  "blk.0.attn_q.weight: the tensor appears twice", options);
  }
  GgufBuilder empty;
  file = empty.f32("a", {1}, {1}).f32("", {1}, {1}).build();
  check_refused(file, Code::kFileFormat, "tensor 1", empty.info_offset[""], "tensor 1: empty name");
  GgufBuilder overlong;
  const std::string name(65, 'n');
  file = overlong.f32(name, {1}, {1}).build();
  check_refused(file, Code::kFileFormat, "tensor 0", overlong.info_offset[name],
                "tensor 0: name of 65 bytes, at most 64 are allowed");
  GgufBuilder longest;
  file = longest.f32(std::string(64, 'n'), {1}, {1}).build();
  CHECK(Gguf::parse(file, test_block_shape).ok());
  GgufBuilder beyond;
  auto tensor = tensor_of("t", {1}, kF32, bytes_of(4));
  tensor.name_length = UINT64_MAX;
  file = beyond.tensor(tensor).build();
  check_refused(file, Code::kFileFormat, "tensor 0", 24,
                "tensor 0: name length 18446744073709551615 exceeds the " +
                    std::to_string(file.size() - 32) + " bytes left");
}

TEST_CASE("ten thousand tensors are found by name", "[gguf]") {
  GgufBuilder builder;
  for (int i = 0; i < 10000; ++i) {
    builder.f32("t" + std::to_string(i), {1}, {static_cast<float>(i)});
  }
  const auto file = builder.build();
  const auto parsed = Gguf::parse(file, test_block_shape);
  REQUIRE(parsed.ok());
  size_t wrong = 0;
  for (int i = 0; i < 10000; ++i) {
    const GgufTensor* tensor = parsed->find_tensor("t" + std::to_string(i));
    float value = -1;
    if (tensor != nullptr) std::memcpy(&value, parsed->tensor_data(*tensor), sizeof(value));
    wrong += value != static_cast<float>(i);
  }
  CHECK(wrong == 0);
}

TEST_CASE("data is found for every alignment and every length of the metadata (case 12)",
          "[gguf]") {
  for (uint32_t alignment : {8u, 16u, 32u, 64u, 128u, 4096u}) {
    bool ended_on_16_not_32 = false;
    for (size_t length = 0; length < 64; ++length) {
      GgufBuilder builder;
      builder.alignment = alignment;
      builder.scalar<uint32_t>("general.alignment", alignment);
      builder.string("filler", std::string(length, 'x'));
      for (uint8_t i = 0; i < 3; ++i) {
        std::vector<uint8_t> data(16);
        for (uint8_t j = 0; j < 16; ++j) data[j] = static_cast<uint8_t>(16 * i + j + 1);
        builder.tensor(tensor_of("t" + std::to_string(i), {4}, kF32, data));
      }
      const auto file = builder.build();
      const auto parsed = Gguf::parse(file, test_block_shape);
      REQUIRE(parsed.ok());
      CHECK(parsed->alignment() == alignment);
      CHECK(parsed->data_start() == builder.data_start);
      for (uint8_t i = 0; i < 3; ++i) {
        const uint8_t* data = parsed->tensor_data(parsed->tensors()[i]);
        for (uint8_t j = 0; j < 16; ++j) REQUIRE(data[j] == 16 * i + j + 1);
      }
      ended_on_16_not_32 |= builder.data_start % 32 == 16;
    }
    CHECK(ended_on_16_not_32 == (alignment <= 16));
  }
}

TEST_CASE("weights must be aligned in memory, metadata need not", "[gguf]") {
  GgufBuilder builder;
  const auto file = builder.f32("t", {1}, {1}).build();
  std::vector<uint8_t> shifted(file.size() + 2);
  std::memcpy(shifted.data() + 2, file.data(), file.size());
  const std::span<const uint8_t> view(shifted.data() + 2, file.size());
  const auto parsed = Gguf::parse(view, test_block_shape);
  CHECK(code_of(parsed.status()) == Code::kArgument);
  CHECK(parsed.status().message() ==
        "the first byte of a GGUF must lie at a multiple of 4 in memory");
  CHECK(Gguf::parse(view, test_block_shape, kMetadataOnly).ok());
}

}  // namespace
}  // namespace engine
