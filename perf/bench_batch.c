/* bench_batch: tokens per second of 1, 4 and 8 sessions in one batch, and what a fork costs. */
#define _POSIX_C_SOURCE 200809L

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "allocation_count.h"
#include "common/cli.h"
#include "engine.h"

static const char kUsage[] =
    "bench_batch MODEL [options]: decoding several sessions at once\n"
    "\n"
    "  --tokens N        measured tokens of each session (default 32)\n"
    "  --prompt-tokens N length of the prompt that they fork from (default 64)\n"
    "  --repeats N       rounds; the best counts, in turns (default 5)\n"
    "  --threads N       threads (default: all cores that this process may use)\n"
    "  --forks           also: time and memory of a fork at that length\n"
    "\n"
    "Columns: sessions, tok/s of all together, of each, and gain over one session by itself.\n"
    "Every session's last logits are compared, by bits, with those of its solo run.\n"
    "\n"
    "Example: bench_batch model.gguf --threads 1\n";

enum { MAX_SESSIONS = 8 };
static const int kCounts[] = {1, 2, 4, 8};
enum { N_COUNTS = sizeof(kCounts) / sizeof(kCounts[0]) };

typedef struct batch_bench {
  uint32_t tokens, prompt_tokens, repeats;
  int32_t forks;
  engine_session_params params;
  engine_model_info info;
  engine_session *root;
  float *logits, *solo; /* [MAX_SESSIONS][n_vocab] */
} batch_bench;

/* A token that depends on the session and the step, not on logits: all runs do the same work. */
static int32_t token_at(const batch_bench *b, int session, uint32_t step) {
  return (int32_t)((97u * step + 31u * (uint32_t)session + 5u) % (uint32_t)b->info.n_tokens);
}

/* Seconds for all tokens of n sessions; negative: failed and reported. */
static double run_batch(batch_bench *b, int n, float *logits) {
  engine_session *sessions[MAX_SESSIONS];
  engine_batch_item items[MAX_SESSIONS];
  int32_t ids[MAX_SESSIONS];
  engine_error error = ENGINE_ERROR_INIT;
  int32_t status = ENGINE_OK;
  int n_made = 0;
  while (n_made < n && status == ENGINE_OK) {
    status = engine_session_fork(b->root, 0, &sessions[n_made], &error);
    if (status == ENGINE_OK) ++n_made;
  }
  double start = 0;
  for (uint32_t t = 0; t <= b->tokens && status == ENGINE_OK; ++t) { /* the first is not measured */
    if (t == 1) start = cli_seconds();
    for (int i = 0; i < n; ++i) {
      const engine_batch_item empty = ENGINE_BATCH_ITEM_INIT;
      ids[i] = token_at(b, i, t);
      items[i] = empty;
      items[i].session = sessions[i];
      items[i].ids = &ids[i];
      items[i].n_ids = 1;
      items[i].logits = logits + (size_t)i * (size_t)b->info.n_vocab;
    }
    status = engine_batch_decode(items, (uint64_t)n, &error);
  }
  const double seconds = cli_seconds() - start;
  for (int i = 0; i < n_made; ++i) engine_session_destroy(sessions[i]);
  if (status == ENGINE_OK) return seconds;
  cli_report("batch", status, &error);
  return -1;
}

/* The last logits of each session by itself. */
static int run_solo(batch_bench *b) {
  engine_error error = ENGINE_ERROR_INIT;
  for (int i = 0; i < MAX_SESSIONS; ++i) {
    engine_session *session = NULL;
    int32_t status = engine_session_fork(b->root, 0, &session, &error);
    for (uint32_t t = 0; t <= b->tokens && status == ENGINE_OK; ++t) {
      const int32_t id = token_at(b, i, t);
      status = engine_session_decode(session, &id, 1, b->solo + (size_t)i * (size_t)b->info.n_vocab,
                                     &error);
    }
    engine_session_destroy(session);
    if (status != ENGINE_OK) return cli_report("solo", status, &error);
  }
  return CLI_OK;
}

static int run_rows(batch_bench *b) {
  double best[N_COUNTS] = {0};
  int code = run_solo(b);
  for (uint32_t r = 0; r < b->repeats && code == CLI_OK; ++r) {
    for (int c = 0; c < N_COUNTS && code == CLI_OK; ++c) {
      const int n = kCounts[c];
      const double seconds = run_batch(b, n, b->logits);
      if (seconds < 0) return CLI_FAILED;
      const double rate = (double)n * b->tokens / seconds;
      best[c] = rate > best[c] ? rate : best[c];
      if (memcmp(b->logits, b->solo, (size_t)n * (size_t)b->info.n_vocab * sizeof(float)) != 0) {
        cli_message("logits of %d sessions differ from their solo runs", n);
        code = CLI_FAILED;
      }
    }
  }
  printf("sessions   tok/s   each    gain\n");
  for (int c = 0; c < N_COUNTS; ++c) {
    printf("%8d %7.1f %6.1f %6.2fx\n", kCounts[c], best[c], best[c] / kCounts[c],
           best[c] / best[0]);
  }
  return code;
}

static int measure_forks(batch_bench *b) {
  enum { N = 64 };
  engine_session *forks[N];
  engine_error error = ENGINE_ERROR_INIT;
  double best = 1e9, total = 0;
  const int64_t bytes_before = allocation_bytes();
  int n = 0;
  int32_t status = ENGINE_OK;
  while (n < N && status == ENGINE_OK) {
    const double start = cli_seconds();
    status = engine_session_fork(b->root, 0, &forks[n], &error);
    const double seconds = cli_seconds() - start;
    best = seconds < best ? seconds : best;
    total += seconds;
    if (status == ENGINE_OK) ++n;
  }
  const int64_t bytes = allocation_bytes() - bytes_before;
  for (int i = 0; i < n; ++i) engine_session_destroy(forks[i]);
  if (status != ENGINE_OK) return cli_report("fork", status, &error);
  printf("fork at %" PRIu64 " tokens: best %.1f us, mean %.1f us, %.1f KiB each\n",
         engine_session_position(b->root), 1e6 * best, 1e6 * total / N, (double)bytes / N / 1024);
  return CLI_OK;
}

static int prepare(batch_bench *b, engine_model *model) {
  engine_error error = ENGINE_ERROR_INIT;
  const engine_model_info empty = ENGINE_MODEL_INFO_INIT;
  b->info = empty;
  int32_t status = engine_model_info_get(model, &b->info);
  if (status != ENGINE_OK) return cli_report("model", status, NULL);
  b->params.n_ctx = b->prompt_tokens + b->tokens + 1;
  status = engine_session_create(model, &b->params, &b->root, &error);
  if (status != ENGINE_OK) return cli_report("session", status, &error);
  const uint64_t n_bytes = (uint64_t)MAX_SESSIONS * (uint64_t)b->info.n_vocab * sizeof(float);
  b->logits = cli_allocate(n_bytes);
  b->solo = cli_allocate(n_bytes);
  int32_t *ids = cli_allocate(b->prompt_tokens * sizeof(int32_t));
  for (uint32_t i = 0; i < b->prompt_tokens; ++i) ids[i] = token_at(b, 0, i);
  status = engine_session_decode(b->root, ids, b->prompt_tokens, NULL, &error);
  free(ids);
  return status == ENGINE_OK ? CLI_OK : cli_report("prompt", status, &error);
}

int main(int argc, char **argv) {
  batch_bench b = {32,   64,   5,   0, ENGINE_SESSION_PARAMS_INIT, ENGINE_MODEL_INFO_INIT,
                   NULL, NULL, NULL};
  const char *path = NULL;
  const cli_option options[] = {
      {"--tokens", "-n", CLI_COUNT, &b.tokens, NULL},
      {"--prompt-tokens", NULL, CLI_COUNT, &b.prompt_tokens, NULL},
      {"--repeats", NULL, CLI_COUNT, &b.repeats, NULL},
      {"--threads", "-t", CLI_COUNT, &b.params.n_threads, NULL},
      {"--forks", NULL, CLI_FLAG, &b.forks, NULL},
  };
  cli_parse(argc, argv, kUsage, options, sizeof(options) / sizeof(options[0]), &path);
  if (b.tokens < 1 || b.prompt_tokens < 1 || b.repeats < 1) cli_usage_error("a count is 0");
  engine_error error = ENGINE_ERROR_INIT;
  engine_model_params params = ENGINE_MODEL_PARAMS_INIT;
  engine_model *model = NULL;
  params.path = path;
  const int32_t status = engine_model_open(&params, &model, &error);
  if (status != ENGINE_OK) return cli_report(path, status, &error);
  int code = prepare(&b, model);
  if (code == CLI_OK && b.forks) code = measure_forks(&b);
  if (code == CLI_OK) code = run_rows(&b);
  engine_session_destroy(b.root);
  engine_model_close(model);
  free(b.logits);
  free(b.solo);
  return code;
}
