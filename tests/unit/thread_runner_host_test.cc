// The host runner: what reaches the host, and the float state its threads get.
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <thread>
#include <vector>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "lib/base/thread_runner.h"

namespace engine {
namespace {

struct Host {
  int n_calls = 0;
  uint32_t last_n_tasks = 0;

  // Runs the tasks backwards, each on a thread of its own.
  static void parallel_for(void* user, uint32_t n_tasks, void (*task)(void*, uint32_t),
                           void* data) {
    Host& host = *static_cast<Host*>(user);
    ++host.n_calls;
    host.last_n_tasks = n_tasks;
    std::vector<std::thread> threads;
    for (uint32_t i = n_tasks; i-- > 0;) threads.emplace_back([=] { task(data, i); });
    for (std::thread& thread : threads) thread.join();
  }
};

}  // namespace

TEST_CASE("thread_runner_host: all tasks reach the host, once") {
  Host host;
  const auto runner = make_host_runner(&host, Host::parallel_for, 3);
  CHECK(runner->n_threads() == 3);
  CHECK(make_host_runner(&host, Host::parallel_for, 0)->n_threads() == 1);
  for (const uint32_t n_tasks : {2u, 3u, 20u}) {
    std::vector<int> runs(n_tasks, 0);
    parallel_for(*runner, n_tasks, [&](uint32_t i) { ++runs[i]; });
    CHECK(runs == std::vector<int>(n_tasks, 1));
    CHECK(host.last_n_tasks == n_tasks);
  }
  CHECK(host.n_calls == 3);
}

TEST_CASE("thread_runner_host: no task does not reach the host, a single one runs on the caller") {
  Host host;
  const auto runner = make_host_runner(&host, Host::parallel_for, 2);
  int n_runs = 0;
  parallel_for(*runner, 0, [&](uint32_t) { ++n_runs; });
  CHECK(n_runs == 0);
  parallel_for(*runner, 1, [&](uint32_t i) { n_runs += i == 0 ? 1 : 100; });
  CHECK(n_runs == 1);
  CHECK(host.n_calls == 0);
}

#if defined(__x86_64__)
TEST_CASE("thread_runner_host: tasks have IEEE float state, the host keeps its own") {
  constexpr unsigned kFlushing = 0x1F80 | 0x8000 | 0x40;
  struct Serial {
    static void run(void*, uint32_t n_tasks, void (*task)(void*, uint32_t), void* data) {
      for (uint32_t i = 0; i < n_tasks; ++i) task(data, i);
    }
  };
  const auto runner = make_host_runner(nullptr, Serial::run, 2);
  const unsigned before = _mm_getcsr();
  for (const uint32_t n_tasks : {1u, 2u}) {
    std::vector<unsigned> seen(n_tasks);
    _mm_setcsr(kFlushing);
    parallel_for(*runner, n_tasks, [&](uint32_t i) { seen[i] = _mm_getcsr(); });
    const unsigned after = _mm_getcsr();
    _mm_setcsr(before);
    CHECK(seen == std::vector<unsigned>(n_tasks, 0x1F80));
    CHECK(after == kFlushing);
  }
}
#endif

}  // namespace engine
