// The pool: every task once, real concurrency, sleeping and waking, state of its threads, shutdown.
#include <pthread.h>
#include <signal.h>
#include <time.h>

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstdint>
#include <memory>
#include <set>
#include <thread>
#include <vector>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "lib/base/status.h"
#include "lib/base/thread_runner.h"

namespace engine {
namespace {

std::unique_ptr<ThreadRunner> pool_of(uint32_t n_threads) {
  absl::StatusOr<std::unique_ptr<ThreadRunner>> pool = make_pool(n_threads);
  REQUIRE(pool.ok());
  return *std::move(pool);
}

// Tasks write plain memory: the sanitizer sees a missing hand-over, and a task that ran twice.
void check_runs_once(ThreadRunner& pool, uint32_t n_tasks) {
  std::vector<uint32_t> runs(n_tasks, 0);
  parallel_for(pool, n_tasks, [&](uint32_t i) { ++runs[i]; });
  uint64_t sum = 0;
  for (const uint32_t n : runs) sum += n == 1;
  REQUIRE(sum == n_tasks);
}

// Runs f once on every thread of the pool: each task waits for all others.
template <class F>
bool on_every_thread(ThreadRunner& pool, F f) {
  std::atomic<uint32_t> n_arrived{0};
  std::atomic<bool> gave_up{false};
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  parallel_for(pool, pool.n_threads(), [&](uint32_t i) {
    f(i);
    ++n_arrived;
    while (n_arrived < pool.n_threads() && !gave_up) {
      if (std::chrono::steady_clock::now() > deadline) gave_up = true;
      std::this_thread::yield();
    }
  });
  return !gave_up;
}

double process_cpu_seconds() {
  timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

void sleep_us(int us) { std::this_thread::sleep_for(std::chrono::microseconds(us)); }

}  // namespace

TEST_CASE("thread_runner_pool: every task runs once, for any number of threads and tasks") {
  for (uint32_t n_threads = 1; n_threads <= 8; ++n_threads) {
    const auto pool = pool_of(n_threads);
    CHECK(pool->n_threads() == n_threads);
    for (const uint32_t n_tasks : {0u, 1u, 2u, 3u, 7u, 8u, 9u, 100u, 3000u}) {
      check_runs_once(*pool, n_tasks);
    }
  }
}

TEST_CASE("thread_runner_pool: as many tasks as threads run at once, on distinct threads") {
  for (const uint32_t n_threads : {2u, 3u, 8u}) {
    const auto pool = pool_of(n_threads);
    for (int round = 0; round < 20; ++round) {
      std::vector<std::thread::id> ids(n_threads);
      REQUIRE(on_every_thread(*pool, [&](uint32_t i) { ids[i] = std::this_thread::get_id(); }));
      const std::set<std::thread::id> distinct(ids.begin(), ids.end());
      CHECK(distinct.size() == n_threads);
      CHECK(distinct.count(std::this_thread::get_id()) == 1);
      if (round % 5 == 0) sleep_us(1000);
    }
  }
}

TEST_CASE("thread_runner_pool: many small runs, the tasks' data on the caller's stack") {
  for (const uint32_t n_threads : {2u, 4u}) {
    const auto pool = pool_of(n_threads);
    uint64_t wrong = 0;
    for (uint32_t run = 0; run < 20000; ++run) {
      uint32_t seen[5] = {};
      const uint32_t n_tasks = 1 + run % 5;
      parallel_for(*pool, n_tasks, [&, run](uint32_t i) { seen[i] += run + i + 1; });
      for (uint32_t i = 0; i < 5; ++i) wrong += seen[i] != (i < n_tasks ? run + i + 1 : 0);
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("thread_runner_pool: sleeping and waking around the spin time") {
  const auto pool = pool_of(4);
  for (int run = 0; run < 1500; ++run) {
    // Gaps and tasks shorter than, about, and longer than the 50 us that threads spin.
    const int gap_us = (run * 7) % 120;
    if (gap_us > 10) sleep_us(gap_us);
    std::vector<int> runs(6, 0);
    parallel_for(*pool, 6, [&](uint32_t i) {
      if ((run + static_cast<int>(i)) % 16 == 0) sleep_us(gap_us + 20);
      ++runs[i];
    });
    REQUIRE(runs == std::vector<int>(6, 1));
  }
}

TEST_CASE("thread_runner_pool: a run from inside a task runs serially on its thread") {
  const auto pool = pool_of(4);
  for (int round = 0; round < 50; ++round) {
    std::vector<std::vector<std::thread::id>> ids(8, std::vector<std::thread::id>(5));
    std::vector<std::thread::id> outer(8);
    parallel_for(*pool, 8, [&](uint32_t i) {
      outer[i] = std::this_thread::get_id();
      parallel_for(*pool, 5, [&](uint32_t j) { ids[i][j] = std::this_thread::get_id(); });
    });
    for (size_t i = 0; i < 8; ++i) {
      REQUIRE(ids[i] == std::vector<std::thread::id>(5, outer[i]));
    }
    check_runs_once(*pool, 100);
  }
}

TEST_CASE("thread_runner_pool: two callers at once are both served") {
  const auto pool = pool_of(3);
  std::atomic<uint64_t> wrong{0};
  const auto caller = [&] {
    for (int run = 0; run < 2000; ++run) {
      uint32_t seen[4] = {};
      parallel_for(*pool, 4, [&](uint32_t i) { ++seen[i]; });
      for (const uint32_t n : seen) wrong += n != 1;
    }
  };
  std::thread other(caller);
  caller();
  other.join();
  CHECK(wrong == 0);
}

TEST_CASE("thread_runner_pool: destroyed while spinning, asleep, or never used") {
  for (int round = 0; round < 120; ++round) {
    const auto pool = pool_of(1 + static_cast<uint32_t>(round) % 6);
    if (round % 3 != 0) check_runs_once(*pool, 16);
    if (round % 4 == 1) sleep_us(40 + round);
    if (round % 4 == 2) sleep_us(1500);
  }
}

TEST_CASE("thread_runner_pool: idle threads use no CPU time") {
  const auto pool = pool_of(8);
  for (int run = 0; run < 200; ++run) check_runs_once(*pool, 64);
  const double before = process_cpu_seconds();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  CHECK(process_cpu_seconds() - before <= 0.010);
}

TEST_CASE("thread_runner_pool: its threads take no signals but those of faults") {
  sigset_t before, saved;
  sigemptyset(&before);
  sigaddset(&before, SIGUSR2);
  pthread_sigmask(SIG_SETMASK, &before, &saved);
  const auto pool = pool_of(4);
  sigset_t after;
  pthread_sigmask(SIG_SETMASK, nullptr, &after);
  pthread_sigmask(SIG_SETMASK, &saved, nullptr);
  for (int s = 1; s < 32; ++s) CHECK(sigismember(&before, s) == sigismember(&after, s));
  std::vector<sigset_t> masks(4);
  std::vector<int> is_caller(4, 0);
  const std::thread::id caller = std::this_thread::get_id();
  REQUIRE(on_every_thread(*pool, [&](uint32_t i) {
    pthread_sigmask(SIG_SETMASK, nullptr, &masks[i]);
    is_caller[i] = std::this_thread::get_id() == caller;
  }));
  for (size_t i = 0; i < 4; ++i) {
    if (is_caller[i]) continue;
    for (const int s : {SIGINT, SIGTERM, SIGALRM, SIGUSR1, SIGCHLD, SIGPIPE}) {
      CHECK(sigismember(&masks[i], s) == 1);
    }
    for (const int s : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) CHECK(sigismember(&masks[i], s) == 0);
  }
}

#if defined(__x86_64__)
TEST_CASE("thread_runner_pool: its threads have IEEE float state, whatever the creator has") {
  const unsigned before = _mm_getcsr();
  _mm_setcsr(0x1F80 | 0x8000 | 0x40);  // flush to zero, denormals are zero
  const auto pool = pool_of(4);
  const unsigned caller_after = _mm_getcsr();
  _mm_setcsr(before);
  CHECK(caller_after == (0x1F80 | 0x8000 | 0x40));
  std::vector<unsigned> states(4);
  REQUIRE(on_every_thread(*pool, [&](uint32_t i) { states[i] = _mm_getcsr(); }));
  for (const unsigned state : states) CHECK((state & ~0x3Fu) == 0x1F80);
}
#endif

TEST_CASE("thread_runner_pool: a count that makes no sense is refused") {
  for (const uint32_t n_threads : {0u, 4097u, UINT32_MAX}) {
    CHECK(code_of(make_pool(n_threads).status()) == Code::kArgument);
  }
}

}  // namespace engine
