/* A host with its own allocator, log, runner, clock and progress: used, balanced, and never changing a logit. */
#define _POSIX_C_SOURCE 200809L

#include <pthread.h>

#include "abi_check.h"
#include "abi_toy.h"
#include "engine.h"

enum { N_RUNNERS = 3, N_IDS = 40, MAX_BLOCKS = 4096 };

typedef struct block {
  void *address;
  uint64_t n_bytes, alignment;
} block;

typedef struct host_state {
  pthread_mutex_t mutex;
  block blocks[MAX_BLOCKS];
  uint64_t n_allocated, n_released, n_wrong_releases, live_bytes, most_live_bytes;
  uint64_t fail_after; /* the allocation with this number fails; 0 = none */
  uint64_t n_tasks, n_runs, n_logged, n_empty_logs;
  uint64_t n_progress, n_backwards, last_done;
  int32_t last_phase;
} host_state;

static void *host_allocate(void *user, uint64_t n_bytes, uint64_t alignment) {
  host_state *host = user;
  void *result = NULL;
  pthread_mutex_lock(&host->mutex);
  ++host->n_allocated;
  const int fails = host->fail_after && host->n_allocated >= host->fail_after;
  const uint64_t at_least = alignment < sizeof(void *) ? sizeof(void *) : alignment;
  if (!fails && posix_memalign(&result, at_least, n_bytes ? n_bytes : 1) == 0) {
    memset(result, 0xEE, n_bytes); /* the library must not count on zeroes */
    for (int i = 0; i < MAX_BLOCKS; ++i) {
      if (host->blocks[i].address) continue;
      host->blocks[i] = (block){result, n_bytes, alignment};
      break;
    }
    host->live_bytes += n_bytes;
    if (host->live_bytes > host->most_live_bytes) host->most_live_bytes = host->live_bytes;
  } else {
    --host->n_allocated;
    if (fails) host->fail_after = 1; /* and all later ones */
    result = NULL;
  }
  pthread_mutex_unlock(&host->mutex);
  return result;
}

static void host_release(void *user, void *address, uint64_t n_bytes, uint64_t alignment) {
  host_state *host = user;
  int found = 0;
  pthread_mutex_lock(&host->mutex);
  for (int i = 0; i < MAX_BLOCKS && !found; ++i) {
    block *b = &host->blocks[i];
    if (b->address != address || !address) continue;
    found = b->n_bytes == n_bytes && b->alignment == alignment;
    b->address = NULL;
  }
  if (found) {
    ++host->n_released;
    host->live_bytes -= n_bytes;
    free(address);
  } else {
    ++host->n_wrong_releases;
  }
  pthread_mutex_unlock(&host->mutex);
}

typedef struct share {
  host_state *host;
  uint32_t n_tasks, first;
  engine_task task;
  void *task_data;
} share;

static void *run_share(void *argument) {
  const share *s = argument;
  /* backwards: any order must do */
  for (uint32_t i = s->n_tasks; i-- > 0;) {
    if (i % N_RUNNERS == s->first) s->task(s->task_data, i);
  }
  return NULL;
}

static void host_parallel_for(void *user, uint32_t n_tasks, engine_task task, void *task_data) {
  host_state *host = user;
  pthread_t threads[N_RUNNERS];
  share shares[N_RUNNERS];
  pthread_mutex_lock(&host->mutex);
  ++host->n_runs;
  host->n_tasks += n_tasks;
  pthread_mutex_unlock(&host->mutex);
  for (uint32_t i = 0; i < N_RUNNERS; ++i) {
    shares[i] = (share){host, n_tasks, i, task, task_data};
    if (pthread_create(&threads[i], NULL, run_share, &shares[i]) != 0) abort();
  }
  for (uint32_t i = 0; i < N_RUNNERS; ++i) pthread_join(threads[i], NULL);
}

static void host_log(void *user, int32_t level, const char *text, uint64_t n_bytes) {
  host_state *host = user;
  pthread_mutex_lock(&host->mutex);
  ++host->n_logged;
  if (!text || !n_bytes || level < ENGINE_LOG_ERROR || level > ENGINE_LOG_INFO)
    ++host->n_empty_logs;
  pthread_mutex_unlock(&host->mutex);
}

static void host_progress(void *user, int32_t phase, uint64_t done, uint64_t total) {
  host_state *host = user;
  pthread_mutex_lock(&host->mutex);
  ++host->n_progress;
  if (done > total || (phase == host->last_phase && done < host->last_done)) ++host->n_backwards;
  host->last_phase = phase;
  host->last_done = done;
  pthread_mutex_unlock(&host->mutex);
}

static host_state state = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* Opens the toy with this host (NULL = none) and decodes; the status of the first call that failed. */
static int32_t decode(const toy_file *toy, const engine_host *host, uint32_t n_threads,
                      float *logits, engine_session_stats *stats) {
  engine_error error = ENGINE_ERROR_INIT;
  engine_model_params params = ENGINE_MODEL_PARAMS_INIT;
  engine_session_params session_params = ENGINE_SESSION_PARAMS_INIT;
  engine_model *model = NULL;
  engine_session *session = NULL;
  int32_t ids[N_IDS];
  for (int i = 0; i < N_IDS; ++i) ids[i] = 1 + 7 * i;
  params.data = toy->bytes;
  params.length = toy->n_bytes;
  params.host = host;
  session_params.n_threads = n_threads;
  session_params.n_ctx = 2 * TOY_CTX; /* more than trained: worth a warning in the log */
  int32_t status = engine_model_open(&params, &model, &error);
  if (status == ENGINE_OK) status = engine_session_create(model, &session_params, &session, &error);
  if (status == ENGINE_OK) status = engine_session_decode(session, ids, N_IDS - 3, logits, &error);
  for (int i = 3; i > 0 && status == ENGINE_OK; --i) {
    status = engine_session_decode(session, &ids[N_IDS - i], 1, logits, &error);
  }
  if (status == ENGINE_OK) status = engine_session_stats_get(session, stats);
  engine_session_destroy(session);
  engine_model_close(model);
  return status;
}

int main(void) {
  engine_session_stats stats = ENGINE_SESSION_STATS_INIT;
  engine_host host = ENGINE_HOST_INIT;
  static float plain[TOY_VOCAB], hosted[TOY_VOCAB];
  toy_file toy = toy_build(1, 1);
  CHECK_STATUS(decode(&toy, NULL, 1, plain, &stats), ENGINE_OK);
  CHECK(plain[0] != plain[1]);

  host.user = &state;
  host.log = host_log;
  host.allocate = host_allocate;
  host.release = host_release;
  host.parallel_for = host_parallel_for;
  host.runner_threads = N_RUNNERS;
  host.progress = host_progress;
  CHECK_STATUS(decode(&toy, &host, 0, hosted, &stats), ENGINE_OK);
  CHECK(memcmp(plain, hosted, sizeof(plain)) == 0);
  CHECK(stats.n_threads == N_RUNNERS);
  CHECK(state.n_runs > 0 && state.n_tasks >= state.n_runs);
  CHECK(state.n_allocated > 0 && state.n_allocated == state.n_released);
  CHECK(state.n_wrong_releases == 0 && state.live_bytes == 0);
  CHECK(state.most_live_bytes >= stats.kv_bytes);
  CHECK(state.n_logged > 0 && state.n_empty_logs == 0);
  CHECK(state.n_progress > 0 && state.n_backwards == 0);

  /* Every allocation fails once: MEMORY, and what was there is given back. */
  const uint64_t n_all = state.n_allocated;
  for (uint64_t n = 1; n <= n_all; ++n) {
    state.n_allocated = state.n_released = 0;
    state.fail_after = n;
    CHECK_STATUS(decode(&toy, &host, 0, hosted, &stats), ENGINE_MEMORY);
    CHECK(state.n_allocated == n - 1 && state.n_released == n - 1 && state.n_wrong_releases == 0);
  }
  state.fail_after = 0;

  /* Half an allocator is a mistake. */
  host.release = NULL;
  CHECK_STATUS(decode(&toy, &host, 0, hosted, &stats), ENGINE_ARGUMENT);
  free(toy.bytes);
  return abi_done();
}
