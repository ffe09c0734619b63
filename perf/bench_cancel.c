/* bench_cancel: how soon a cancelled prefill returns, and how often its progress is told. */
#define _POSIX_C_SOURCE 200809L

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/cli.h"
#include "engine.h"

static const char kUsage[] =
    "bench_cancel MODEL [options]: how soon a cancelled prefill returns\n"
    "\n"
    "  --prompt-tokens N length of the prompt (default 4096, at most what the model was trained "
    "for)\n"
    "  --trials N        cancelled prefills (default 100)\n"
    "  --within SECONDS  cancels come at random in this time (default 3)\n"
    "  --threads N       threads (default: all cores that this process may use)\n"
    "\n"
    "Prints the time from engine_session_cancel to the return of the decode: median, p99 and "
    "largest\n"
    "(bar: p99 20 ms on a model of 1 B weights), and the longest silence of the progress callback "
    "(bar:\n"
    "100 ms). Half of the cancels come behind a prefix of three quarters of the prompt, where "
    "attention\n"
    "is longest.\n"
    "\n"
    "Example: bench_cancel model.gguf --threads 2\n";

typedef struct cancel_bench {
  uint32_t prompt_tokens, trials;
  float within;
  engine_session_params params;
  engine_session *session;
  double cancel_after, cancelled_at; /* seconds; set by the canceller */
  double told_at, longest_silence;   /* of progress */
  uint64_t last_done;
  int n_backwards;
} cancel_bench;

static void on_progress(void *user, int32_t phase, uint64_t done, uint64_t total) {
  cancel_bench *b = user;
  const double now = cli_seconds();
  (void)total;
  if (phase != ENGINE_PHASE_PREFILL) return;
  if (now - b->told_at > b->longest_silence) b->longest_silence = now - b->told_at;
  b->n_backwards += done < b->last_done;
  b->told_at = now;
  b->last_done = done;
}

static void *cancel_later(void *argument) {
  cancel_bench *b = argument;
  struct timespec pause;
  pause.tv_sec = (time_t)b->cancel_after;
  pause.tv_nsec = (long)(1e9 * (b->cancel_after - (double)pause.tv_sec));
  nanosleep(&pause, NULL);
  b->cancelled_at = cli_seconds();
  engine_session_cancel(b->session);
  return NULL;
}

static int compare_doubles(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double next_unit(uint32_t *random) {
  *random = *random * 1664525u + 1013904223u;
  return (double)(*random >> 8) / 16777216.0;
}

/* Appends the cancelled trials' latencies, seconds; returns how many. */
static uint32_t run_trials(cancel_bench *b, const int32_t *ids, double *latencies) {
  uint32_t random = 7, n = 0;
  const uint64_t long_prefix = b->prompt_tokens / 4 * 3;
  for (uint32_t trial = 0; trial < b->trials; ++trial) {
    engine_error error = ENGINE_ERROR_INIT;
    pthread_t thread;
    int32_t status = ENGINE_OK;
    if (trial == 0 || trial == b->trials / 2) {
      (void)engine_session_truncate(b->session, 0);
      b->told_at = cli_seconds();
      b->last_done = 0;
      if (trial > 0) status = engine_session_decode(b->session, ids, long_prefix, NULL, &error);
    }
    const uint64_t at = engine_session_position(b->session);
    b->cancel_after = b->within * next_unit(&random);
    if (status == ENGINE_OK && pthread_create(&thread, NULL, cancel_later, b) == 0) {
      b->told_at = cli_seconds();
      b->last_done = 0;
      status = engine_session_decode(b->session, ids + at, b->prompt_tokens - at, NULL, &error);
      const double returned = cli_seconds();
      pthread_join(thread, NULL);
      if (status == ENGINE_CANCELLED) {
        latencies[n++] = returned - b->cancelled_at;
        status = engine_session_position(b->session) == at ? ENGINE_OK : ENGINE_INTERNAL;
      } else if (status == ENGINE_OK) {
        status = engine_session_truncate(b->session, at); /* it was quicker */
      }
    }
    if (status != ENGINE_OK) {
      cli_report("prefill", status, &error);
      return 0;
    }
  }
  return n;
}

int main(int argc, char **argv) {
  cancel_bench b;
  const engine_session_params session_params = ENGINE_SESSION_PARAMS_INIT;
  const char *path = NULL;
  memset(&b, 0, sizeof(b));
  b.prompt_tokens = 4096;
  b.trials = 100;
  b.within = 3;
  b.params = session_params;
  const cli_option options[] = {
      {"--prompt-tokens", NULL, CLI_COUNT, &b.prompt_tokens, NULL},
      {"--trials", NULL, CLI_COUNT, &b.trials, NULL},
      {"--within", NULL, CLI_REAL, &b.within, NULL},
      {"--threads", "-t", CLI_COUNT, &b.params.n_threads, NULL},
  };
  cli_parse(argc, argv, kUsage, options, sizeof(options) / sizeof(options[0]), &path);
  engine_error error = ENGINE_ERROR_INIT;
  engine_host host = ENGINE_HOST_INIT;
  engine_model_params params = ENGINE_MODEL_PARAMS_INIT;
  engine_model_info info = ENGINE_MODEL_INFO_INIT;
  engine_model *model = NULL;
  host.user = &b;
  host.progress = on_progress;
  params.path = path;
  params.host = &host;
  int32_t status = engine_model_open(&params, &model, &error);
  if (status == ENGINE_OK) status = engine_model_info_get(model, &info);
  if (status == ENGINE_OK && b.prompt_tokens > (uint32_t)info.n_ctx_train) {
    b.prompt_tokens = (uint32_t)info.n_ctx_train;
  }
  b.params.n_ctx = b.prompt_tokens;
  if (status == ENGINE_OK) status = engine_session_create(model, &b.params, &b.session, &error);
  if (status != ENGINE_OK) return cli_report(path, status, &error);
  if (b.prompt_tokens < 8 || b.trials < 2) cli_usage_error("a count is too small");
  int32_t *ids = cli_allocate(b.prompt_tokens * sizeof(int32_t));
  double *latencies = cli_allocate(b.trials * sizeof(double));
  for (uint32_t i = 0; i < b.prompt_tokens; ++i) {
    ids[i] = (int32_t)((97u * i + 5u) % (uint32_t)info.n_tokens);
  }
  const uint32_t n = run_trials(&b, ids, latencies);
  if (n > 0) {
    qsort(latencies, n, sizeof(double), compare_doubles);
    printf("%u of %u cancelled: median %.1f ms, p99 %.1f ms, largest %.1f ms\n", n, b.trials,
           1e3 * latencies[n / 2], 1e3 * latencies[(n * 99 - 1) / 100], 1e3 * latencies[n - 1]);
    printf("progress: longest silence %.1f ms, %d times backwards\n", 1e3 * b.longest_silence,
           b.n_backwards);
  }
  free(ids);
  free(latencies);
  engine_session_destroy(b.session);
  engine_model_close(model);
  return n > 0 && b.n_backwards == 0 ? CLI_OK : CLI_FAILED;
}
