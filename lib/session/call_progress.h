// Tells a host how far a long call is, often enough to look alive and seldom enough to cost nothing.
#ifndef ENGINE_LIB_SESSION_CALL_PROGRESS_H_
#define ENGINE_LIB_SESSION_CALL_PROGRESS_H_

#include <algorithm>
#include <cstdint>

namespace engine {

// Serial: one thread at a time.
class CallProgress {
 public:
  using TellFn = void (*)(void* user, uint64_t done, uint64_t total);
  using ClockFn = uint64_t (*)(void* user);                // nanoseconds
  static constexpr uint64_t kPeriod_ns = 50 * 1000000ull;  // half of what is promised

  // tell: nullptr = nobody wants to know.
  CallProgress(TellFn tell, void* user, ClockFn clock, void* clock_user, uint64_t total)
      : tell_(tell), user_(user), clock_(clock), clock_user_(clock_user), total_(total) {
    if (tell_ != nullptr) last_ns_ = clock_(clock_user_);
  }

  // What is done now; told when the period is over. Less than before counts as before.
  void reach(uint64_t done) {
    done_ = std::max(done_, done);
    beat();
  }
  // Nothing new, but still alive.
  void beat() {
    if (tell_ == nullptr) return;
    if (clock_(clock_user_) - last_ns_ >= kPeriod_ns) tell();
  }
  // What is done now, told at once.
  void arrive(uint64_t done) {
    done_ = std::max(done_, done);
    if (tell_ != nullptr) tell();
  }

 private:
  void tell() {
    tell_(user_, done_, total_);
    last_ns_ = clock_(clock_user_);
  }

  const TellFn tell_;
  void* const user_;
  const ClockFn clock_;
  void* const clock_user_;
  const uint64_t total_;
  uint64_t done_ = 0, last_ns_ = 0;
};

}  // namespace engine

#endif  // ENGINE_LIB_SESSION_CALL_PROGRESS_H_
