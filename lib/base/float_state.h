// The thread's float control state: IEEE defaults while a guard lives, the host's own afterwards.
#ifndef ENGINE_LIB_BASE_FLOAT_STATE_H_
#define ENGINE_LIB_BASE_FLOAT_STATE_H_

#include <cstdint>

namespace engine {

// Round to nearest even, no flush to zero, no denormals-are-zero, no trapping exceptions (MXCSR on
// x86, FPCR on AArch64; elsewhere nothing is done). One answer everywhere needs it: a host that
// flushes denormals would get other logits.
void set_default_float_state() noexcept;

// Saves the state, sets the default, restores what was saved, exception flags included.
class FloatStateGuard {
 public:
  FloatStateGuard() noexcept;
  ~FloatStateGuard();
  FloatStateGuard(const FloatStateGuard&) = delete;
  FloatStateGuard& operator=(const FloatStateGuard&) = delete;

 private:
  uint64_t saved_;
};

}  // namespace engine

#endif  // ENGINE_LIB_BASE_FLOAT_STATE_H_
