/* What a client of any header hands to frozen_headers.c: plain memory, no type of engine.h. */
#ifndef ENGINE_TESTS_ABI_FROZEN_FROZEN_CLIENT_H_
#define ENGINE_TESTS_ABI_FROZEN_FROZEN_CLIENT_H_

#include <stdint.h>

enum { CLIENT_VOCAB = 300, CLIENT_TOKENS = 20, CLIENT_PROMPT_IDS = 64, CLIENT_RUNS = 2 };

typedef struct client_result {
  int32_t ids[CLIENT_TOKENS];
  float logits[CLIENT_VOCAB];
  float two_rows[2 * CLIENT_VOCAB];
  char text[512];
  uint64_t text_bytes;
  uint64_t decoded_tokens, kv_bytes, position, kernel_calls;
  uint32_t n_threads, n_ctx;
} client_result;

/* The status of the first call that failed. file: the toy model's bytes. Runs the default mode and REFERENCE. */
typedef int32_t client_function(const void *file, uint64_t n_bytes, client_result out[CLIENT_RUNS]);

#endif /* ENGINE_TESTS_ABI_FROZEN_FROZEN_CLIENT_H_ */
