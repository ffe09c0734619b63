/* Read bandwidth: huge pages, vector loads, one or two streams per thread, prefetch into L2. */
#define _GNU_SOURCE

#include "read_bandwidth.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "cli.h"

#define BUFFER_BYTES ((uint64_t)512 << 20)
#define HUGE_PAGE_BYTES ((uint64_t)2 << 20)
#define STEP_BYTES 256 /* of each stream in one turn of the loop: four cache lines */
#define MIN_ROUNDS 5
#define MAX_ROUNDS 40
#define BUDGET_SECONDS 0.8

typedef uint64_t (*read_function)(const char *first, const char *second, uint64_t n_bytes);

/* Which of these is the fastest differs from CPU to CPU, so all are tried and the best pass counts. */
typedef struct variant {
  int n_streams;
  int distance; /* bytes that the prefetch runs ahead; 0 = left to the hardware */
} variant;
static const variant kVariants[] = {{2, 1024}, {2, 3072}, {1, 2048}, {1, 0}};
enum { kVariantCount = sizeof(kVariants) / sizeof(kVariants[0]) };

/* A function for each variant and each vector width. A macro, because GCC lowers vector types to the
 * target of the function in which they are written, before anything is inlined. */
#define DEFINE_READ(name, attributes, vector_bytes, streams, distance)                       \
  attributes static uint64_t name(const char *first, const char *second, uint64_t n_bytes) { \
    typedef uint64_t vector __attribute__((vector_size(vector_bytes), may_alias));           \
    enum { kPerStep = STEP_BYTES / (vector_bytes) };                                         \
    vector sum[2][kPerStep];                                                                 \
    memset(sum, 0, sizeof(sum));                                                             \
    for (uint64_t at = 0; at < n_bytes; at += STEP_BYTES) {                                  \
      if (distance) {                                                                        \
        for (int k = 0; k < STEP_BYTES; k += 64) {                                           \
          __builtin_prefetch(first + at + (distance) + k, 0, 2);                             \
          if ((streams) == 2) __builtin_prefetch(second + at + (distance) + k, 0, 2);        \
        }                                                                                    \
      }                                                                                      \
      const vector *a = (const vector *)(const void *)(first + at);                          \
      const vector *b = (const vector *)(const void *)(second + at);                         \
      for (int k = 0; k < kPerStep; ++k) {                                                   \
        sum[0][k] ^= a[k];                                                                   \
        if ((streams) == 2) sum[1][k] ^= b[k];                                               \
      }                                                                                      \
    }                                                                                        \
    uint64_t total = 0;                                                                      \
    uint64_t parts[sizeof(sum) / 8];                                                         \
    memcpy(parts, sum, sizeof(sum));                                                         \
    for (unsigned k = 0; k < sizeof(sum) / 8; ++k) total ^= parts[k];                        \
    return total;                                                                            \
  }

#define DEFINE_TARGET(suffix, attributes, vector_bytes)                \
  DEFINE_READ(read_2_1024_##suffix, attributes, vector_bytes, 2, 1024) \
  DEFINE_READ(read_2_3072_##suffix, attributes, vector_bytes, 2, 3072) \
  DEFINE_READ(read_1_2048_##suffix, attributes, vector_bytes, 1, 2048) \
  DEFINE_READ(read_1_0_##suffix, attributes, vector_bytes, 1, 0)       \
  static const read_function k_read_##suffix[kVariantCount] = {        \
      read_2_1024_##suffix, read_2_3072_##suffix, read_1_2048_##suffix, read_1_0_##suffix};

/* Measured bytes must be read whatever the build type: a debug build would show its loop, not the memory. */
#if defined(__GNUC__) && !defined(__clang__)
#define FAST __attribute__((optimize("O3")))
#else
#define FAST
#endif

DEFINE_TARGET(plain, FAST, 16)
#if defined(__x86_64__)
DEFINE_TARGET(avx2, FAST __attribute__((target("avx2"))), 32)
DEFINE_TARGET(avx512, FAST __attribute__((target("avx512f"))), 64)
#endif

static const read_function *best_reads(void) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f")) return k_read_avx512;
  if (__builtin_cpu_supports("avx2")) return k_read_avx2;
#endif
  return k_read_plain;
}

typedef struct measurement {
  const read_function *reads;
  char *buffer;
  uint64_t slice_bytes; /* of each thread */
  pthread_barrier_t barrier;
  int go;        /* 0 = wait, 1 = run, -1 = a thread is missing: return */
  int stop;      /* written by the first thread, between two barriers */
  uint64_t sink; /* what was read, so that reading cannot be left out */
  double best_gb_s;
  uint32_t n_threads;
} measurement;

typedef struct worker {
  measurement *shared;
  uint32_t index;
} worker;

static void *run_worker(void *argument) {
  const worker *self = argument;
  measurement *shared = self->shared;
  int go;
  while ((go = __atomic_load_n(&shared->go, __ATOMIC_ACQUIRE)) == 0) sched_yield();
  if (go < 0) return NULL;
  char *slice = shared->buffer + self->index * shared->slice_bytes;
  /* Written first by the thread that reads it: real pages, near its core. */
  for (uint64_t i = 0; i < shared->slice_bytes; i += 8) {
    const uint64_t value = (i + 1) * 0x9E3779B97F4A7C15u;
    memcpy(slice + i, &value, 8);
  }
  uint64_t sink = 0;
  double start = 0, end = 0;
  const double begin = cli_seconds();
  for (int round = 0; round < MAX_ROUNDS; ++round) {
    for (int v = 0; v < kVariantCount; ++v) {
      const int n_streams = kVariants[v].n_streams;
      const uint64_t n_bytes = shared->slice_bytes / (uint64_t)n_streams;
      pthread_barrier_wait(&shared->barrier);
      start = cli_seconds();
      sink ^= shared->reads[v](slice, n_streams == 2 ? slice + n_bytes : slice, n_bytes);
      pthread_barrier_wait(&shared->barrier);
      end = cli_seconds();
      if (self->index == 0) {
        const double gb_s =
            (double)(shared->slice_bytes * shared->n_threads) / (end - start) * 1e-9;
        if (gb_s > shared->best_gb_s) shared->best_gb_s = gb_s;
      }
    }
    if (self->index == 0) shared->stop = round + 1 >= MIN_ROUNDS && end - begin > BUDGET_SECONDS;
    pthread_barrier_wait(&shared->barrier);
    if (shared->stop) break;
  }
  __atomic_fetch_xor(&shared->sink, sink, __ATOMIC_RELAXED);
  return NULL;
}

double read_bandwidth_gb_s(uint32_t n_threads) {
  if (n_threads == 0 || n_threads > 1024) return 0;
  measurement shared;
  memset(&shared, 0, sizeof(shared));
  shared.reads = best_reads();
  shared.n_threads = n_threads;
  shared.slice_bytes = BUFFER_BYTES / n_threads / (2 * STEP_BYTES) * (2 * STEP_BYTES);
  const uint64_t mapped_bytes =
      BUFFER_BYTES + 2 * HUGE_PAGE_BYTES; /* alignment, and what is prefetched past the end */
  char *mapping =
      mmap(NULL, mapped_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) return 0;
  const uint64_t skew = (uint64_t)(uintptr_t)mapping % HUGE_PAGE_BYTES;
  shared.buffer = mapping + (skew ? HUGE_PAGE_BYTES - skew : 0);
#ifdef MADV_HUGEPAGE
  madvise(shared.buffer, BUFFER_BYTES, MADV_HUGEPAGE);
#endif
  worker *workers = cli_allocate(n_threads * sizeof(worker));
  pthread_t *threads = cli_allocate(n_threads * sizeof(pthread_t));
  if (pthread_barrier_init(&shared.barrier, NULL, n_threads) == 0) {
    uint32_t n_started = 1;
    for (uint32_t i = 0; i < n_threads; ++i) workers[i] = (worker){&shared, i};
    while (n_started < n_threads &&
           pthread_create(&threads[n_started], NULL, run_worker, &workers[n_started]) == 0) {
      ++n_started;
    }
    __atomic_store_n(&shared.go, n_started == n_threads ? 1 : -1, __ATOMIC_RELEASE);
    run_worker(&workers[0]);
    for (uint32_t i = 1; i < n_started; ++i) pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&shared.barrier);
  }
  free(threads);
  free(workers);
  munmap(mapping, mapped_bytes);
  return shared.best_gb_s;
}
