// One sequence's share of a call: its tokens, where their rows lie, its pages and hooks, and how it fares.
#ifndef ENGINE_LIB_SESSION_SEQUENCE_ROWS_H_
#define ENGINE_LIB_SESSION_SEQUENCE_ROWS_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

#include "lib/base/status.h"
#include "lib/contract/plan.h"
#include "lib/session/call_progress.h"
#include "lib/session/hooks.h"
#include "lib/session/profile.h"

namespace engine {

// What has run for a session: executions per row of kernel_rows() and per fusion.
struct RunCounters {
  std::vector<uint64_t> kernels;
  std::array<uint64_t, kNumFusions> fusions{};
};

// A flag that only ever falls, from any thread; a copy has the value of that moment.
class FiniteFlag {
 public:
  FiniteFlag() = default;
  FiniteFlag(const FiniteFlag& other) : value_(other.value()) {}
  FiniteFlag& operator=(const FiniteFlag& other) {
    value_.store(other.value(), std::memory_order_relaxed);
    return *this;
  }
  bool value() const { return value_.load(std::memory_order_relaxed); }
  void fall() { value_.store(false, std::memory_order_relaxed); }

 private:
  std::atomic<bool> value_{true};
};

struct SequenceRows {
  const int32_t* ids = nullptr;  // [n_rows]
  int64_t n_rows = 0;
  int64_t first_position = 0;
  int64_t n_ctx = 0;      // of the session: which rope table holds
  int64_t first_row = 0;  // of every value of the run
  int64_t n_before = 0;   // tokens of its call that went through in earlier runs
  uint8_t* const* pages = nullptr;
  Hooks* hooks = nullptr;  // nullptr: fires nothing
  RunCounters* counters = nullptr;
  Profile* profile = nullptr;        // nullptr: not measured
  CallProgress* progress = nullptr;  // nullptr: not told
  bool (*should_stop)(const void* state) = nullptr;
  const void* stop_state = nullptr;

  FiniteFlag finite;  // falls when a value of its rows is not finite
  absl::Status
      status;  // not ok: the sequence has left the call; its rows go through, and mean nothing

  bool is_in() const { return status.ok(); }
  bool stop_asked() const { return should_stop != nullptr && should_stop(stop_state); }
  HookRows hook_rows() const { return {ids, n_rows, first_position}; }
};

}  // namespace engine

#endif  // ENGINE_LIB_SESSION_SEQUENCE_ROWS_H_
