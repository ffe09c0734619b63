// The library's own threads: they spin briefly for the next call, then sleep.
//
// Hand-over without a lock while the threads spin. `state_` packs the number of the call (upper
// half) with how many of its tasks are not yet claimed (lower half). A thread claims a task by
// lowering state_ by one, and only then reads the call's task and data: they cannot change before
// it has finished, because run() returns only when all claimed tasks have. A late thread that still
// holds the state of an earlier call fails its compare-exchange, since the number differs.
//
// Sleeping: who goes to sleep first announces it, then looks again; who publishes work first
// publishes, then looks for sleepers. All four are sequentially consistent, so one of the two sees
// the other.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#if defined(__linux__)
#include <pthread.h>
#endif
#if defined(__x86_64__) || defined(_M_X64) || defined(__SSE__)
#include <xmmintrin.h>
#endif

#include "lib/base/block_signals.h"
#include "lib/base/float_state.h"
#include "lib/base/status.h"
#include "lib/base/thread_runner.h"

namespace engine {
namespace {

// A spinning hand-over costs 0.4 us, a sleeping one 3 to 74 us (measured; performance design). The
// gaps between the calls of one token are below this; idle threads burn no more than this after it.
constexpr std::chrono::microseconds kSpin{50};
constexpr int kPausesPerClockRead = 16;
constexpr uint32_t kMaxThreads = 4096;

void pause_cpu() {
#if defined(__x86_64__) || defined(_M_X64) || defined(__SSE__)
  _mm_pause();
#elif defined(__aarch64__) && defined(__GNUC__)
  asm volatile("isb" ::: "memory");  // "yield" is no pause on most cores
#endif
}

// Until done() or the spin time is over; the last value of done().
template <class Done>
bool spin_until(Done done) {
  const auto end = std::chrono::steady_clock::now() + kSpin;
  for (;;) {
    for (int i = 0; i < kPausesPerClockRead; ++i) {
      if (done()) return true;
      pause_cpu();
    }
    if (std::chrono::steady_clock::now() >= end) return done();
  }
}

class Pool final : public ThreadRunner {
 public:
  Pool() = default;

  // Throws what std::thread and std::vector throw; the destructor joins the threads that started.
  void start(uint32_t n_own) {
    const BlockSignals block;
    threads_.reserve(n_own);
    for (uint32_t i = 0; i < n_own; ++i) threads_.emplace_back([this] { work(); });
  }

  ~Pool() override {
    stop_.store(true);
    { const std::lock_guard<std::mutex> lock(mutex_); }
    wake_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  uint32_t n_threads() const override { return static_cast<uint32_t>(threads_.size()) + 1; }

  void run(uint32_t n_tasks, TaskFn task, void* data) override {
    if (n_tasks == 0) return;
    if (n_tasks == 1 || threads_.empty() || busy_.exchange(true)) {
      for (uint32_t i = 0; i < n_tasks; ++i) task(data, i);
      return;
    }
    task_ = task;
    data_ = data;
    n_tasks_ = n_tasks;
    unfinished_.store(n_tasks);
    ++call_;
    state_.store((uint64_t{call_} << 32) | n_tasks);
    wake_sleepers(n_tasks - 1);
    while (run_one()) {
    }
    wait_finished();
    busy_.store(false);
  }

 private:
  bool has_work() const { return static_cast<uint32_t>(state_.load()) != 0; }

  // Claims and runs one task; false when none is left.
  bool run_one() {
    uint64_t state = state_.load();
    do {
      if (static_cast<uint32_t>(state) == 0) return false;
    } while (!state_.compare_exchange_weak(state, state - 1));
    task_(data_, n_tasks_ - static_cast<uint32_t>(state));
    if (unfinished_.fetch_sub(1) == 1 && caller_sleeps_.load()) {
      { const std::lock_guard<std::mutex> lock(mutex_); }
      finished_.notify_one();
    }
    return true;
  }

  void work() noexcept {
    set_default_float_state();
#if defined(__linux__)
    pthread_setname_np(pthread_self(), "engine-pool");
#endif
    const auto ready = [this] { return has_work() || stop_.load(); };
    for (;;) {
      while (run_one()) {
      }
      if (!spin_until(ready)) {
        std::unique_lock<std::mutex> lock(mutex_);
        sleepers_.fetch_add(1);
        wake_.wait(lock, ready);
        sleepers_.fetch_sub(1);
      }
      if (stop_.load()) return;
    }
  }

  void wake_sleepers(uint32_t n_wanted) {
    const uint32_t n_sleepers = sleepers_.load();
    if (n_sleepers == 0) return;
    { const std::lock_guard<std::mutex> lock(mutex_); }
    if (n_wanted >= n_sleepers) {
      wake_.notify_all();
    } else {
      for (uint32_t i = 0; i < n_wanted; ++i) wake_.notify_one();
    }
  }

  void wait_finished() {
    const auto finished = [this] { return unfinished_.load() == 0; };
    if (spin_until(finished)) return;
    std::unique_lock<std::mutex> lock(mutex_);
    caller_sleeps_.store(true);
    finished_.wait(lock, finished);
    caller_sleeps_.store(false);
  }

  // Written by the caller between calls, read after a claim.
  TaskFn task_ = nullptr;
  void* data_ = nullptr;
  uint32_t n_tasks_ = 0;
  uint32_t call_ = 0;
  std::vector<std::thread> threads_;

  // On lines of their own: all threads write them.
  alignas(64) std::atomic<uint64_t> state_{0};
  alignas(64) std::atomic<uint32_t> unfinished_{0};
  alignas(64) std::atomic<uint32_t> sleepers_{0};
  std::atomic<bool> caller_sleeps_{false};
  std::atomic<bool> busy_{false};
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable finished_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ThreadRunner>> make_pool(uint32_t n_threads) {
  if (n_threads == 0 || n_threads > kMaxThreads) {
    return error(Code::kArgument, "n_threads is not in 1 .. " + std::to_string(kMaxThreads));
  }
  try {
    auto pool = std::make_unique<Pool>();
    pool->start(n_threads - 1);
    return std::unique_ptr<ThreadRunner>(std::move(pool));
  } catch (const std::exception&) {
    return error(Code::kMemory, "cannot start " + std::to_string(n_threads - 1) + " threads");
  }
}

}  // namespace engine
