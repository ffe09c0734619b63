// The host's runner, and what all runners share. The pool is in thread_pool.cc.
#include "lib/base/thread_runner.h"

#include <algorithm>

#include "lib/base/float_state.h"

namespace engine {
namespace {

class HostRunner final : public ThreadRunner {
 public:
  using HostParallelFor = void (*)(void* user, uint32_t n_tasks, void (*task)(void*, uint32_t),
                                   void* data);

  HostRunner(void* user, HostParallelFor host_parallel_for, uint32_t n_threads)
      : user_(user), host_parallel_for_(host_parallel_for), n_threads_(std::max(n_threads, 1u)) {}

  uint32_t n_threads() const override { return n_threads_; }

  void run(uint32_t n_tasks, TaskFn task, void* data) override {
    Job job{task, data};
    if (n_tasks == 1) {
      run_task(&job, 0);
    } else if (n_tasks > 1) {
      host_parallel_for_(user_, n_tasks, run_task, &job);
    }
  }

 private:
  struct Job {
    TaskFn task;
    void* data;
  };

  static void run_task(void* job, uint32_t index) {
    const FloatStateGuard guard;
    const Job& j = *static_cast<const Job*>(job);
    j.task(j.data, index);
  }

  void* user_;
  HostParallelFor host_parallel_for_;
  uint32_t n_threads_;
};

}  // namespace

ThreadRunner::~ThreadRunner() = default;

std::unique_ptr<ThreadRunner> make_host_runner(
    void* user,
    void (*host_parallel_for)(void* user, uint32_t n_tasks, void (*task)(void*, uint32_t),
                              void* data),
    uint32_t n_threads) {
  return std::make_unique<HostRunner>(user, host_parallel_for, n_threads);
}

}  // namespace engine
