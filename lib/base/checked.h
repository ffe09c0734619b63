// 64-bit arithmetic on sizes read from files: every result is checked, nothing wraps.
#ifndef ENGINE_LIB_BASE_CHECKED_H_
#define ENGINE_LIB_BASE_CHECKED_H_

#include <cstdint>

namespace engine {

// Each returns false, and leaves *out alone, when the exact result does not fit 64 bits.
[[nodiscard]] constexpr bool checked_add(uint64_t a, uint64_t b, uint64_t* out) {
  if (b > UINT64_MAX - a) return false;
  *out = a + b;
  return true;
}

[[nodiscard]] constexpr bool checked_mul(uint64_t a, uint64_t b, uint64_t* out) {
  if (a != 0 && b > UINT64_MAX / a) return false;
  *out = a * b;
  return true;
}

// The smallest multiple of `unit` that is not below `value`; `unit` > 0, not necessarily a power of
// two.
[[nodiscard]] constexpr bool checked_round_up(uint64_t value, uint64_t unit, uint64_t* out) {
  const uint64_t rest = value % unit;
  if (rest == 0) {
    *out = value;
    return true;
  }
  return checked_add(value, unit - rest, out);
}

}  // namespace engine

#endif  // ENGINE_LIB_BASE_CHECKED_H_
