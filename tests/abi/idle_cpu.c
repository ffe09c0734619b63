/* Between decodes the library's threads sleep: at most 10 ms of CPU time in a second (case 40 b). */
#define _POSIX_C_SOURCE 200809L

#include <pthread.h>
#include <time.h>

#include "abi_check.h"
#include "abi_session.h"

static double cpu_seconds(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* CPU time of the whole process in one second of sleep: what other processes do does not count. */
static double cpu_seconds_of_a_pause(void) {
  const double before = cpu_seconds(CLOCK_PROCESS_CPUTIME_ID);
  struct timespec left = {1, 0};
  while (nanosleep(&left, &left) != 0) {
  }
  return cpu_seconds(CLOCK_PROCESS_CPUTIME_ID) - before;
}

static void *spin(void *unused) {
  (void)unused;
  while (cpu_seconds(CLOCK_THREAD_CPUTIME_ID) < 0.05) {
  }
  return NULL;
}

int main(void) {
  static toy_run run;
  toy_file toy = toy_build(1, 1);
  engine_model *model = open_toy_model(&toy);
  engine_session *sessions[N_MODES];
  for (int i = 0; i < N_MODES; ++i) {
    engine_session_params params = run_params(kModes[i]);
    params.n_threads = 4;
    sessions[i] = create_session(model, &params);
    CHECK_STATUS(decode_run(sessions[i], &run), ENGINE_OK);
  }
  const double idle = cpu_seconds_of_a_pause();
  printf("%.3f ms of CPU time in a second after the decodes\n", 1e3 * idle);
  CHECK(idle <= 0.010);

  /* The threads wake up again. */
  for (int i = 0; i < N_MODES; ++i) {
    CHECK_STATUS(engine_session_truncate(sessions[i], 0), ENGINE_OK);
    CHECK_STATUS(decode_run(sessions[i], &run), ENGINE_OK);
  }

  /* The measurement sees a thread that spins. */
  pthread_t spinner;
  CHECK(pthread_create(&spinner, NULL, spin, NULL) == 0);
  const double spinning = cpu_seconds_of_a_pause();
  pthread_join(spinner, NULL);
  CHECK(spinning > 0.010);

  for (int i = 0; i < N_MODES; ++i) engine_session_destroy(sessions[i]);
  engine_model_close(model);
  free(toy.bytes);
  return abi_done();
}
