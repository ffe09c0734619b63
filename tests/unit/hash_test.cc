// hash64 and hash128: known answers, and every byte counts.
#include "lib/base/hash.h"

#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <vector>

namespace engine {

TEST_CASE("hash: XXH3 of nothing") {
  // The values that the xxHash specification's reference gives for the empty input, seed 0.
  CHECK(hash64(nullptr, 0) == 0x2D06800538D394C2u);
  CHECK(hash128(nullptr, 0) == Hash128{0x6001C324468D497Fu, 0x99AA06D3014798D8u});
}

TEST_CASE("hash: equal bytes at any address hash equal, a changed bit does not") {
  for (const size_t n : {1u, 3u, 4u, 8u, 16u, 17u, 128u, 129u, 240u, 241u, 1024u, 5000u}) {
    std::vector<uint8_t> bytes(n + 1);
    for (size_t i = 0; i < n; ++i) bytes[i] = static_cast<uint8_t>(i * 7 + 3);
    const uint64_t h64 = hash64(bytes.data(), n);
    const Hash128 h128 = hash128(bytes.data(), n);
    const std::vector<uint8_t> moved = [&] {
      std::vector<uint8_t> v(1);
      v.insert(v.end(), bytes.begin(), bytes.end());
      return v;
    }();
    CHECK(hash64(moved.data() + 1, n) == h64);
    CHECK(hash128(moved.data() + 1, n) == h128);
    for (const size_t i : {size_t{0}, n / 2, n - 1}) {
      bytes[i] ^= 1;
      CHECK(hash64(bytes.data(), n) != h64);
      CHECK_FALSE(hash128(bytes.data(), n) == h128);
      bytes[i] ^= 1;
    }
    CHECK(hash64(bytes.data(), n + 1) != h64);
  }
}

}  // namespace engine
