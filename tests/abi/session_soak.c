/* Sessions for a long time: 8 of 2 models on 8 threads, each equal to its solo run; then many tokens with forks,
 * batches and cancels, after which no more memory is held than before.
 *
 *   abi_session_soak [SECONDS [TOKENS]]     default: 1 second, 10,000 tokens; tests/soak.sh asks for 120 and 100,000
 */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
#if defined(__GLIBC__)
#include <malloc.h>
#endif

#include "abi_session.h"

enum { N_MODELS = 2, N_THREADS = 8, LENGTH = 120 };

typedef struct solo_run {
  int32_t ids[LENGTH];
  float logits[LENGTH][TOY_VOCAB];
} solo_run;

typedef struct worker {
  const engine_model *model;
  const solo_run *solo;
  engine_session *session; /* for the thread that cancels */
  uint32_t random;
  double until;
  uint64_t n_tokens, n_cancelled;
  int failed;
} worker;

static solo_run solos[N_MODELS];
static atomic_int stop_cancelling;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static uint32_t pick(uint32_t *random, uint32_t n) {
  *random = *random * 1664525u + 1013904223u;
  return (*random >> 8) % n;
}

static engine_session *soak_session(const engine_model *model, uint32_t n_threads) {
  engine_session_params params = ENGINE_SESSION_PARAMS_INIT;
  engine_session *session = NULL;
  params.n_ctx = LENGTH;
  params.n_threads = n_threads;
  params.prefill_chunk = 16;
  if (engine_session_create(model, &params, &session, NULL) != ENGINE_OK) abort();
  return session;
}

static void run_solo(const engine_model *model, solo_run *solo, int salt) {
  engine_session *session = soak_session(model, 1);
  for (int i = 0; i < LENGTH; ++i) solo->ids[i] = (i * 37 + salt * 11 + 1) % TOY_VOCAB;
  CHECK_STATUS(engine_session_decode_all(session, solo->ids, LENGTH, solo->logits[0], NULL),
               ENGINE_OK);
  engine_session_destroy(session);
}

/* The next n tokens of the solo run; its logits, or cancelled and undone. */
static int advance(worker *w, engine_session *session, uint64_t n) {
  float logits[TOY_VOCAB];
  const uint64_t at = engine_session_position(session);
  const int32_t status = engine_session_decode(session, w->solo->ids + at, n, logits, NULL);
  if (status == ENGINE_CANCELLED) {
    ++w->n_cancelled;
    return engine_session_position(session) == at;
  }
  w->n_tokens += n;
  return status == ENGINE_OK && engine_session_position(session) == at + n &&
         memcmp(logits, w->solo->logits[at + n - 1], sizeof(logits)) == 0;
}

/* Two tokens of a session and its fork at once. */
static int advance_both(worker *w, engine_session *session) {
  static const uint64_t kRoom = LENGTH - 1;
  const uint64_t at = engine_session_position(session);
  engine_session *fork = NULL;
  if (at >= kRoom || engine_session_fork(session, 0, &fork, NULL) != ENGINE_OK) return at >= kRoom;
  float logits[2][TOY_VOCAB];
  engine_batch_item items[2];
  for (int i = 0; i < 2; ++i) {
    items[i] = (engine_batch_item)ENGINE_BATCH_ITEM_INIT;
    items[i].session = i ? fork : session;
    items[i].ids = w->solo->ids + at;
    items[i].n_ids = 1;
    items[i].logits = logits[i];
  }
  (void)engine_batch_decode(items, 2, NULL);
  int good = 1;
  for (int i = 0; i < 2; ++i) {
    w->n_tokens += items[i].status == ENGINE_OK;
    good &= items[i].status == ENGINE_CANCELLED ||
            (items[i].status == ENGINE_OK &&
             memcmp(logits[i], w->solo->logits[at], sizeof(logits[i])) == 0);
  }
  engine_session_destroy(fork);
  return good;
}

static int one_round(worker *w, engine_session *session) {
  const uint64_t at = engine_session_position(session), left = LENGTH - at;
  const uint32_t what = pick(&w->random, 8);
  if (left == 0 || what == 0) {
    return engine_session_truncate(session, pick(&w->random, (uint32_t)at + 1)) == ENGINE_OK;
  }
  if (what == 1) return advance_both(w, session);
  if (what == 2) {
    engine_session *fork = NULL;
    if (engine_session_fork(session, 0, &fork, NULL) != ENGINE_OK) return 0;
    const int good = advance(w, fork, 1 + pick(&w->random, (uint32_t)left));
    engine_session_destroy(fork);
    return good;
  }
  return advance(w, session, what < 6 ? 1 : 1 + pick(&w->random, (uint32_t)left));
}

static void *work(void *argument) {
  worker *w = argument;
  while (now() < w->until && !w->failed) w->failed = !one_round(w, w->session);
  return NULL;
}

static void *cancel_now_and_then(void *argument) {
  worker *workers = argument;
  uint32_t random = 99;
  const struct timespec pause = {0, 200000};
  while (!atomic_load(&stop_cancelling)) {
    engine_session_cancel(workers[pick(&random, N_THREADS)].session);
    nanosleep(&pause, NULL);
  }
  return NULL;
}

static void soak_threads(engine_model *const *models, double seconds) {
  worker workers[N_THREADS];
  pthread_t threads[N_THREADS], canceller;
  uint64_t n_tokens = 0, n_cancelled = 0;
  for (int i = 0; i < N_THREADS; ++i) {
    const int m = i % N_MODELS;
    workers[i] = (worker){models[m],
                          &solos[m],
                          soak_session(models[m], 1 + (uint32_t)i % 2),
                          1000u + (uint32_t)i,
                          now() + seconds,
                          0,
                          0,
                          0};
  }
  for (int m = 0; m < N_MODELS; ++m)
    CHECK_STATUS(engine_model_prefix_cache(models[m], 1 << 20), ENGINE_OK);
  for (int i = 0; i < N_THREADS; ++i) {
    if (pthread_create(&threads[i], NULL, work, &workers[i]) != 0) abort();
  }
  if (pthread_create(&canceller, NULL, cancel_now_and_then, workers) != 0) abort();
  for (int i = 0; i < N_THREADS; ++i) pthread_join(threads[i], NULL);
  atomic_store(&stop_cancelling, 1);
  pthread_join(canceller, NULL);
  for (int i = 0; i < N_THREADS; ++i) {
    CHECK(!workers[i].failed && workers[i].n_tokens > 0);
    n_tokens += workers[i].n_tokens;
    n_cancelled += workers[i].n_cancelled;
    engine_session_destroy(workers[i].session);
  }
  for (int m = 0; m < N_MODELS; ++m)
    CHECK_STATUS(engine_model_prefix_cache(models[m], 0), ENGINE_OK);
  printf("%d threads: %llu tokens, %llu calls cancelled\n", N_THREADS, (unsigned long long)n_tokens,
         (unsigned long long)n_cancelled);
}

/* Bytes that malloc has handed out; 0 where it cannot be asked. */
static uint64_t held_bytes(void) {
#if defined(__GLIBC__) && !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
#else
  return 0;
#endif
}

static int32_t fail_in_time(void *user, const engine_hook_event *event, float *values) {
  uint32_t *countdown = user;
  (void)event, (void)values;
  return *countdown > 0 && --*countdown == 0; /* undone like a cancelled call */
}

static void soak_memory(const engine_model *model, uint64_t n_tokens) {
  engine_session *session = soak_session(model, 1);
  worker w = {model, &solos[0], session, 5, 0, 0, 0, 0};
  uint32_t countdown = 50;
  engine_hook_params hook = ENGINE_HOOK_PARAMS_INIT;
  uint64_t before = 0, after = 0, n_failed = 0, id = 0;
  hook.action = ENGINE_HOOK_READ;
  hook.site = "resid_post";
  hook.layer_end = 1;
  hook.callback = fail_in_time;
  hook.user = &countdown;
  CHECK_STATUS(engine_hook_register(session, &hook, &id, NULL), ENGINE_OK);
  for (int half = 0; half < 2; ++half) { /* the first one warms up */
    w.n_tokens = 0;
    while (w.n_tokens < (half ? n_tokens : n_tokens / 10) && !w.failed) {
      if (!one_round(&w, session)) {
        CHECK(countdown == 0);
        if (countdown != 0) return;
        countdown = 40 + pick(&w.random, 30);
        ++n_failed;
      }
    }
    CHECK_STATUS(engine_session_truncate(session, 0), ENGINE_OK);
    *(half ? &after : &before) = held_bytes();
  }
  CHECK(n_failed > 0);
  CHECK(after <= before);
  printf("%llu tokens, %llu undone: %lld bytes more than before\n", (unsigned long long)w.n_tokens,
         (unsigned long long)n_failed, (long long)(after - before));
  engine_session_destroy(session);
}

int main(int argc, char **argv) {
  const double seconds = argc > 1 ? atof(argv[1]) : 1.0;
  const uint64_t n_tokens = argc > 2 ? strtoull(argv[2], NULL, 10) : 10000;
  toy_file files[N_MODELS];
  engine_model *models[N_MODELS];
  for (int m = 0; m < N_MODELS; ++m) {
    files[m] = toy_build(1, 1);
    for (int i = 0; i < m; ++i) files[m].bytes[files[m].n_bytes - 2 - 4 * (uint64_t)i] ^= 1;
    models[m] = open_toy_model(&files[m]);
    if (!models[m]) return abi_done();
    run_solo(models[m], &solos[m], m);
  }
  soak_threads(models, seconds);
  soak_memory(models[0], n_tokens);
  for (int m = 0; m < N_MODELS; ++m) {
    engine_model_close(models[m]);
    free(files[m].bytes);
  }
  return abi_done();
}
