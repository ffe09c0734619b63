// dequantize_row against the values that PyPI `gguf` gives for recorded blocks, bit for bit.
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "catch2/catch_test_macros.hpp"
#include "lib/quant/format.h"
#include "lib/quant/quant_ref.h"

namespace engine {
namespace {

struct Recording {
  std::string name;
  std::vector<uint16_t> blocks;  // 2-byte aligned, as kernels expect
  std::vector<float> values;
};

// Layout: tests/parity/record_quant.py.
std::vector<Recording> read_recordings() {
  const auto path =
      std::filesystem::path(ENGINE_SOURCE_DIR) / "tests" / "golden" / "quant_blocks.bin";
  std::ifstream in(path, std::ios::binary);
  INFO("reading " << path.string());
  REQUIRE(in.good());
  const auto read_u32 = [&in] {
    uint32_t value = 0;
    in.read(reinterpret_cast<char*>(&value), 4);
    return value;
  };
  char magic[8] = {};
  in.read(magic, 8);
  REQUIRE(std::memcmp(magic, "EQBLOCK1", 8) == 0);
  std::vector<Recording> recordings(read_u32());
  for (Recording& recording : recordings) {
    char name[17] = {};
    in.read(name, 16);
    recording.name = name;
    const uint32_t n_bytes = read_u32();
    recording.values.resize(read_u32());
    recording.blocks.resize((n_bytes + 1) / 2);
    in.read(reinterpret_cast<char*>(recording.blocks.data()), n_bytes);
    in.read(reinterpret_cast<char*>(recording.values.data()),
            static_cast<std::streamsize>(recording.values.size() * sizeof(float)));
  }
  REQUIRE(in.good());
  return recordings;
}

const FormatInfo* by_name(const std::string& name) {
  for (uint32_t id = 0; id < 64; ++id) {
    const FormatInfo* info = format_info(id);
    if (info != nullptr && info->name == name) return info;
  }
  return nullptr;
}

TEST_CASE("dequantize_row gives the recorded values bit for bit", "[quant]") {
  std::set<std::string> seen;
  for (const Recording& recording : read_recordings()) {
    INFO(recording.name);
    const FormatInfo* info = by_name(recording.name);
    REQUIRE(info != nullptr);
    CHECK(info->executable);
    REQUIRE(recording.values.size() % info->block_elements == 0);
    REQUIRE(recording.values.size() / info->block_elements * info->block_bytes ==
            recording.blocks.size() * 2);
    std::vector<float> decoded(recording.values.size());
    dequantize_row(info->format, recording.blocks.data(), static_cast<int64_t>(decoded.size()),
                   decoded.data());
    size_t wrong = 0;
    for (size_t i = 0; i < decoded.size(); ++i) {
      const bool both_nan = std::isnan(decoded[i]) && std::isnan(recording.values[i]);
      wrong += !both_nan &&
               std::bit_cast<uint32_t>(decoded[i]) != std::bit_cast<uint32_t>(recording.values[i]);
    }
    CHECK(wrong == 0);
    seen.insert(recording.name);
  }
  // Every executable format but plain F32 is covered.
  for (uint32_t id = 1; id < 64; ++id) {
    const FormatInfo* info = format_info(id);
    if (info != nullptr && info->executable) CHECK(seen.count(std::string(info->name)) == 1);
  }
}

TEST_CASE("dequantize_row copies F32, NaN payloads included", "[quant]") {
  const uint32_t row[4] = {0x7FC12345, 0x80000000, 0x00000001, 0x3F800000};
  float out[4];
  dequantize_row(Format::kF32, row, 4, out);
  CHECK(std::memcmp(row, out, sizeof(row)) == 0);
}

TEST_CASE("the format table sizes and names what a GGUF may hold", "[quant]") {
  CHECK(format_info(12)->name == "Q4_K");
  CHECK(format_info(Format::kQ6_K)->block_bytes == 210);
  CHECK(format_info(Format::kBF16)->block_bytes == 2);
  CHECK(format_info(39)->name == "MXFP4");
  CHECK(format_info(39)->block_bytes == 17);
  CHECK(format_info(39)->executable);
  CHECK_FALSE(format_info(40)->executable);
  CHECK(format_info(28)->block_bytes == 8);
  for (uint32_t id : {4u, 5u, 31u, 32u, 33u, 36u, 37u, 38u}) {
    CHECK(format_info(id) == nullptr);
    CHECK(refused_reason(id) == "removed from GGUF, re-quantise the model");
  }
  for (uint32_t id : {97u, 133u, 150u, 202u}) {
    CHECK(format_info(id) == nullptr);
    CHECK(refused_reason(id) == "belongs to a fork");
  }
  for (uint32_t id : {43u, 96u, 0x7FFFFFFFu, 0xFFFFFFFFu}) {
    CHECK(format_info(id) == nullptr);
    CHECK(refused_reason(id) == "unknown");
  }
}

}  // namespace
}  // namespace engine
