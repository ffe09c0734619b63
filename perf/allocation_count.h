/* Counts the heap allocations of the whole process, all threads, by standing in for malloc and its kin. */
#ifndef ENGINE_PERF_ALLOCATION_COUNT_H_
#define ENGINE_PERF_ALLOCATION_COUNT_H_

#include <stdint.h>

/* Allocations since the start of the process; -1 where the C library offers no way to count (not glibc).
 * Threads: any. */
#ifdef ALLOCATION_COUNT_PRELOAD
__attribute__((visibility("default")))
#endif
int64_t
allocation_count(void);

/* Bytes that they asked for, in all; -1 likewise. Threads: any. */
int64_t allocation_bytes(void);

#endif /* ENGINE_PERF_ALLOCATION_COUNT_H_ */
