/* Hooks through the C ABI: what registration refuses, callbacks that call back or fail, scopes, exact counts. */
#include "abi_session.h"

static toy_run expected;

/* ---- registration --------------------------------------------------------------------------------- */

static engine_hook_params hook_of(int32_t action, const char *site) {
  engine_hook_params params = ENGINE_HOOK_PARAMS_INIT;
  params.action = action;
  params.site = site;
  return params;
}

/* Refused with ARGUMENT; the message has `word`. */
static void refused(engine_session *session, const engine_hook_params *params, const char *word) {
  engine_error error = ENGINE_ERROR_INIT;
  uint64_t hook = 0;
  CHECK_STATUS(engine_hook_register(session, params, &hook, &error), ENGINE_ARGUMENT);
  CHECK(error.code == ENGINE_ARGUMENT && strstr(error.message, word));
  if (!strstr(error.message, word)) fprintf(stderr, "no '%s' in: %s\n", word, error.message);
}

static int32_t do_nothing(void *user, const engine_hook_event *event, float *values) {
  (void)event, (void)values;
  ++*(int *)user;
  return 0;
}

static void check_refusals(const engine_model *model) {
  engine_session *session = session_of_mode(model, ENGINE_MODE_PLANNED_FUSED);
  static float values[2 * TOY_EMBD > TOY_FF ? 2 * TOY_EMBD : TOY_FF];
  static float capture[4 * TOY_FF];
  const int32_t layer_2[1] = {2}, layer_minus[1] = {-1}, head_4[1] = {4}, head_2[1] = {2};
  const int32_t sequence_1[1] = {1};
  const int64_t beyond[1] = {64}, before[1] = {-1};
  engine_hook_params p = hook_of(ENGINE_HOOK_SCALE, "resid_pots");
  values[0] = 1.0f;
  refused(session, &p, "resid_post");
  p = hook_of(ENGINE_HOOK_SCALE, "fnn_out");
  refused(session, &p, "ffn_out");
  p = hook_of(ENGINE_HOOK_SCALE, "q_norm"); /* this family has none */
  refused(session, &p, "q_norm");
  p = hook_of(ENGINE_HOOK_SCALE, "attn_pattern");
  refused(session, &p, "attn_pattern"); /* not writable */
  p = hook_of(99, "resid_post");
  refused(session, &p, "action");
  p = hook_of(ENGINE_HOOK_SCALE, "resid_post");
  p.layers = layer_2;
  p.n_layers = 1;
  refused(session, &p, "layer");
  p.layers = layer_minus;
  refused(session, &p, "layer");
  p = hook_of(ENGINE_HOOK_SCALE, "resid_post");
  p.layer_begin = 1;
  p.layer_end = 1;
  refused(session, &p, "layer");
  p.layer_begin = 0;
  p.layer_end = TOY_LAYERS + 1;
  refused(session, &p, "layer");

  p = hook_of(ENGINE_HOOK_SCALE, "resid_post");
  p.position_select = 6;
  refused(session, &p, "position");
  p.position_select = ENGINE_POSITIONS_LIST;
  refused(session, &p, "position");
  p.positions = beyond;
  p.n_positions = 1;
  refused(session, &p, "position");
  p.positions = before;
  refused(session, &p, "position");
  p = hook_of(ENGINE_HOOK_SCALE, "resid_post");
  p.position_select = ENGINE_POSITIONS_RANGE;
  p.position_begin = 5;
  p.position_end = 5;
  refused(session, &p, "position");
  p.position_select = ENGINE_POSITIONS_EVERY;
  refused(session, &p, "position");

  p = hook_of(ENGINE_HOOK_SCALE, "resid_post");
  p.heads = head_2;
  p.n_heads = 1;
  refused(session, &p, "head"); /* has no heads */
  p.site = "q";
  p.heads = head_4;
  refused(session, &p, "head");
  p.site = "k";
  p.heads = head_2;
  refused(session, &p, "head");
  p = hook_of(ENGINE_HOOK_SCALE, "q");
  p.sequences = sequence_1;
  p.n_sequences = 1;
  refused(session, &p, "sequence");

  p = hook_of(ENGINE_HOOK_ADD, "resid_post");
  p.values = values;
  p.n_values = TOY_EMBD - 1;
  refused(session, &p, "values");
  p.action = ENGINE_HOOK_LOW_RANK;
  p.n_values = 2 * TOY_EMBD;
  p.rank = 2;
  refused(session, &p, "values");
  p.action = ENGINE_HOOK_REPLACE;
  p.rank = 0;
  refused(session, &p, "record");
  p = hook_of(ENGINE_HOOK_CAPTURE, "ffn_gate");
  p.capture = capture;
  refused(session, &p, "buffer"); /* of no row */
  p = hook_of(ENGINE_HOOK_READ, "ffn_gate");
  refused(session, &p, "callback");
  p = hook_of(ENGINE_HOOK_SCALE, "ffn_gate");
  p.scope = 12345;
  refused(session, &p, "scope");

  /* Nothing of all this has left a trace. */
  static toy_run run;
  CHECK_STATUS(decode_run(session, &run), ENGINE_OK);
  CHECK(same_run(&run, &expected));
  CHECK(fusion_count(session, 5) > 0);
  engine_session_destroy(session);
}

/* ---- callbacks ------------------------------------------------------------------------------------ */

typedef struct caller {
  engine_session *session;
  uint64_t hook, scope;
  int n, n_wrong, max_calls_back;
} caller;

static int32_t call_back(void *user, const engine_hook_event *event, float *values) {
  caller *c = user;
  engine_error error = ENGINE_ERROR_INIT;
  engine_hook_params params = hook_of(ENGINE_HOOK_SCALE, "resid_post");
  const int32_t id = 5;
  static float logits[TOY_VOCAB];
  uint64_t number = 0;
  ++c->n;
  c->n_wrong += event->struct_size != sizeof(*event) || event->width != TOY_EMBD;
  if (c->n > c->max_calls_back) return 0;
  const int32_t got[] = {
      engine_session_decode(c->session, &id, 1, NULL, &error),
      engine_session_decode_all(c->session, &id, 1, logits, &error),
      engine_hook_register(c->session, &params, &number, &error),
      engine_hook_remove(c->session, c->hook, &error),
      engine_hook_scope_open(c->session, &number, &error),
      engine_hook_scope_close(c->session, c->scope, &error),
      engine_unembed(c->session, values, 1, logits, &error),
  };
  for (size_t i = 0; i < sizeof(got) / sizeof(got[0]); ++i) c->n_wrong += got[i] != ENGINE_STATE;
  c->n_wrong += error.code != ENGINE_STATE || !error.message[0];
  return 0;
}

static void check_reentrancy(const engine_model *model) {
  static toy_run run;
  for (int m = 0; m < N_MODES; ++m) {
    for (int action = ENGINE_HOOK_READ; action <= ENGINE_HOOK_WRITE; ++action) {
      engine_error error = ENGINE_ERROR_INIT;
      engine_session *session = session_of_mode(model, kModes[m]);
      caller c = {session, 0, 0, 0, 0, 1000};
      engine_hook_params params = hook_of(action, "resid_mid");
      params.callback = call_back;
      params.user = &c;
      CHECK_STATUS(engine_hook_scope_open(session, &c.scope, &error), ENGINE_OK);
      CHECK_STATUS(engine_hook_register(session, &params, &c.hook, &error), ENGINE_OK);
      CHECK_STATUS(decode_run(session, &run), ENGINE_OK);
      CHECK(same_run(&run, &expected)); /* also WRITE: it wrote nothing */
      CHECK(c.n == (3 + RUN_TOKENS) * TOY_LAYERS && c.n_wrong == 0);
      engine_session_destroy(session);
    }
  }
}

typedef struct failure {
  int n, fail_at;
} failure;

static int32_t fail_at(void *user, const engine_hook_event *event, float *values) {
  failure *f = user;
  (void)event;
  if (++f->n == f->fail_at) {
    values[0] = 1e30f; /* must not be seen */
    return 77;
  }
  return 0;
}

/* Fails at call k, for all k of a prompt and a token: undone, and the session goes on as if it had not been. */
static void check_failures(const engine_model *model) {
  static toy_run run;
  static float capture[64 * TOY_EMBD];
  enum { CALLS = (3 + 1) * TOY_LAYERS }; /* three chunks and one token */
  for (int m = 0; m < N_MODES; ++m) {
    for (int k = 1; k <= CALLS; ++k) {
      engine_error error = ENGINE_ERROR_INIT;
      engine_session *session = session_of_mode(model, kModes[m]);
      engine_hook_stats stats = ENGINE_HOOK_STATS_INIT;
      failure f = {0, k};
      uint64_t writer = 0, watcher = 0;
      engine_hook_params params = hook_of(ENGINE_HOOK_WRITE, "ffn_out");
      params.callback = fail_at;
      params.user = &f;
      CHECK_STATUS(engine_hook_register(session, &params, &writer, &error), ENGINE_OK);
      params = hook_of(ENGINE_HOOK_CAPTURE, "resid_pre");
      params.capture = capture;
      params.capture_rows = 64;
      CHECK_STATUS(engine_hook_register(session, &params, &watcher, &error), ENGINE_OK);
      int32_t id = best_id(expected.logits[0]);
      const int in_prompt = k <= 3 * TOY_LAYERS;
      int32_t status =
          engine_session_decode(session, kRunPrompt, RUN_PROMPT, run.logits[0], &error);
      if (!in_prompt) {
        CHECK_STATUS(status, ENGINE_OK);
        status = engine_session_decode(session, &id, 1, run.logits[1], &error);
      }
      CHECK_STATUS(status, ENGINE_HOOK_FAILED);
      CHECK(error.code == ENGINE_HOOK_FAILED && strstr(error.message, "ffn_out"));
      CHECK(engine_session_position(session) == (in_prompt ? 0 : RUN_PROMPT));
      CHECK_STATUS(engine_hook_stats_get(session, watcher, &stats), ENGINE_OK);
      CHECK(stats.rows_captured == (in_prompt ? 0 : RUN_PROMPT * TOY_LAYERS));
      CHECK(stats.positions == stats.rows_captured && stats.decode_positions == 0);
      CHECK_STATUS(engine_hook_stats_get(session, writer, &stats), ENGINE_OK);
      CHECK(stats.writes == (in_prompt ? 0 : RUN_PROMPT * TOY_LAYERS));
      CHECK_STATUS(engine_session_truncate(session, 0), ENGINE_OK);
      CHECK_STATUS(decode_run(session, &run), ENGINE_OK);
      CHECK(same_run(&run, &expected));
      /* what the failed call had captured and counted is not in here either */
      const uint64_t n = (uint64_t)(in_prompt ? 0 : RUN_PROMPT) + RUN_PROMPT + RUN_TOKENS;
      CHECK_STATUS(engine_hook_stats_get(session, watcher, &stats), ENGINE_OK);
      CHECK(stats.rows_captured + stats.rows_dropped == n * TOY_LAYERS);
      CHECK(stats.positions == n * TOY_LAYERS);
      CHECK_STATUS(engine_hook_stats_get(session, writer, &stats), ENGINE_OK);
      CHECK(stats.writes == n * TOY_LAYERS);
      engine_session_destroy(session);
    }
  }
}

/* ---- scopes and counts ---------------------------------------------------------------------------- */

static uint64_t calls_of(const engine_session *session, uint64_t hook) {
  engine_hook_stats stats = ENGINE_HOOK_STATS_INIT;
  CHECK_STATUS(engine_hook_stats_get(session, hook, &stats), ENGINE_OK);
  return stats.calls;
}

static void check_scopes(const engine_model *model) {
  static toy_run run, steered;
  for (int m = 0; m < N_MODES; ++m) {
    engine_error error = ENGINE_ERROR_INIT;
    engine_hook_stats stats = ENGINE_HOOK_STATS_INIT;
    engine_session *session = session_of_mode(model, kModes[m]);
    uint64_t outer = 0, inner = 0, hooks[4];
    int n[4] = {0, 0, 0, 0};
    CHECK_STATUS(engine_hook_scope_open(session, &outer, &error), ENGINE_OK);
    CHECK_STATUS(engine_hook_scope_open(session, &inner, &error), ENGINE_OK);
    CHECK(outer != inner && outer && inner);
    const uint64_t scopes[4] = {0, outer, inner, inner};
    for (int i = 0; i < 4; ++i) {
      engine_hook_params params = hook_of(ENGINE_HOOK_READ, i == 3 ? "ffn_gate" : "attn_out");
      params.callback = do_nothing;
      params.user = &n[i];
      params.scope = scopes[i];
      CHECK_STATUS(engine_hook_register(session, &params, &hooks[i], &error), ENGINE_OK);
      CHECK(hooks[i] != 0 && (i == 0 || hooks[i] > hooks[i - 1]));
    }
    engine_hook_params steer = hook_of(ENGINE_HOOK_SCALE, "resid_mid");
    uint64_t steering = 0;
    steer.alpha = 1.25f;
    steer.scope = inner;
    CHECK_STATUS(engine_hook_register(session, &steer, &steering, &error), ENGINE_OK);
    CHECK_STATUS(decode_run(session, &run), ENGINE_OK);
    if (m == 0) steered = run;
    CHECK(same_run(&run, &steered) && !same_run(&run, &expected));
    const int first = n[0];
    CHECK(first == (3 + RUN_TOKENS) * TOY_LAYERS);
    CHECK(n[1] == first && n[2] == first && n[3] == first);

    CHECK_STATUS(engine_hook_scope_close(session, inner, &error), ENGINE_OK);
    CHECK_STATUS(engine_hook_scope_close(session, inner, &error), ENGINE_ARGUMENT);
    CHECK_STATUS(engine_hook_stats_get(session, hooks[2], &stats), ENGINE_ARGUMENT);
    CHECK_STATUS(engine_hook_stats_get(session, steering, &stats), ENGINE_ARGUMENT);
    CHECK_STATUS(engine_hook_remove(session, hooks[3], &error), ENGINE_ARGUMENT);
    steer.scope = inner;
    CHECK_STATUS(engine_hook_register(session, &steer, &steering, &error), ENGINE_ARGUMENT);
    CHECK_STATUS(engine_session_truncate(session, 0), ENGINE_OK);
    CHECK_STATUS(decode_run(session, &run), ENGINE_OK);
    CHECK(same_run(&run, &expected));
    CHECK(n[0] == 2 * first && n[1] == 2 * first && n[2] == first && n[3] == first);
    CHECK(calls_of(session, hooks[0]) == (uint64_t)n[0]);
    CHECK(calls_of(session, hooks[1]) == (uint64_t)n[1]);

    CHECK_STATUS(engine_hook_remove(session, hooks[0], &error), ENGINE_OK);
    CHECK_STATUS(engine_hook_scope_close(session, outer, &error), ENGINE_OK);
    CHECK_STATUS(engine_session_truncate(session, 0), ENGINE_OK);
    CHECK_STATUS(decode_run(session, &run), ENGINE_OK);
    CHECK(same_run(&run, &expected) && n[0] == 2 * first && n[1] == 2 * first);
    engine_session_destroy(session);
  }
}

/* Every row once, whatever the mode: values are those of the reference. */
static void check_counts(const engine_model *model) {
  enum { ROWS = (RUN_PROMPT + RUN_TOKENS) * TOY_LAYERS };
  static float rows[ROWS][TOY_EMBD], first_rows[ROWS][TOY_EMBD], few[8][TOY_EMBD];
  static engine_capture_record records[ROWS], first_records[ROWS], ring[8];
  static toy_run run;
  for (int m = 0; m < N_MODES; ++m) {
    engine_error error = ENGINE_ERROR_INIT;
    engine_hook_stats stats = ENGINE_HOOK_STATS_INIT;
    engine_session_params session_params = run_params(kModes[m]);
    session_params.sequence = 9;
    engine_session *session = create_session(model, &session_params);
    uint64_t all = 0, last = 0, generated = 0, dropping = 0;
    engine_hook_params params = hook_of(ENGINE_HOOK_CAPTURE, "resid_post");
    params.capture = rows[0];
    params.capture_records = records;
    params.capture_rows = ROWS;
    CHECK_STATUS(engine_hook_register(session, &params, &all, &error), ENGINE_OK);
    params.capture = few[0];
    params.capture_records = ring;
    params.capture_rows = 8;
    params.capture_flags = ENGINE_CAPTURE_RING;
    params.position_select = ENGINE_POSITIONS_GENERATED;
    CHECK_STATUS(engine_hook_register(session, &params, &generated, &error), ENGINE_OK);
    static float dropped[8][TOY_EMBD];
    params.capture = dropped[0];
    params.capture_records = NULL;
    params.capture_flags = 0;
    params.position_select = ENGINE_POSITIONS_ALL;
    CHECK_STATUS(engine_hook_register(session, &params, &dropping, &error), ENGINE_OK);
    params = hook_of(ENGINE_HOOK_SCALE, "resid_post");
    params.position_select = ENGINE_POSITIONS_LAST_OF_PROMPT;
    CHECK_STATUS(engine_hook_register(session, &params, &last, &error), ENGINE_OK);
    CHECK_STATUS(decode_run(session, &run), ENGINE_OK);
    CHECK(same_run(&run, &expected));

    CHECK_STATUS(engine_hook_stats_get(session, all, &stats), ENGINE_OK);
    CHECK(stats.calls == (3 + RUN_TOKENS) * TOY_LAYERS && stats.positions == ROWS);
    CHECK(stats.prefill_positions == RUN_PROMPT * TOY_LAYERS);
    CHECK(stats.decode_positions == RUN_TOKENS * TOY_LAYERS);
    CHECK(stats.writes == 0 && stats.rows_captured == ROWS && stats.rows_dropped == 0);
    CHECK_STATUS(engine_hook_stats_get(session, last, &stats), ENGINE_OK);
    CHECK(stats.calls == TOY_LAYERS && stats.positions == TOY_LAYERS && stats.writes == TOY_LAYERS);
    CHECK(stats.prefill_positions == TOY_LAYERS && stats.decode_positions == 0);
    CHECK_STATUS(engine_hook_stats_get(session, generated, &stats), ENGINE_OK);
    CHECK(stats.positions == RUN_TOKENS * TOY_LAYERS && stats.prefill_positions == 0);
    CHECK(stats.rows_captured == RUN_TOKENS * TOY_LAYERS && stats.rows_dropped == 0);
    for (uint64_t i = stats.rows_captured - 8; i < stats.rows_captured; ++i) {
      const engine_capture_record *r = &ring[i % 8];
      CHECK(r->position == RUN_PROMPT + (int64_t)i / TOY_LAYERS && r->layer == (int)i % TOY_LAYERS);
      CHECK(memcmp(few[i % 8], rows[RUN_PROMPT * TOY_LAYERS + i], sizeof(few[0])) == 0);
    }
    CHECK_STATUS(engine_hook_stats_get(session, dropping, &stats), ENGINE_OK);
    CHECK(stats.rows_captured == 8 && stats.rows_dropped == ROWS - 8);
    CHECK(memcmp(dropped, rows, sizeof(dropped)) == 0);

    for (int i = 0; i < ROWS; ++i) {
      const int64_t p = records[i].position;
      CHECK(records[i].sequence == 9 && records[i].layer >= 0 && records[i].layer < TOY_LAYERS);
      CHECK(p >= 0 && p < RUN_PROMPT + RUN_TOKENS);
      CHECK(records[i].token_id == (p < RUN_PROMPT ? kRunPrompt[p] : run.ids[p - RUN_PROMPT]));
    }
    if (m == 0) {
      memcpy(first_rows, rows, sizeof(rows));
      memcpy(first_records, records, sizeof(records));
    }
    CHECK(memcmp(rows, first_rows, sizeof(rows)) == 0);
    CHECK(memcmp(records, first_records, sizeof(records)) == 0);
    engine_session_destroy(session);
  }
}

static void check_sites(const engine_model *model) {
  engine_hook_site_info site = ENGINE_HOOK_SITE_INFO_INIT;
  uint32_t n = 0, n_here = 0, n_attention = 0;
  for (; engine_hook_site_at(model, n, &site) == ENGINE_OK; ++n) {
    CHECK(site.site == (int32_t)n && site.name[0]);
    CHECK(site.n_layers == 0 || site.n_layers == (site.per_layer ? TOY_LAYERS : 1));
    const int attention =
        strncmp(site.name, "attn_scores", 11) == 0 || !strcmp(site.name, "attn_pattern");
    n_attention += attention;
    CHECK(site.writable == !attention);
    if (site.n_layers == 0) continue;
    ++n_here;
    CHECK((site.width == 0) == attention);
    CHECK(!strcmp(site.route, "materialised") || !strcmp(site.route, "de-fused") ||
          !strcmp(site.route, "copy-out"));
    CHECK(!attention || (!strcmp(site.route, "copy-out") && site.n_heads == TOY_HEADS));
    if (!strcmp(site.name, "ffn_gate"))
      CHECK(site.width == TOY_FF && !strcmp(site.route, "de-fused"));
    if (!strcmp(site.name, "k")) CHECK(site.width == TOY_KV_HEADS * TOY_HEAD_DIM);
    if (!strcmp(site.name, "resid_post")) {
      CHECK(site.width == TOY_EMBD && !strcmp(site.alias, "residual-post-mlp"));
    }
  }
  CHECK(n == 24 && n_here == 22 && n_attention == 2); /* no q_norm and k_norm here */
}

int main(void) {
  toy_file toy = toy_build(1, 1);
  engine_model *model = open_toy_model(&toy);
  if (model) {
    engine_session *session = session_of_mode(model, ENGINE_MODE_REFERENCE);
    CHECK_STATUS(decode_run(session, &expected), ENGINE_OK);
    engine_session_destroy(session);
    check_sites(model);
    check_refusals(model);
    check_reentrancy(model);
    check_failures(model);
    check_scopes(model);
    check_counts(model);
  }
  engine_model_close(model);
  free(toy.bytes);
  return abi_done();
}
