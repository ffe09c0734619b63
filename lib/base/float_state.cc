// Reads and writes the float control register. Out of line, so that no float operation of a caller
// can be moved across it.
#include "lib/base/float_state.h"

#if defined(__x86_64__) || defined(_M_X64) || defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace engine {
namespace {

#if defined(__x86_64__) || defined(_M_X64) || defined(__SSE__)

// All exceptions masked, no flags, round to nearest, FTZ and DAZ off: the value at reset (Intel SDM
// volume 1, 10.2.3).
constexpr uint64_t kDefaultState = 0x1F80;
uint64_t read_state() noexcept { return _mm_getcsr(); }
void write_state(uint64_t state) noexcept { _mm_setcsr(static_cast<unsigned>(state)); }

#elif defined(__aarch64__)

// FPCR 0: round to nearest, FZ, FZ16, DN and AH off, no traps (Arm ARM, FPCR).
constexpr uint64_t kDefaultState = 0;
uint64_t read_state() noexcept {
  uint64_t state;
  asm volatile("mrs %0, fpcr" : "=r"(state)::"memory");
  return state;
}
void write_state(uint64_t state) noexcept { asm volatile("msr fpcr, %0" ::"r"(state) : "memory"); }

#else

constexpr uint64_t kDefaultState = 0;
uint64_t read_state() noexcept { return 0; }
void write_state(uint64_t) noexcept {}

#endif

}  // namespace

void set_default_float_state() noexcept { write_state(kDefaultState); }

FloatStateGuard::FloatStateGuard() noexcept : saved_(read_state()) { write_state(kDefaultState); }

FloatStateGuard::~FloatStateGuard() { write_state(saved_); }

}  // namespace engine
