// f16 and bf16 conversions: all 65,536 halves, and rounding at, above and below every tie.
#include "lib/base/half.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "catch2/catch_test_macros.hpp"

namespace engine {
namespace {

bool is_nan16(uint32_t half) { return (half & 0x7C00) == 0x7C00 && (half & 0x3FF) != 0; }
uint32_t bits(float value) { return std::bit_cast<uint32_t>(value); }
float from_bits(uint32_t value) { return std::bit_cast<float>(value); }

// The value of a finite half from its definition.
double half_value(uint32_t half) {
  const int exponent = (half >> 10) & 31;
  const int mantissa = half & 0x3FF;
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
  return half & 0x8000 ? -magnitude : magnitude;
}

TEST_CASE("every f16 decodes to its defined value and encodes back to itself", "[half]") {
  uint32_t wrong = 0;
  for (uint32_t half = 0; half < 0x10000; ++half) {
    const float value = f16_to_f32(static_cast<uint16_t>(half));
    if (is_nan16(half)) {
      wrong += !std::isnan(value);
      wrong += std::signbit(value) != ((half & 0x8000) != 0);
      wrong += f32_to_f16(value) != (half | 0x200);  // quiet, payload kept
    } else if ((half & 0x7FFF) == 0x7C00) {
      wrong += !std::isinf(value) || std::signbit(value) != ((half & 0x8000) != 0);
      wrong += f32_to_f16(value) != half;
    } else {
      wrong += static_cast<double>(value) != half_value(half);
      wrong += std::signbit(value) != ((half & 0x8000) != 0);
      wrong += f32_to_f16(value) != half;
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("f32 to f16 rounds to nearest even between every two neighbours", "[half]") {
  uint32_t wrong = 0;
  for (uint32_t low = 0; low < 0x7BFF; ++low) {  // pairs of finite positive halves
    const uint32_t high = low + 1;
    // The mid point of two neighbouring halves is exact in f32.
    const float middle = static_cast<float>((half_value(low) + half_value(high)) / 2);
    const uint32_t even = low % 2 == 0 ? low : high;
    for (uint32_t sign : {0u, 0x8000u}) {
      const float s = sign ? -1.0f : 1.0f;
      wrong += f32_to_f16(s * middle) != (even | sign);
      wrong += f32_to_f16(s * from_bits(bits(middle) - 1)) != (low | sign);
      wrong += f32_to_f16(s * from_bits(bits(middle) + 1)) != (high | sign);
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("f32 to f16 at the ends of the range", "[half]") {
  CHECK(f32_to_f16(65504.0f) == 0x7BFF);
  CHECK(f32_to_f16(from_bits(bits(65520.0f) - 1)) == 0x7BFF);
  CHECK(f32_to_f16(65520.0f) == 0x7C00);
  CHECK(f32_to_f16(-1e30f) == 0xFC00);
  CHECK(f32_to_f16(std::numeric_limits<float>::infinity()) == 0x7C00);
  CHECK(f32_to_f16(std::numeric_limits<float>::denorm_min()) == 0);
  CHECK(f32_to_f16(-std::numeric_limits<float>::denorm_min()) == 0x8000);
  CHECK(f32_to_f16(std::ldexp(1.0f, -25)) == 0);
  CHECK(f32_to_f16(from_bits(bits(std::ldexp(1.0f, -25)) + 1)) == 1);
  CHECK(is_nan16(f32_to_f16(from_bits(0x7F800001))));  // payload below the kept bits: still a NaN
  CHECK(f32_to_f16(from_bits(0xFFC12345)) == (0xFE00 | (0x12345 >> 13)));
}

TEST_CASE("every bf16 is the top half of an f32 and encodes back to itself", "[half]") {
  uint32_t wrong = 0;
  for (uint32_t half = 0; half < 0x10000; ++half) {
    const float value = bf16_to_f32(static_cast<uint16_t>(half));
    wrong += bits(value) != half << 16;
    const bool nan = (half & 0x7FFF) > 0x7F80;
    wrong += f32_to_bf16(value) != (nan ? half | 0x40 : half);
  }
  CHECK(wrong == 0);
}

TEST_CASE("f32 to bf16 rounds to nearest even", "[half]") {
  uint32_t wrong = 0;
  for (uint32_t half = 0; half < 0x7F80; ++half) {
    for (uint32_t sign : {0u, 0x8000u}) {
      const uint32_t base = (half | sign) << 16;
      const uint32_t even = half % 2 == 0 ? half : half + 1;  // may become infinity, rightly
      wrong += f32_to_bf16(from_bits(base | 0x7FFF)) != (half | sign);
      wrong += f32_to_bf16(from_bits(base | 0x8000)) != (even | sign);
      wrong += f32_to_bf16(from_bits(base | 0x8001)) != ((half + 1) | sign);
    }
  }
  CHECK(wrong == 0);
  CHECK(f32_to_bf16(from_bits(0x7F800001)) == 0x7FC0);
  CHECK(f32_to_bf16(from_bits(0xFFFFFFFF)) == 0xFFFF);
}

}  // namespace
}  // namespace engine
