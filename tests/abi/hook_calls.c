/* Hooks from C: sites, registration and its faults, callbacks, captures, counters, scopes, in every mode. */
#include <stddef.h>

#include "abi_check.h"
#include "abi_toy.h"
#include "engine.h"

enum { kPrompt = 7, kGenerated = 4 };

typedef struct seen {
  engine_session *session;
  int calls;
  int fail_at;       /* call that fails; -1 = none */
  int wrong;         /* things that were not as stated */
  int64_t positions; /* sum */
} seen;

static int32_t look(void *user, const engine_hook_event *event, float *values) {
  seen *s = (seen *)user;
  uint64_t id = 7;
  int32_t token = 3;
  engine_error error = ENGINE_ERROR_INIT;
  if (event->struct_size != sizeof(*event) || event->width != TOY_EMBD) ++s->wrong;
  for (uint32_t i = 0; i < event->n_rows; ++i) s->positions += event->positions[i];
  /* Nothing of the session may be called from here. */
  engine_hook_params params = ENGINE_HOOK_PARAMS_INIT;
  params.action = ENGINE_HOOK_ZERO;
  params.site = "resid_mid";
  if (engine_hook_register(s->session, &params, &id, &error) != ENGINE_STATE || id != 0) ++s->wrong;
  if (engine_hook_remove(s->session, 1, &error) != ENGINE_STATE) ++s->wrong;
  if (engine_hook_scope_open(s->session, &id, &error) != ENGINE_STATE) ++s->wrong;
  if (engine_hook_scope_close(s->session, 1, &error) != ENGINE_STATE) ++s->wrong;
  if (engine_session_tokens_are(s->session, ENGINE_TOKENS_AUTO) != ENGINE_STATE) ++s->wrong;
  if (engine_session_decode(s->session, &token, 1, NULL, &error) != ENGINE_STATE) ++s->wrong;
  values[0] += 1.0f;
  return s->calls++ == s->fail_at ? 3 : 0;
}

static engine_session *open_session(const engine_model *model, int32_t mode) {
  engine_session_params params = ENGINE_SESSION_PARAMS_INIT;
  engine_session *session = NULL;
  params.mode = mode;
  params.prefill_chunk = 3;
  CHECK_STATUS(engine_session_create(model, &params, &session, NULL), ENGINE_OK);
  return session;
}

/* A prompt and some tokens one by one; the logits of the last. */
static void generate(engine_session *session, float *logits) {
  int32_t ids[kPrompt + kGenerated];
  for (int i = 0; i < kPrompt + kGenerated; ++i) ids[i] = 20 + 3 * i;
  CHECK_STATUS(engine_session_decode(session, ids, kPrompt, logits, NULL), ENGINE_OK);
  for (int i = 0; i < kGenerated; ++i) {
    CHECK_STATUS(engine_session_decode(session, ids + kPrompt + i, 1, logits, NULL), ENGINE_OK);
  }
}

static void check_sites(const engine_model *model) {
  engine_hook_site_info info = ENGINE_HOOK_SITE_INFO_INIT;
  uint32_t n = 0, n_layer_sites = 0;
  while (engine_hook_site_at(model, n, &info) == ENGINE_OK) {
    CHECK(info.site == (int32_t)n && info.name[0]);
    CHECK((info.n_layers == 0) == (info.route[0] == 0));
    if (info.per_layer && info.n_layers == TOY_LAYERS) ++n_layer_sites;
    if (!strcmp(info.name, "resid_post")) {
      CHECK(info.width == TOY_EMBD && info.n_heads == 0 && info.writable);
      CHECK(!strcmp(info.alias, "residual-post-mlp"));
    }
    if (!strcmp(info.name, "attn_scores")) {
      CHECK(info.width == 0 && info.n_heads == TOY_HEADS && !info.writable);
      CHECK(!strcmp(info.route, "copy-out"));
    }
    if (!strcmp(info.name, "q_norm")) CHECK(info.n_layers == 0 && info.width == 0);
    ++n;
  }
  CHECK(n == 24 && n_layer_sites == 18);
  CHECK_STATUS(engine_hook_site_at(model, n, &info), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_hook_site_at(model, 0, NULL), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_hook_site_at(NULL, 0, &info), ENGINE_ARGUMENT);
}

static void check_faults(engine_session *session) {
  engine_error error = ENGINE_ERROR_INIT;
  engine_hook_params good = ENGINE_HOOK_PARAMS_INIT;
  engine_hook_params params;
  engine_hook_stats stats = ENGINE_HOOK_STATS_INIT;
  struct {
    engine_hook_params params;
    uint64_t more;
  } larger;
  uint64_t hook = 5;
  const int32_t none = 0;
  good.action = ENGINE_HOOK_ZERO;
  good.site = "resid_post";
#define EXPECT(setup, status)                                                      \
  do {                                                                             \
    params = good;                                                                 \
    setup;                                                                         \
    hook = 5;                                                                      \
    CHECK_STATUS(engine_hook_register(session, &params, &hook, &error), (status)); \
    CHECK(hook == 0);                                                              \
  } while (0)
  EXPECT(params.site = NULL, ENGINE_ARGUMENT);
  EXPECT(params.site = "resid_pots", ENGINE_ARGUMENT);
  CHECK(strstr(error.message, "resid_post") != NULL);
  EXPECT(params.action = 0, ENGINE_ARGUMENT);
  EXPECT(params.struct_size = 8, ENGINE_ARGUMENT);
  EXPECT(params.capture_flags = 8, ENGINE_TOO_NEW);
  EXPECT(params.n_layers = 1, ENGINE_ARGUMENT);
  EXPECT(params.layers = &none, ENGINE_ARGUMENT); /* an empty list */
  EXPECT(params.heads = &none, ENGINE_ARGUMENT);
  EXPECT(params.sequences = &none, ENGINE_ARGUMENT);
  EXPECT(params.n_values = UINT64_MAX, ENGINE_ARGUMENT);
  EXPECT(params.n_records = 1, ENGINE_ARGUMENT);
  EXPECT(params.position_select = 6, ENGINE_ARGUMENT);
  EXPECT(params.scope = 77, ENGINE_ARGUMENT);
  EXPECT((params.action = ENGINE_HOOK_CAPTURE, params.capture_rows = UINT64_MAX), ENGINE_ARGUMENT);
#undef EXPECT
  memset(&larger, 0, sizeof(larger));
  larger.params = good;
  larger.params.struct_size = (uint32_t)sizeof(larger);
  larger.more = 1;
  CHECK_STATUS(engine_hook_register(session, &larger.params, &hook, &error), ENGINE_TOO_NEW);
  CHECK_STATUS(engine_hook_register(session, &good, NULL, &error), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_hook_register(session, NULL, &hook, &error), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_hook_register(NULL, &good, &hook, &error), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_hook_remove(session, 1, &error), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_hook_remove(NULL, 1, &error), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_hook_scope_open(session, NULL, &error), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_hook_scope_open(NULL, &hook, &error), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_hook_scope_close(session, 1, &error), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_hook_scope_close(NULL, 1, &error), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_hook_stats_get(session, 1, &stats), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_hook_stats_get(NULL, 1, &stats), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_session_tokens_are(session, 4), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_session_tokens_are(session, -1), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_session_tokens_are(NULL, 0), ENGINE_ARGUMENT);
}

/* Steering with captures and a callback; `logits` are those of the steered run. */
static void check_steering(const engine_model *model, int32_t mode, float *logits) {
  engine_session *session = open_session(model, mode);
  engine_error error = ENGINE_ERROR_INIT;
  engine_hook_stats stats = ENGINE_HOOK_STATS_INIT;
  engine_hook_params add = ENGINE_HOOK_PARAMS_INIT, capture = add, callback = add;
  engine_capture_record records[kPrompt + kGenerated];
  static float rows[(kPrompt + kGenerated) * TOY_EMBD];
  float clean[TOY_VOCAB], again[TOY_VOCAB], vector[TOY_EMBD];
  uint64_t scope = 0, hooks[3] = {0, 0, 0};
  seen state = {session, 0, -1, 0, 0};
  const int32_t layer = 1;
  const int32_t token = 9;
  generate(session, clean);
  CHECK_STATUS(engine_session_truncate(session, 0), ENGINE_OK);
  for (int i = 0; i < TOY_EMBD; ++i) vector[i] = (float)(i % 5) - 2.0f;
  CHECK_STATUS(engine_hook_scope_open(session, &scope, &error), ENGINE_OK);
  add.action = ENGINE_HOOK_ADD;
  add.site = "resid_mid";
  add.layers = &layer;
  add.n_layers = 1;
  add.values = vector;
  add.n_values = TOY_EMBD;
  add.alpha = 0.5f;
  capture.action = ENGINE_HOOK_CAPTURE;
  capture.site = "residual-post-mlp";
  capture.layers = &layer;
  capture.n_layers = 1;
  capture.capture = rows;
  capture.capture_records = records;
  capture.capture_rows = kPrompt + kGenerated;
  callback.action = ENGINE_HOOK_READ;
  callback.site = "ffn_norm";
  callback.layer_end = TOY_LAYERS;
  callback.callback = look;
  callback.user = &state;
  callback.scope = scope;
  CHECK_STATUS(engine_hook_register(session, &add, &hooks[0], &error), ENGINE_OK);
  CHECK_STATUS(engine_hook_register(session, &capture, &hooks[1], &error), ENGINE_OK);
  CHECK_STATUS(engine_hook_register(session, &callback, &hooks[2], &error), ENGINE_OK);
  generate(session, logits);
  CHECK(memcmp(clean, logits, sizeof(clean)) != 0);
  CHECK_STATUS(engine_hook_stats_get(session, hooks[0], &stats), ENGINE_OK);
  CHECK(stats.positions == kPrompt + kGenerated && stats.writes == stats.positions);
  CHECK(stats.prefill_positions == kPrompt && stats.decode_positions == kGenerated);
  CHECK(stats.calls == 3 + kGenerated); /* chunks of 3 */
  CHECK_STATUS(engine_hook_stats_get(session, hooks[1], &stats), ENGINE_OK);
  CHECK(stats.rows_captured == kPrompt + kGenerated && stats.rows_dropped == 0);
  CHECK(records[8].position == 8 && records[8].token_id == 44 && records[8].layer == 1);
  CHECK(state.wrong == 0 && state.calls == TOY_LAYERS * (3 + kGenerated));
  CHECK(state.positions == TOY_LAYERS * 55);

  /* A failing callback undoes the call; the session goes on. */
  state.fail_at = state.calls + 1;
  CHECK_STATUS(engine_session_decode(session, &token, 1, again, &error), ENGINE_HOOK_FAILED);
  CHECK(strstr(error.message, "ffn_norm of layer 1") != NULL);
  CHECK(engine_session_position(session) == kPrompt + kGenerated);
  CHECK_STATUS(engine_hook_stats_get(session, hooks[0], &stats), ENGINE_OK);
  CHECK(stats.positions == kPrompt + kGenerated);
  state.fail_at = -1;

  /* Without the scope and the writer everything is as before. */
  CHECK_STATUS(engine_hook_scope_close(session, scope, &error), ENGINE_OK);
  CHECK_STATUS(engine_hook_stats_get(session, hooks[2], &stats), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_hook_stats_get(session, hooks[1], &stats), ENGINE_OK);
  CHECK_STATUS(engine_hook_remove(session, hooks[0], &error), ENGINE_OK);
  CHECK_STATUS(engine_hook_remove(session, hooks[0], &error), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_session_truncate(session, 0), ENGINE_OK);
  const int calls = state.calls;
  generate(session, again);
  CHECK(memcmp(clean, again, sizeof(clean)) == 0);
  CHECK(state.calls == calls);
  engine_session_destroy(session);
}

int main(void) {
  engine_error error = ENGINE_ERROR_INIT;
  engine_model_params params = ENGINE_MODEL_PARAMS_INIT;
  engine_model *model = NULL;
  float reference[TOY_VOCAB], planned[TOY_VOCAB], fused[TOY_VOCAB];
  toy_file toy = toy_build(1, 1);
  params.data = toy.bytes;
  params.length = toy.n_bytes;
  CHECK_STATUS(engine_model_open(&params, &model, &error), ENGINE_OK);
  if (model) {
    engine_session *session = open_session(model, ENGINE_MODE_DEFAULT);
    check_sites(model);
    check_faults(session);
    engine_session_destroy(session);
    check_steering(model, ENGINE_MODE_REFERENCE, reference);
    check_steering(model, ENGINE_MODE_PLANNED, planned);
    check_steering(model, ENGINE_MODE_DEFAULT, fused);
    CHECK(memcmp(reference, planned, sizeof(reference)) == 0);
    CHECK(memcmp(reference, fused, sizeof(reference)) == 0);
  }
  engine_model_close(model);
  free(toy.bytes);
  return abi_done();
}
