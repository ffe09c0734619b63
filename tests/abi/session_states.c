/* Sessions through the C ABI: forks, prefix cache, saving, restoring, portable snapshots, batches, samplers. */
#include "abi_session.h"

static toy_run expected;

typedef struct byte_buffer {
  uint8_t *bytes;
  uint64_t n;
  uint64_t n_calls, fail_at;
} byte_buffer;

static int32_t append(void *user, const void *data, uint64_t n_bytes) {
  byte_buffer *b = user;
  if (++b->n_calls == b->fail_at) return 5;
  b->bytes = realloc(b->bytes, b->n + n_bytes);
  if (!b->bytes) abort();
  memcpy(b->bytes + b->n, data, n_bytes);
  b->n += n_bytes;
  return 0;
}

static byte_buffer saved(const engine_session *session) {
  byte_buffer b = {NULL, 0, 0, 0};
  CHECK_STATUS(engine_session_save(session, NULL, 0, &b.n, NULL), ENGINE_BUFFER_TOO_SMALL);
  b.bytes = malloc(b.n);
  if (!b.bytes) abort();
  CHECK_STATUS(engine_session_save(session, b.bytes, b.n - 1, &b.n, NULL), ENGINE_BUFFER_TOO_SMALL);
  CHECK_STATUS(engine_session_save(session, b.bytes, b.n, &b.n, NULL), ENGINE_OK);
  return b;
}

/* The rest of a run from the state after the prompt: its logits and ids are those of `expected`. */
static int continues(engine_session *session) {
  float logits[TOY_VOCAB];
  for (int i = 0; i < RUN_TOKENS; ++i) {
    if (engine_session_decode(session, &expected.ids[i], 1, logits, NULL) != ENGINE_OK) return 0;
    if (memcmp(logits, expected.logits[i + 1], sizeof(logits)) != 0) return 0;
  }
  return 1;
}

static engine_session *after_prompt(const engine_model *model) {
  engine_session *session = session_of_mode(model, ENGINE_MODE_PLANNED_FUSED);
  CHECK_STATUS(engine_session_decode(session, kRunPrompt, RUN_PROMPT, NULL, NULL), ENGINE_OK);
  return session;
}

static int32_t try_states(void *user, const engine_hook_event *event, float *values) {
  engine_session *session = *(engine_session **)user, *other = NULL;
  uint64_t n = 0;
  char byte = 0;
  (void)event, (void)values;
  CHECK_STATUS(engine_session_fork(session, 0, &other, NULL), ENGINE_STATE);
  CHECK_STATUS(engine_session_save_to(session, append, NULL, NULL), ENGINE_STATE);
  CHECK_STATUS(engine_session_restore(session, &byte, 1, NULL), ENGINE_STATE);
  CHECK_STATUS(engine_session_kv_export(session, NULL, 0, &n, NULL), ENGINE_STATE);
  CHECK_STATUS(engine_session_kv_import(session, &byte, 1, NULL), ENGINE_STATE);
  CHECK_STATUS(engine_session_take_prefix(session, kRunPrompt, 1, &n, NULL), ENGINE_STATE);
  return 0;
}

static void check_forks(const engine_model *model) {
  engine_session *parent = after_prompt(model), *forks[3] = {NULL, NULL, NULL};
  engine_session_stats stats = ENGINE_SESSION_STATS_INIT;
  engine_hook_params params = ENGINE_HOOK_PARAMS_INIT;
  uint64_t hook = 0;
  CHECK_STATUS(engine_session_fork(parent, 2, &forks[0], NULL), ENGINE_TOO_NEW);
  CHECK(forks[0] == NULL);
  params.action = ENGINE_HOOK_SCALE;
  params.site = "resid_post";
  params.alpha = 2.0f;
  CHECK_STATUS(engine_hook_register(parent, &params, &hook, NULL), ENGINE_OK);
  CHECK_STATUS(engine_session_fork(parent, ENGINE_FORK_WITHOUT_HOOKS, &forks[0], NULL), ENGINE_OK);
  CHECK_STATUS(engine_session_fork(parent, 0, &forks[1], NULL), ENGINE_OK);
  CHECK_STATUS(engine_session_stats_get(forks[1], &stats), ENGINE_OK);
  CHECK(stats.kv_own_bytes == 0 && stats.kv_bytes > 0);
  engine_session_destroy(parent);
  CHECK(continues(forks[0]));
  CHECK(!continues(forks[1]));
  CHECK_STATUS(engine_session_truncate(forks[1], RUN_PROMPT), ENGINE_OK);
  CHECK_STATUS(engine_hook_remove(forks[1], hook, NULL), ENGINE_OK);
  CHECK(continues(forks[1]));
  params = (engine_hook_params)ENGINE_HOOK_PARAMS_INIT;
  params.action = ENGINE_HOOK_READ;
  params.site = "logits";
  params.callback = try_states;
  params.user = &forks[0];
  CHECK_STATUS(engine_hook_register(forks[0], &params, &hook, NULL), ENGINE_OK);
  float logits[TOY_VOCAB];
  CHECK_STATUS(engine_session_decode(forks[0], kRunPrompt, 1, logits, NULL), ENGINE_OK);
  engine_session_destroy(forks[0]);
  engine_session_destroy(forks[1]);
}

static void check_saving(const engine_model *model, const engine_model *other_model) {
  engine_session *a = after_prompt(model), *b = session_of_mode(model, ENGINE_MODE_REFERENCE);
  engine_session *other = session_of_mode(other_model, ENGINE_MODE_PLANNED);
  engine_session_params params = run_params(ENGINE_MODE_PLANNED);
  byte_buffer bytes = saved(a), pieces = {NULL, 0, 0, 0}, cut = {NULL, 0, 0, 3};
  CHECK_STATUS(engine_session_save_to(a, append, &pieces, NULL), ENGINE_OK);
  CHECK(pieces.n == bytes.n && memcmp(pieces.bytes, bytes.bytes, bytes.n) == 0);
  CHECK_STATUS(engine_session_save_to(a, append, &cut, NULL), ENGINE_CANCELLED);
  CHECK_STATUS(engine_session_restore(b, bytes.bytes, bytes.n, NULL), ENGINE_OK);
  CHECK(engine_session_position(b) == RUN_PROMPT);
  CHECK(continues(b));
  CHECK_STATUS(engine_session_restore(b, bytes.bytes, bytes.n - 1, NULL), ENGINE_CORRUPT);
  CHECK_STATUS(engine_session_restore(b, NULL, 0, NULL), ENGINE_CORRUPT);
  CHECK_STATUS(engine_session_restore(other, bytes.bytes, bytes.n, NULL), ENGINE_MODEL_MISMATCH);
  params.kv_type = ENGINE_KV_F32;
  engine_session *f32 = create_session(model, &params);
  CHECK_STATUS(engine_session_restore(f32, bytes.bytes, bytes.n, NULL), ENGINE_KV_MISMATCH);
  CHECK(engine_session_position(b) == RUN_PROMPT + RUN_TOKENS);

  uint64_t n = 0;
  CHECK_STATUS(engine_session_kv_export(a, NULL, 0, &n, NULL), ENGINE_BUFFER_TOO_SMALL);
  uint8_t *kv = malloc(n);
  if (!kv) abort();
  CHECK_STATUS(engine_session_kv_export(a, kv, n, &n, NULL), ENGINE_OK);
  CHECK(memcmp(kv, "engine.kv/1", 12) == 0);
  CHECK_STATUS(engine_session_kv_import(b, kv, n, NULL), ENGINE_OK);
  CHECK(continues(b));
  CHECK_STATUS(engine_session_kv_import(other, kv, n, NULL), ENGINE_MODEL_MISMATCH);
  CHECK_STATUS(engine_session_kv_import(f32, kv, n, NULL), ENGINE_KV_MISMATCH);
  kv[11] = 1;
  CHECK_STATUS(engine_session_kv_import(b, kv, 20, NULL), ENGINE_TOO_NEW);
  CHECK_STATUS(engine_session_kv_import(b, kv, 3, NULL), ENGINE_CORRUPT);
  free(kv);
  free(bytes.bytes);
  free(pieces.bytes);
  free(cut.bytes);
  engine_session_destroy(a);
  engine_session_destroy(b);
  engine_session_destroy(f32);
  engine_session_destroy(other);
}

static void check_prefix(const engine_model *model) {
  engine_session_params params = run_params(ENGINE_MODE_PLANNED_FUSED);
  engine_session_stats stats = ENGINE_SESSION_STATS_INIT;
  float a_logits[TOY_VOCAB], b_logits[TOY_VOCAB];
  int32_t ids[101];
  uint64_t n = 7;
  params.n_ctx = 100;
  for (int i = 0; i < 101; ++i) ids[i] = (i * 7 + 1) % TOY_VOCAB;
  engine_session *a = create_session(model, &params), *b = create_session(model, &params);
  CHECK_STATUS(engine_session_take_prefix(a, ids, 100, &n, NULL), ENGINE_OK);
  CHECK(n == 0);
  CHECK_STATUS(engine_model_prefix_cache(model, 1 << 20), ENGINE_OK);
  CHECK_STATUS(engine_session_decode(a, ids, 100, a_logits, NULL), ENGINE_OK);
  CHECK_STATUS(engine_session_take_prefix(a, ids, 1, &n, NULL), ENGINE_STATE);
  CHECK_STATUS(engine_session_take_prefix(b, ids, 101, &n, NULL), ENGINE_CONTEXT_FULL);
  CHECK_STATUS(engine_session_take_prefix(b, ids, 100, &n, NULL), ENGINE_OK);
  CHECK(n == 64 && engine_session_position(b) == 64);
  CHECK_STATUS(engine_session_decode(b, ids + n, 100 - n, b_logits, NULL), ENGINE_OK);
  CHECK(memcmp(a_logits, b_logits, sizeof(a_logits)) == 0);
  CHECK_STATUS(engine_session_stats_get(b, &stats), ENGINE_OK);
  CHECK(stats.prefix_bytes > 0 && stats.kv_own_bytes < stats.kv_bytes);
  CHECK_STATUS(engine_model_prefix_cache(model, 0), ENGINE_OK);
  CHECK_STATUS(engine_session_stats_get(b, &stats), ENGINE_OK);
  CHECK(stats.prefix_bytes == 0);
  engine_session_destroy(a);
  engine_session_destroy(b);
}

static void check_batches(const engine_model *model) {
  enum { N = 4 };
  static float logits[N][TOY_VOCAB];
  engine_batch_item items[N];
  engine_session *sessions[N];
  const int32_t bad = TOY_VOCAB;
  CHECK_STATUS(engine_batch_decode(NULL, 1, NULL), ENGINE_ARGUMENT);
  for (int i = 0; i < N; ++i) {
    sessions[i] = after_prompt(model);
    items[i] = (engine_batch_item)ENGINE_BATCH_ITEM_INIT;
    items[i].session = sessions[i];
    items[i].n_ids = 1;
    items[i].logits = logits[i];
  }
  CHECK_STATUS(engine_batch_decode(items, 0, NULL), ENGINE_ARGUMENT);
  for (int t = 0; t < RUN_TOKENS; ++t) {
    engine_error error = ENGINE_ERROR_INIT;
    for (int i = 0; i < N; ++i) items[i].ids = &expected.ids[t];
    items[1].ids = t % 2 ? &bad : NULL;
    CHECK_STATUS(engine_batch_decode(items, N, &error), ENGINE_ARGUMENT);
    CHECK(error.message[0] != 0);
    for (int i = 0; i < N; ++i) {
      CHECK(items[i].status == (i == 1 ? ENGINE_ARGUMENT : ENGINE_OK));
      CHECK(i == 1 || memcmp(logits[i], expected.logits[t + 1], sizeof(logits[i])) == 0);
    }
  }
  CHECK(engine_session_position(sessions[1]) == RUN_PROMPT);
  items[2].flags = 2;
  items[1].ids = &expected.ids[0];
  items[3].struct_size = 8;
  CHECK_STATUS(engine_batch_decode(items, N, NULL), ENGINE_ARGUMENT);
  items[3].struct_size = items[0].struct_size;
  CHECK_STATUS(engine_batch_decode(items, N, NULL), ENGINE_TOO_NEW);
  CHECK(items[0].status == ENGINE_OK && items[2].status == ENGINE_TOO_NEW);
  CHECK(memcmp(logits[1], expected.logits[1], sizeof(logits[1])) == 0);
  for (int i = 0; i < N; ++i) engine_session_destroy(sessions[i]);
}

static void check_samplers(void) {
  engine_sampler_params params = ENGINE_SAMPLER_PARAMS_INIT;
  engine_sampler *a = NULL, *b = NULL;
  uint64_t n = 0;
  params.has_seed = 1;
  params.seed = 11;
  params.temperature = 1.5f;
  params.repeat_penalty = 1.3f;
  CHECK_STATUS(engine_sampler_create(&params, &a, NULL), ENGINE_OK);
  CHECK_STATUS(engine_sampler_create(NULL, &b, NULL), ENGINE_OK);
  int32_t x = 0, y = 0;
  for (int i = 0; i < 9; ++i) {
    CHECK_STATUS(engine_sampler_sample(a, expected.logits[i], TOY_VOCAB, &x, NULL), ENGINE_OK);
  }
  CHECK_STATUS(engine_sampler_save(a, NULL, 0, &n, NULL), ENGINE_BUFFER_TOO_SMALL);
  uint8_t *bytes = malloc(n);
  if (!bytes) abort();
  CHECK_STATUS(engine_sampler_save(a, bytes, n, &n, NULL), ENGINE_OK);
  CHECK_STATUS(engine_sampler_restore(b, bytes, n - 1, NULL), ENGINE_CORRUPT);
  CHECK_STATUS(engine_sampler_restore(b, bytes, n, NULL), ENGINE_OK);
  CHECK(engine_sampler_seed(b) == 11);
  for (int i = 0; i < 20; ++i) {
    CHECK_STATUS(engine_sampler_sample(a, expected.logits[i], TOY_VOCAB, &x, NULL), ENGINE_OK);
    CHECK_STATUS(engine_sampler_sample(b, expected.logits[i], TOY_VOCAB, &y, NULL), ENGINE_OK);
    CHECK(x == y);
  }
  free(bytes);
  engine_sampler_destroy(a);
  engine_sampler_destroy(b);
}

static void check_nulls(void) {
  engine_session *session = NULL;
  uint64_t n = 0;
  CHECK_STATUS(engine_session_fork(NULL, 0, &session, NULL), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_session_fork(NULL, 0, NULL, NULL), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_session_save(NULL, NULL, 0, &n, NULL), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_session_save_to(NULL, append, NULL, NULL), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_session_restore(NULL, &n, 8, NULL), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_session_kv_export(NULL, NULL, 0, &n, NULL), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_session_kv_import(NULL, &n, 8, NULL), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_model_prefix_cache(NULL, 0), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_session_take_prefix(NULL, kRunPrompt, 1, &n, NULL), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_sampler_save(NULL, NULL, 0, &n, NULL), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_sampler_restore(NULL, &n, 8, NULL), ENGINE_ARGUMENT);
}

int main(void) {
  toy_file toy = toy_build(1, 1), other = toy_build(1, 1);
  other.bytes[other.n_bytes - 2] ^= 1; /* one weight: same shape, another model */
  engine_model *model = open_toy_model(&toy), *other_model = open_toy_model(&other);
  if (!model || !other_model) return abi_done();
  engine_session *session = session_of_mode(model, ENGINE_MODE_PLANNED_FUSED);
  CHECK_STATUS(decode_run(session, &expected), ENGINE_OK);
  engine_session_destroy(session);
  check_forks(model);
  check_saving(model, other_model);
  check_prefix(model);
  check_batches(model);
  check_samplers();
  check_nulls();
  engine_model_close(model);
  engine_model_close(other_model);
  free(toy.bytes);
  free(other.bytes);
  return abi_done();
}
