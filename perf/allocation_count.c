/* Stands in for malloc and its kin in a program that links this file, and counts. Shared libraries of the
 * process, and operator new inside them, resolve to these as well. Releasing is not counted. */
#include "allocation_count.h"

#include <errno.h>
#include <stdlib.h>

#ifdef __GLIBC__

extern void *__libc_malloc(size_t n_bytes);
extern void *__libc_calloc(size_t n, size_t n_bytes);
extern void *__libc_realloc(void *block, size_t n_bytes);
extern void *__libc_memalign(size_t alignment, size_t n_bytes);

/* The build hides symbols by default; these must be seen by the shared libraries of the process. Some are not
 * declared by the headers without further feature macros. */
#pragma GCC visibility push(default)
void *malloc(size_t n_bytes);
void *calloc(size_t n, size_t n_bytes);
void *realloc(void *block, size_t n_bytes);
void *memalign(size_t alignment, size_t n_bytes);
void *aligned_alloc(size_t alignment, size_t n_bytes);
int posix_memalign(void **block, size_t alignment, size_t n_bytes);
#pragma GCC visibility pop

static int64_t n_allocations, n_bytes_asked;

static void count(size_t n_bytes) {
  __atomic_fetch_add(&n_allocations, 1, __ATOMIC_RELAXED);
  __atomic_fetch_add(&n_bytes_asked, (int64_t)n_bytes, __ATOMIC_RELAXED);
}

void *malloc(size_t n_bytes) {
  count(n_bytes);
  return __libc_malloc(n_bytes);
}

void *calloc(size_t n, size_t n_bytes) {
  count(n * n_bytes);
  return __libc_calloc(n, n_bytes);
}

void *realloc(void *block, size_t n_bytes) {
  count(n_bytes);
  return __libc_realloc(block, n_bytes);
}

void *memalign(size_t alignment, size_t n_bytes) {
  count(n_bytes);
  return __libc_memalign(alignment, n_bytes);
}

void *aligned_alloc(size_t alignment, size_t n_bytes) { return memalign(alignment, n_bytes); }

int posix_memalign(void **block, size_t alignment, size_t n_bytes) {
  void *result = memalign(alignment, n_bytes);
  if (!result) return ENOMEM;
  *block = result;
  return 0;
}

int64_t allocation_bytes(void) { return __atomic_load_n(&n_bytes_asked, __ATOMIC_RELAXED); }
int64_t allocation_count(void) { return __atomic_load_n(&n_allocations, __ATOMIC_RELAXED); }

#else

int64_t allocation_count(void) { return -1; }
int64_t allocation_bytes(void) { return -1; }

#endif
