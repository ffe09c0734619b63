/* CHECK for the C tests: counts failures, prints where; finish with `return abi_done();`. */
#ifndef ENGINE_TESTS_ABI_ABI_CHECK_H_
#define ENGINE_TESTS_ABI_ABI_CHECK_H_

#include <stdint.h>
#include <stdio.h>

static int abi_n_checks = 0;
static int abi_n_failed = 0;

#define CHECK(condition)                                                      \
  do {                                                                        \
    ++abi_n_checks;                                                           \
    if (!(condition)) {                                                       \
      ++abi_n_failed;                                                         \
      fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #condition); \
    }                                                                         \
  } while (0)

/* A status, with both numbers in the message. */
#define CHECK_STATUS(expression, expected)                                            \
  do {                                                                                \
    const int32_t abi_status = (expression);                                          \
    ++abi_n_checks;                                                                   \
    if (abi_status != (expected)) {                                                   \
      ++abi_n_failed;                                                                 \
      fprintf(stderr, "%s:%d: %s gave %d, not %d\n", __FILE__, __LINE__, #expression, \
              (int)abi_status, (int)(expected));                                      \
    }                                                                                 \
  } while (0)

/* Failed checks make the test fail; so does a test that checked nothing. */
static inline int abi_done(void) {
  printf("%d checks, %d failed\n", abi_n_checks, abi_n_failed);
  return abi_n_failed != 0 || abi_n_checks == 0;
}

#endif /* ENGINE_TESTS_ABI_ABI_CHECK_H_ */
