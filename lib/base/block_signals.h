// Own threads take no signals of the host.
#ifndef ENGINE_LIB_BASE_BLOCK_SIGNALS_H_
#define ENGINE_LIB_BASE_BLOCK_SIGNALS_H_

#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#include <signal.h>
#define ENGINE_HAS_SIGMASK_ 1
#endif

namespace engine {

// While it lives, threads that are created take no signals, but for those that a fault of the
// thread itself raises: blocked, these would kill the process before the host's handler sees them.
class BlockSignals {
 public:
#if defined(ENGINE_HAS_SIGMASK_)
  BlockSignals() {
    sigset_t blocked;
    sigfillset(&blocked);
    for (const int fault : {SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP}) {
      sigdelset(&blocked, fault);
    }
    pthread_sigmask(SIG_BLOCK, &blocked, &saved_);
  }
  ~BlockSignals() { pthread_sigmask(SIG_SETMASK, &saved_, nullptr); }
  BlockSignals(const BlockSignals&) = delete;
  BlockSignals& operator=(const BlockSignals&) = delete;

 private:
  sigset_t saved_;
#endif
};

}  // namespace engine

#endif  // ENGINE_LIB_BASE_BLOCK_SIGNALS_H_
