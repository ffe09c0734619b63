// FloatStateGuard: what is in force inside it, and what the thread has back afterwards.
#include "lib/base/float_state.h"

#include <catch2/catch_test_macros.hpp>
#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace engine {
namespace {

// Computed when the test runs, never by the compiler.
float product(float a, float b) {
  volatile float left = a, right = b;
  return left * right;
}

}  // namespace

TEST_CASE("float_state: denormals and rounding are IEEE inside a guard") {
#if defined(__x86_64__)
  constexpr unsigned kFlushToZero = 0x8000, kDenormalsAreZero = 0x40, kRoundUp = 0x4000;
  constexpr unsigned kUnmaskDivision = 0x200;
  constexpr unsigned kInexactFlag = 0x20;
  const unsigned before = _mm_getcsr();
  const unsigned host =
      ((before | kFlushToZero | kDenormalsAreZero | kRoundUp) & ~(kUnmaskDivision | 0x3Fu));
  _mm_setcsr(host);
  const float flushed = product(0x1p-126f, 0.5f);
  const float rounded_up = product(1 + 0x1p-23f, 1 + 0x1p-23f);
  _mm_setcsr(host);
  float denormal, from_denormal, nearest;
  unsigned inside, inside_flags;
  {
    const FloatStateGuard guard;
    inside = _mm_getcsr();
    denormal = product(0x1p-126f, 0.5f);
    from_denormal = product(0x1p-130f, 0x1p20f);
    nearest = product(1 + 0x1p-23f, 1 + 0x1p-23f);
    { const FloatStateGuard nested; }
    (void)product(3.0f, 0x1.fffffep-1f);
    inside_flags = _mm_getcsr();
  }
  const unsigned after = _mm_getcsr();
  _mm_setcsr(before);
  CHECK(flushed == 0.0f);
  CHECK(rounded_up == 1 + 0x1p-22f + 0x1p-23f);
  CHECK(inside == 0x1F80);
  CHECK(denormal == 0x1p-127f);
  CHECK(from_denormal == 0x1p-110f);
  CHECK(nearest == 1 + 0x1p-22f);
  CHECK((inside_flags & kInexactFlag) != 0);
  CHECK(after == host);  // no exception flag of ours stays behind
#elif defined(__aarch64__)
  const auto read = [] {
    uint64_t state;
    asm volatile("mrs %0, fpcr" : "=r"(state)::"memory");
    return state;
  };
  const auto write = [](uint64_t state) { asm volatile("msr fpcr, %0" ::"r"(state) : "memory"); };
  const uint64_t before = read();
  const uint64_t host = before | (uint64_t{1} << 24);  // FZ
  write(host);
  float denormal;
  {
    const FloatStateGuard guard;
    denormal = product(0x1p-126f, 0.5f);
  }
  const uint64_t after = read();
  write(before);
  CHECK(denormal == 0x1p-127f);
  CHECK(after == host);
#else
  SKIP("no float state on this machine");
#endif
}

}  // namespace engine
