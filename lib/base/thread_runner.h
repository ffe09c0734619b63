// Runs numbered tasks on several threads: the library's own pool, or the host's runner.
#ifndef ENGINE_LIB_BASE_THREAD_RUNNER_H_
#define ENGINE_LIB_BASE_THREAD_RUNNER_H_

#include <cstdint>
#include <memory>
#include <type_traits>

#include "absl/status/statusor.h"

namespace engine {

// A task must not let an exception out.
using TaskFn = void (*)(void* data, uint32_t index);

class ThreadRunner {
 public:
  virtual ~ThreadRunner();
  // Tasks that run at once, the caller included.
  virtual uint32_t n_threads() const = 0;
  // Calls task(data, i) once for every i in [0, n_tasks), in any order; blocks until all have
  // returned. One call at a time. The pool runs a call made from inside a task, or while another
  // thread is in a call, serially on its own caller; a host runner hands it to the host.
  virtual void run(uint32_t n_tasks, TaskFn task, void* data) = 0;
};

// run() of a callable f(uint32_t index), which stays on the caller's stack: nothing is allocated.
template <class F>
void parallel_for(ThreadRunner& runner, uint32_t n_tasks, F&& f) {
  using Callable = std::remove_reference_t<F>;
  runner.run(
      n_tasks, [](void* data, uint32_t index) { (*static_cast<Callable*>(data))(index); },
      const_cast<void*>(static_cast<const void*>(std::addressof(f))));
}

// The caller and n_threads - 1 own threads, which are joined in the destructor. Own threads have
// the IEEE default float state and take no asynchronous signals; the caller's float state is left
// alone (FloatStateGuard). run() allocates nothing.
absl::StatusOr<std::unique_ptr<ThreadRunner>> make_pool(uint32_t n_threads);

// Runs through the host's parallel_for. Every task runs in the IEEE default float state and the
// host's thread gets its own back. n_threads 0 means 1.
std::unique_ptr<ThreadRunner> make_host_runner(
    void* user,
    void (*host_parallel_for)(void* user, uint32_t n_tasks, void (*task)(void*, uint32_t),
                              void* data),
    uint32_t n_threads);

// CPUs that this process may use: its affinity mask, limited by the CPU quota of its control group
// (a part of a CPU counts as one); at least 1. See thread_count.h.
uint32_t default_thread_count();

}  // namespace engine

#endif  // ENGINE_LIB_BASE_THREAD_RUNNER_H_
