/* Clients built against each frozen header run on today's library and get the bits that a client of today gets. */
#include "abi_check.h"
#include "abi_toy.h"
#include "frozen/frozen_client.h"

/* FROZEN_CLIENTS, from CMake: CLIENT(name) for each file frozen/engine_*.h. */
#define CLIENT(name) client_function name;
FROZEN_CLIENTS
#undef CLIENT
client_function engine_today;

typedef struct frozen_client {
  const char *name;
  client_function *run;
} frozen_client;

#define CLIENT(name) {#name, name},
static const frozen_client kClients[] = {FROZEN_CLIENTS};

int main(void) {
  static client_result today[CLIENT_RUNS], then[CLIENT_RUNS];
  const toy_file toy = toy_build(1, 1);
  memset(today, 0, sizeof(today));
  CHECK(engine_today(toy.bytes, toy.n_bytes, today) == 0);
  for (int i = 0; i < CLIENT_RUNS; ++i) {
    CHECK(today[i].text_bytes > 0 && today[i].logits[0] != today[i].logits[1]);
    CHECK(today[i].decoded_tokens > CLIENT_TOKENS && today[i].kernel_calls > 0);
    /* what it decoded again after truncating are the bits of the first time */
    CHECK(today[i].n_threads == 2 && today[i].n_ctx == 96 && today[i].kv_bytes > 0);
  }
  CHECK(memcmp(today[0].logits, today[1].logits, sizeof(today[0].logits)) == 0);
  for (size_t c = 0; c < sizeof(kClients) / sizeof(kClients[0]); ++c) {
    memset(then, 0, sizeof(then));
    const int32_t status = kClients[c].run(toy.bytes, toy.n_bytes, then);
    CHECK(status == 0);
    CHECK(memcmp(then, today, sizeof(then)) == 0);
    printf("%s: status %d, %s\n", kClients[c].name, (int)status,
           memcmp(then, today, sizeof(then)) == 0 ? "equal" : "different");
  }
  free(toy.bytes);
  return abi_done();
}
