// Damages a good file in every simple way: no crash, no read outside, a named error or a consistent
// result.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tests/unit/gguf_check.h"
#include "tests/unit/gguf_touch.h"

namespace engine {
namespace {

// Parses a copy that ends exactly where the allocation ends, in both modes. True when it was
// accepted.
bool survives(const std::vector<uint8_t>& file, size_t n_bytes) {
  const std::unique_ptr<uint8_t[]> exact(new uint8_t[n_bytes]);
  std::copy(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(n_bytes), exact.get());
  bool accepted = false;
  for (const bool metadata_only : {true, false}) {
    const auto parsed = Gguf::parse({exact.get(), n_bytes}, test_block_shape, {metadata_only});
    if (parsed.ok()) {
      accepted = true;
      (void)touch_all(*parsed);
      continue;
    }
    accepted = false;
    const Code code = code_of(parsed.status());
    if (code != Code::kFileFormat && code != Code::kFileUnsupported)
      FAIL("code of " << parsed.status());
    if (where_of(parsed.status()).offset == kNoOffset) FAIL("no offset in " << parsed.status());
  }
  return accepted;
}

TEST_CASE("a good file is accepted in full", "[gguf]") {
  for (uint32_t alignment : {8u, 32u, 64u}) {
    const auto file = small_good_file(alignment);
    CHECK(survives(file, file.size()));
  }
}

TEST_CASE("a file cut at any length is refused", "[gguf]") {
  const auto file = small_good_file();
  for (size_t n = 0; n < file.size(); ++n) {
    if (survives(file, n)) FAIL("accepted when cut to " << n << " of " << file.size() << " bytes");
  }
}

TEST_CASE("any byte may be damaged", "[gguf]") {
  const auto file = small_good_file(64);
  size_t refused = 0;
  for (size_t at = 0; at < file.size(); ++at) {
    for (const uint8_t flip : {0x01, 0x02, 0x08, 0x80, 0xFF}) {
      auto damaged = file;
      damaged[at] = static_cast<uint8_t>(damaged[at] ^ flip);
      refused += !survives(damaged, damaged.size());
    }
  }
  CHECK(refused > file.size());  // the damage reaches the parser
}

TEST_CASE("any eight bytes may become an extreme number", "[gguf]") {
  const auto file = small_good_file();
  for (size_t at = 0; at + 8 <= file.size(); ++at) {
    for (const uint64_t value :
         {uint64_t{0}, UINT64_MAX, uint64_t{1} << 63, uint64_t{1} << 32, UINT64_MAX - 31,
          uint64_t{file.size()}, uint64_t{file.size() - at}}) {
      auto damaged = file;
      std::memcpy(&damaged[at], &value, sizeof(value));
      (void)survives(damaged, damaged.size());
    }
  }
}

TEST_CASE("a good file opens after any number of bad ones", "[gguf]") {
  const auto file = small_good_file();
  for (size_t n = 0; n < 200; ++n) (void)survives(file, n);
  CHECK(survives(file, file.size()));
}

}  // namespace
}  // namespace engine
