// The activation quantisers: ties, zeros, values too small to scale, NaN and infinities, sums.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "catch2/catch_test_macros.hpp"
#include "lib/quant/quant_ref.h"

namespace engine {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kMax = std::numeric_limits<float>::max();

ActQ8x32 quantize_one(const std::vector<float>& head, bool* finite) {
  std::vector<float> x(32, 0.0f);
  std::copy(head.begin(), head.end(), x.begin());
  ActQ8x32 block;
  *finite = quantize_act_q8x32(x.data(), 32, &block);
  return block;
}

// True when the block stands for "nothing": the given scale and all numbers 0.
bool all_zero(const ActQ8x32& block) {
  for (int8_t q : block.q) {
    if (q != 0) return false;
  }
  return block.sum == 0;
}

TEST_CASE("activation quantiser rounds ties to even", "[quant]") {
  bool finite = false;
  // amax = 127 makes the scale exactly 1.
  const ActQ8x32 block =
      quantize_one({127, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -2.5f, 126.5f, -126.5f, 3.49f}, &finite);
  CHECK(finite);
  CHECK(block.d == 1.0f);
  const int expected[10] = {127, 0, 2, 2, 0, -2, -2, 126, -126, 3};
  int sum = 0;
  for (int i = 0; i < 10; ++i) {
    CHECK(block.q[i] == expected[i]);
    sum += expected[i];
  }
  CHECK(block.sum == sum);
}

TEST_CASE("activation quantiser takes the scale from the largest magnitude of either sign",
          "[quant]") {
  bool finite = false;
  const ActQ8x32 block = quantize_one({1.0f, -254.0f, 2.0f}, &finite);
  CHECK(block.d == 2.0f);
  CHECK(block.q[0] == 0);  // 0.5 rounds to even
  CHECK(block.q[1] == -127);
  CHECK(block.q[2] == 1);
  // Whatever amax is, the extreme element becomes exactly +-127 and nothing leaves the range.
  for (uint32_t i = 1; i < 100000; ++i) {
    const float amax =
        std::ldexp(1.0f + static_cast<float>(i) * 0x1p-17f, static_cast<int>(i % 200) - 100);
    const ActQ8x32 swept = quantize_one({-amax}, &finite);
    if (swept.q[0] != -127 || swept.d != amax / 127.0f) FAIL_CHECK("amax " << amax);
  }
}

TEST_CASE("activation quantiser gives zero for zero and for too small blocks", "[quant]") {
  bool finite = false;
  CHECK(quantize_one({0.0f, -0.0f}, &finite).d == 0.0f);
  CHECK(finite);
  // 127 / amax overflows below 127 / FLT_MAX.
  const float limit = 127.0f / kMax;
  CHECK(all_zero(quantize_one({std::nextafter(limit, 0.0f) * 0.99f}, &finite)));
  CHECK(finite);
  CHECK(quantize_one({-1e-40f}, &finite).d == 0.0f);
  const ActQ8x32 above = quantize_one({limit * 1.01f}, &finite);
  CHECK(above.q[0] == 127);
  CHECK(above.d > 0.0f);
  // The largest finite value does not overflow anything.
  const ActQ8x32 large = quantize_one({kMax, -kMax, kMax / 2}, &finite);
  CHECK(finite);
  CHECK(large.q[0] == 127);
  CHECK(large.q[1] == -127);
  CHECK(large.q[2] == 64);  // 63.5 rounds to even
}

TEST_CASE("activation quantiser reports NaN and infinities at every position", "[quant]") {
  for (float bad : {kInf, -kInf, std::nanf(""), -std::nanf("")}) {
    for (size_t at = 0; at < 64; ++at) {
      std::vector<float> x(64, 1.0f);
      x[at] = bad;
      ActQ8x32 blocks[2];
      REQUIRE_FALSE(quantize_act_q8x32(x.data(), 64, blocks));
      REQUIRE(std::isnan(blocks[at / 32].d));
      REQUIRE(all_zero(blocks[at / 32]));
      REQUIRE(blocks[1 - at / 32].d == 1.0f / 127.0f);  // the good block is unharmed
      REQUIRE(blocks[1 - at / 32].sum == 32 * 127);
    }
    for (size_t at = 0; at < 512; ++at) {
      std::vector<float> x(512, 1.0f);
      x[at] = bad;
      ActQ8x256 blocks[2];
      REQUIRE_FALSE(quantize_act_q8x256(x.data(), 512, blocks));
      REQUIRE(std::isnan(blocks[at / 256].d));
      REQUIRE(blocks[at / 256].sum16[0] == 0);
      REQUIRE(blocks[1 - at / 256].d == 1.0f / 127.0f);
    }
  }
}

TEST_CASE("the 256-element quantiser has one scale and sums of sixteen", "[quant]") {
  std::vector<float> x(512);
  for (int i = 0; i < 512; ++i)
    x[static_cast<size_t>(i)] = static_cast<float>((i * 37) % 255 - 127);
  x[0] = 127;  // scale 1: the numbers are the inputs
  x[256] = -127;
  ActQ8x256 blocks[2];
  REQUIRE(quantize_act_q8x256(x.data(), 512, blocks));
  for (int i = 0; i < 2; ++i) {
    CHECK(blocks[i].d == 1.0f);
    for (int j = 0; j < 16; ++j) {
      int sum = 0;
      for (int k = 0; k < 16; ++k) {
        const size_t at = static_cast<size_t>(256 * i + 16 * j + k);
        CHECK(blocks[i].q[16 * j + k] == x[at]);
        sum += static_cast<int>(x[at]);
      }
      CHECK(blocks[i].sum16[j] == sum);
    }
  }
  CHECK(blocks[0].pad[0] == 0);
}

}  // namespace
}  // namespace engine
