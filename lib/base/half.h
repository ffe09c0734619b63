// Exact bit conversions between f32 and the 16-bit float formats; no hardware support is assumed.
#ifndef ENGINE_LIB_BASE_HALF_H_
#define ENGINE_LIB_BASE_HALF_H_

#include <bit>
#include <cstdint>

namespace engine {

// IEEE 754 binary16 to binary32: exact, subnormals included. A NaN keeps its sign and payload bits.
constexpr float f16_to_f32(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t exponent = (half >> 10) & 0x1Fu;
  uint32_t mantissa = half & 0x3FFu;
  if (exponent == 0x1F) return std::bit_cast<float>(sign | 0x7F800000u | (mantissa << 13));
  if (exponent != 0) {
    return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  }
  if (mantissa == 0) return std::bit_cast<float>(sign);
  // Subnormal: mantissa * 2^-24. Shifting the leading one to bit 10 takes `shift` steps.
  const uint32_t shift = static_cast<uint32_t>(std::countl_zero(mantissa)) - 21;
  mantissa = (mantissa << shift) & 0x3FFu;
  return std::bit_cast<float>(sign | ((113 - shift) << 23) | (mantissa << 13));
}

// Binary32 to binary16, round to nearest even; overflow gives infinity, a NaN becomes quiet and
// keeps the upper payload bits (as F16C and the AArch64 conversion do).
constexpr uint16_t f32_to_f16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude >= 0x7F800000u) {
    const uint32_t nan = magnitude > 0x7F800000u ? 0x200u | ((magnitude >> 13) & 0x3FFu) : 0;
    return static_cast<uint16_t>(sign | 0x7C00u | nan);
  }
  // 65,520 is half way between the largest half, 65,504, and 2^16; it rounds to even, which is
  // infinity.
  if (magnitude >= 0x477FF000u) return static_cast<uint16_t>(sign | 0x7C00u);
  // Below 2^-25 and at 2^-25 itself (a tie with an even zero) the result is zero.
  if (magnitude <= 0x33000000u) return static_cast<uint16_t>(sign);
  uint32_t shift = 13;
  uint32_t significand = magnitude - (112u << 23);  // normal: rebiased exponent and mantissa
  if (magnitude < 0x38800000u) {                    // below 2^-14: a subnormal half
    shift = 126 - (magnitude >> 23);
    significand = (magnitude & 0x7FFFFFu) | 0x800000u;
  }
  // A carry out of the mantissa runs into the exponent, which is the right answer.
  const uint32_t odd = (significand >> shift) & 1u;
  const uint32_t rounded = (significand + ((1u << (shift - 1)) - 1) + odd) >> shift;
  return static_cast<uint16_t>(sign | rounded);
}

constexpr float bf16_to_f32(uint16_t bf16) {
  return std::bit_cast<float>(static_cast<uint32_t>(bf16) << 16);
}

// Round to nearest even; a NaN becomes quiet and keeps the upper payload bits.
constexpr uint16_t f32_to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

}  // namespace engine

#endif  // ENGINE_LIB_BASE_HALF_H_
