// Headers: magic, versions, byte order, counts, and the checked arithmetic below them.
#include <cstdint>
#include <string>
#include <vector>

#include "lib/base/checked.h"
#include "tests/unit/gguf_check.h"

namespace engine {
namespace {

std::vector<uint8_t> header(uint32_t version) {
  GgufBuilder builder;
  builder.version = version;
  return builder.build();
}

TEST_CASE("versions 2 and 3 are read, an empty file of either is legal", "[gguf]") {
  for (uint32_t version : {2u, 3u}) {
    const auto file = header(version);
    const auto parsed = Gguf::parse(file, test_block_shape);
    REQUIRE(parsed.ok());
    CHECK(parsed->version() == version);
    CHECK(parsed->values().empty());
    CHECK(parsed->tensors().empty());
    CHECK(parsed->alignment() == 32);
    CHECK(parsed->data_start() == 32);
    CHECK(parsed->bytes().size() == 24);
  }
}

TEST_CASE("other versions and byte orders are refused by name (case 24)", "[gguf]") {
  check_refused(header(1), Code::kFileUnsupported, "", 4,
                "GGUF version 1 is not supported, only 2 and 3; convert the model again");
  check_refused(header(4), Code::kFileUnsupported, "", 4,
                "GGUF version 4 is not supported, only 2 and 3; a newer library is needed");
  check_refused(header(0), Code::kFileFormat, "", 4, "GGUF version 0 does not exist");
  for (uint32_t big_endian : {0x02000000u, 0x03000000u}) {
    check_refused(header(big_endian), Code::kFileUnsupported, "", 4,
                  "the file is big-endian, which is not supported; convert it to little-endian");
  }
  GgufBuilder reversed;
  reversed.magic = "FUGG";
  check_refused(reversed.build(), Code::kFileUnsupported, "", 0,
                "the magic is reversed (\"FUGG\"): the file was byte-swapped");
  GgufBuilder foreign;
  foreign.magic = "GGML";
  check_refused(foreign.build(), Code::kFileFormat, "", 0, "not a GGUF file: the magic is missing");
  // A real version 1 header is only 16 bytes long: the version is named before the length.
  const auto v1 =
      ByteWriter().text("GGUF").put<uint32_t>(1).put<uint32_t>(0).put<uint32_t>(0).bytes;
  check_refused(v1, Code::kFileUnsupported, "", 4,
                "GGUF version 1 is not supported, only 2 and 3; convert the model again");
}

TEST_CASE("a header cut anywhere names the field", "[gguf]") {
  const auto whole = header(3);
  const auto cut = [&whole](size_t n) {
    return std::vector<uint8_t>(whole.begin(), whole.begin() + n);
  };
  check_refused(cut(0), Code::kFileFormat, "", 0,
                "the file ends inside the magic: 4 bytes needed, 0 left");
  check_refused(cut(7), Code::kFileFormat, "", 4,
                "the file ends inside the version: 4 bytes needed, 3 left");
  check_refused(cut(8), Code::kFileFormat, "", 8,
                "the file ends inside the tensor count: 8 bytes needed, 0 left");
  check_refused(cut(23), Code::kFileFormat, "", 16,
                "the file ends inside the metadata count: 8 bytes needed, 7 left");
}

TEST_CASE("counts beyond the file are refused before anything is allocated (case 3)", "[gguf]") {
  std::vector<uint64_t> counts = {(1ull << 63) - 1, 1ull << 61, 1ull << 58, UINT64_MAX, 8};
  for (uint64_t record = 40; record <= 400; ++record) counts.push_back(UINT64_MAX / record + 1);
  const std::vector<uint8_t> noise(100, 0xA5);
  for (uint64_t count : counts) {
    GgufBuilder builder;
    builder.tensor_count = count;
    auto file = builder.build();
    file.insert(file.end(), noise.begin(), noise.end());
    check_refused(file, Code::kFileFormat, "", 8,
                  "tensor count " + std::to_string(count) +
                      " does not fit: at least 24 bytes each, 100 left");
    builder.tensor_count = 0;
    builder.value_count = count;
    file = builder.build();
    file.insert(file.end(), noise.begin(), noise.end());
    check_refused(file, Code::kFileFormat, "", 16,
                  "metadata count " + std::to_string(count) +
                      " does not fit: at least 13 bytes each, 100 left");
  }
}

TEST_CASE("size arithmetic is checked in 64 bits (case 2)", "[gguf]") {
  uint64_t out = 77;
  CHECK_FALSE(checked_round_up(UINT64_MAX - 7, 32, &out));
  CHECK_FALSE(checked_round_up(UINT64_MAX, 2, &out));
  CHECK_FALSE(checked_add(UINT64_MAX, 1, &out));
  CHECK_FALSE(checked_mul(1ull << 32, 1ull << 32, &out));
  CHECK_FALSE(checked_mul(UINT64_MAX, 2, &out));
  CHECK(out == 77);  // untouched by failures
  CHECK((checked_round_up(UINT64_MAX - 31, 32, &out) && out == UINT64_MAX - 31));
  CHECK((checked_round_up(0, 32, &out) && out == 0));
  CHECK((checked_round_up(1, 24, &out) && out == 24));
  CHECK((checked_add(UINT64_MAX - 1, 1, &out) && out == UINT64_MAX));
  CHECK((checked_mul(UINT64_MAX, 1, &out) && out == UINT64_MAX));
  CHECK((checked_mul(0, UINT64_MAX, &out) && out == 0));
  CHECK((checked_mul(UINT64_MAX, 0, &out) && out == 0));
}

}  // namespace
}  // namespace engine
