/* The fastest plain read of memory that this machine gives to a number of threads. */
#ifndef ENGINE_EXAMPLES_COMMON_READ_BANDWIDTH_H_
#define ENGINE_EXAMPLES_COMMON_READ_BANDWIDTH_H_

#include <stdint.h>

/* Reads 512 MiB again and again, about one second in all, and returns the best pass in GB/s (10^9 bytes).
 * 0 where memory or threads are not to be had. */
double read_bandwidth_gb_s(uint32_t n_threads);

#endif /* ENGINE_EXAMPLES_COMMON_READ_BANDWIDTH_H_ */
