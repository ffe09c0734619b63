/* Modes, fusions, plans, the profile and unembed through the C ABI: equal bits, exact codes, round trips. */
#include "abi_session.h"

enum { F1, F2, F3, F4, F5, F6, N_FUSIONS };
/* A llama in F32 has nothing to quantise (F1), and its adds are the projections' (F5, so no F2). */
static const int kRuns[N_FUSIONS] = {0, 0, 1, 1, 1, 1};

static toy_run expected; /* mode REFERENCE */

static void check_modes(const engine_model *model) {
  static toy_run run;
  for (int m = 0; m < N_MODES; ++m) {
    engine_session_stats stats = ENGINE_SESSION_STATS_INIT;
    engine_session *session = session_of_mode(model, kModes[m]);
    memset(&run, 0, sizeof(run));
    CHECK_STATUS(decode_run(session, &run), ENGINE_OK);
    if (m == 0) expected = run;
    CHECK(same_run(&run, &expected));
    CHECK_STATUS(engine_session_stats_get(session, &stats), ENGINE_OK);
    CHECK(stats.mode == kModes[m]);
    CHECK(stats.decoded_tokens == RUN_PROMPT + RUN_TOKENS && stats.n_threads == 2);
    for (uint32_t f = 0; f < N_FUSIONS; ++f) {
      const int runs = kModes[m] == ENGINE_MODE_PLANNED_FUSED && kRuns[f];
      CHECK((fusion_count(session, f) > 0) == runs);
    }
    engine_session_destroy(session);
  }
  CHECK(expected.logits[0][0] != expected.logits[1][0] && expected.ids[0] != expected.ids[1]);

  engine_session_stats stats = ENGINE_SESSION_STATS_INIT;
  engine_session *session = session_of_mode(model, ENGINE_MODE_DEFAULT);
  CHECK_STATUS(engine_session_stats_get(session, &stats), ENGINE_OK);
  CHECK(stats.mode == ENGINE_MODE_PLANNED_FUSED);
  engine_session_destroy(session);
}

static void check_without_fusions(const engine_model *model) {
  static toy_run run;
  for (uint32_t mask = 0; mask < 1u << N_FUSIONS; ++mask) {
    engine_session_params params = run_params(ENGINE_MODE_PLANNED_FUSED);
    params.without_fusions = mask;
    engine_session *session = create_session(model, &params);
    CHECK_STATUS(decode_run(session, &run), ENGINE_OK);
    CHECK(same_run(&run, &expected));
    for (uint32_t f = 0; f < N_FUSIONS; ++f) {
      const uint64_t calls = fusion_count(session, f);
      if (mask >> f & 1) CHECK(calls == 0);
      if (mask == 0 || mask == 1u << F1) CHECK((calls > 0) == kRuns[f]);
    }
    engine_session_destroy(session);
  }
}

/* Kernels that ran: at least one whose name ends so, and (if all) no matmul that does not. */
static int ran(const engine_session *session, const char *prefix, const char *suffix) {
  const char *name = NULL;
  uint64_t calls = 0;
  int n = 0;
  for (uint32_t i = 0; engine_session_kernel_at(session, i, &name, &calls) == ENGINE_OK; ++i) {
    const size_t length = strlen(name), end = strlen(suffix);
    CHECK(calls > 0);
    n += strncmp(name, prefix, strlen(prefix)) == 0 && length >= end &&
         strcmp(name + length - end, suffix) == 0;
  }
  return n;
}

static void check_choices(const engine_model *model) {
  engine_error error = ENGINE_ERROR_INIT;
  engine_session *session = NULL;
  engine_plan *plan = NULL;
  static toy_run run;
  for (int m = 0; m < N_MODES; ++m) {
    engine_session_params params = run_params(kModes[m]);
    params.kernels = "no_such_kernel*";
    CHECK_STATUS(engine_session_create(model, &params, &session, &error), ENGINE_PLAN);
    CHECK(session == NULL && strstr(error.message, "no_such_kernel"));
    CHECK_STATUS(engine_plan_create(model, &params, NULL, 0, &plan, &error), ENGINE_PLAN);
    CHECK(plan == NULL && strstr(error.message, "no_such_kernel"));
    params.kernels = "matmul_*__cpu_scalar";
    session = create_session(model, &params);
    CHECK_STATUS(decode_run(session, &run), ENGINE_OK);
    CHECK(same_run(&run, &expected));
    CHECK(ran(session, "matmul", "__cpu_scalar") > 0 && ran(session, "matmul", "__cpu_hwy") == 0);
    engine_session_destroy(session);
    session = NULL;
  }
  engine_session_params params = run_params(99);
  CHECK_STATUS(engine_session_create(model, &params, &session, &error), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_plan_create(model, &params, NULL, 0, &plan, &error), ENGINE_ARGUMENT);
  params = run_params(ENGINE_MODE_PLANNED_FUSED);
  params.without_fusions = 1u << N_FUSIONS;
  CHECK_STATUS(engine_session_create(model, &params, &session, &error), ENGINE_TOO_NEW);
  CHECK_STATUS(engine_plan_create(model, &params, NULL, 0, &plan, &error), ENGINE_TOO_NEW);
  params = run_params(ENGINE_MODE_PLANNED_FUSED);
  params.target = "no such target";
  CHECK_STATUS(engine_plan_create(model, &params, NULL, 0, &plan, &error), ENGINE_DEVICE);
  CHECK(session == NULL && plan == NULL);
}

/* ---- plans ---------------------------------------------------------------------------------------- */

typedef struct json_text {
  char *text;
  uint64_t n_bytes;
} json_text;

static json_text json_of(const engine_plan *plan) {
  engine_error error = ENGINE_ERROR_INIT;
  json_text json = {NULL, 0};
  uint64_t n = 0;
  CHECK_STATUS(engine_plan_json(plan, 0, NULL, 0, &n, &error), ENGINE_BUFFER_TOO_SMALL);
  json.text = calloc(1, n + 1);
  if (!json.text) abort();
  CHECK_STATUS(engine_plan_json(plan, 0, json.text, n - 1, &json.n_bytes, &error),
               ENGINE_BUFFER_TOO_SMALL);
  CHECK(json.n_bytes == n && json.text[0] == 0);
  CHECK_STATUS(engine_plan_json(plan, 0, json.text, n, &json.n_bytes, &error), ENGINE_OK);
  CHECK(json.n_bytes == n && json.text[0] == '{' && strstr(json.text, "engine.plan/1"));
  return json;
}

static json_text plan_text(const engine_model *model, const engine_session_params *params,
                           const engine_hook_params *hooks, uint64_t n_hooks) {
  engine_error error = ENGINE_ERROR_INIT;
  engine_plan *plan = NULL;
  json_text json = {NULL, 0};
  CHECK_STATUS(engine_plan_create(model, params, hooks, n_hooks, &plan, &error), ENGINE_OK);
  if (!plan) {
    fprintf(stderr, "%s\n", error.message);
    exit(1);
  }
  json = json_of(plan);
  engine_plan_destroy(plan);
  return json;
}

/* What engine_plan_diff says; to be freed. */
static char *diff_text(const json_text *a, const json_text *b) {
  engine_error error = ENGINE_ERROR_INIT;
  uint64_t n = 0, again = 0;
  const int32_t status =
      engine_plan_diff(a->text, a->n_bytes, b->text, b->n_bytes, NULL, 0, &n, &error);
  CHECK_STATUS(status, n ? ENGINE_BUFFER_TOO_SMALL : ENGINE_OK);
  char *text = calloc(1, n + 1);
  if (!text) abort();
  CHECK_STATUS(
      engine_plan_diff(a->text, a->n_bytes, b->text, b->n_bytes, text, n + 1, &again, &error),
      ENGINE_OK);
  CHECK(again == n && strlen(text) == n);
  return text;
}

static int equal_plans(const json_text *a, const json_text *b) {
  char *text = diff_text(a, b);
  const int equal = text[0] == '\0';
  free(text);
  return equal;
}

static void check_damage(const engine_model *model, const json_text *json) {
  engine_error error = ENGINE_ERROR_INIT;
  char *copy = malloc(json->n_bytes);
  if (!copy) abort();
  /* The hash leaves out the time, and nothing else. */
  const char *provenance = strstr(json->text, "\"provenance\"");
  const char *time = provenance ? strstr(provenance, "\"time\"") : NULL;
  CHECK(time != NULL);
  const uint64_t time_at = time ? (uint64_t)(time - json->text) + 6 : 0;
  int n_flipped = 0, n_unseen = 0, n_wrong_code = 0;
  memcpy(copy, json->text, json->n_bytes);
  for (uint64_t i = 0; i < json->n_bytes; i += 1 + json->n_bytes / 397) {
    if (i >= time_at && i < time_at + 40) continue;
    copy[i] ^= 1;
    const int32_t status = engine_plan_verify(model, copy, json->n_bytes, &error);
    n_unseen += status == ENGINE_OK;
    n_wrong_code += status != ENGINE_ARGUMENT && status != ENGINE_TOO_NEW;
    if (status == ENGINE_OK) fprintf(stderr, "byte %llu unseen\n", (unsigned long long)i);
    ++n_flipped;
    copy[i] ^= 1;
  }
  CHECK(n_flipped > 300 && n_unseen == 0 && n_wrong_code == 0);
  CHECK_STATUS(engine_plan_verify(model, copy, json->n_bytes - 1, &error), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_plan_verify(model, "{}", 2, &error), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_plan_verify(model, "[[[[", 4, &error), ENGINE_ARGUMENT);
  CHECK(error.code == ENGINE_ARGUMENT && error.message[0]);
  free(copy);
}

static void check_plans(const engine_model *model) {
  engine_error error = ENGINE_ERROR_INIT;
  engine_hook_params hook = ENGINE_HOOK_PARAMS_INIT;
  const int32_t layers[1] = {1};
  hook.action = ENGINE_HOOK_READ;
  hook.site = "ffn_gate";
  hook.layers = layers;
  hook.n_layers = 1;
  json_text by_mode[N_MODES];
  for (int m = 0; m < N_MODES; ++m) {
    const engine_session_params params = run_params(kModes[m]);
    by_mode[m] = plan_text(model, &params, NULL, 0);
    json_text again = plan_text(model, &params, NULL, 0);
    CHECK(equal_plans(&by_mode[m], &again));
    CHECK_STATUS(engine_plan_verify(model, by_mode[m].text, by_mode[m].n_bytes, &error), ENGINE_OK);
    free(again.text);

    engine_session *session = session_of_mode(model, kModes[m]);
    engine_plan *plan = NULL;
    CHECK_STATUS(engine_session_plan(session, &plan, &error), ENGINE_OK);
    again = json_of(plan);
    CHECK(equal_plans(&by_mode[m], &again));
    engine_plan_destroy(plan);
    free(again.text);

    /* A hook changes the plan of the session as it would the plan asked for; removing it changes it back. */
    uint64_t id = 0;
    float buffer[TOY_FF];
    hook.action = ENGINE_HOOK_CAPTURE;
    hook.capture = buffer;
    hook.capture_rows = 1;
    CHECK_STATUS(engine_hook_register(session, &hook, &id, &error), ENGINE_OK);
    CHECK_STATUS(engine_session_plan(session, &plan, &error), ENGINE_OK);
    again = json_of(plan);
    json_text asked = plan_text(model, &params, &hook, 1);
    CHECK(equal_plans(&asked, &again));
    CHECK(!equal_plans(&by_mode[m], &again));
    CHECK_STATUS(engine_plan_verify(model, asked.text, asked.n_bytes, &error), ENGINE_OK);
    char *differences = diff_text(&by_mode[m], &again);
    CHECK(strstr(differences, "ffn_gate") != NULL);
    free(differences);
    engine_plan_destroy(plan);
    free(again.text);
    free(asked.text);
    CHECK_STATUS(engine_hook_remove(session, id, &error), ENGINE_OK);
    CHECK_STATUS(engine_session_plan(session, &plan, &error), ENGINE_OK);
    engine_session_destroy(session); /* the plan lives on */
    again = json_of(plan);
    CHECK(equal_plans(&by_mode[m], &again));
    engine_plan_destroy(plan);
    free(again.text);
  }
  CHECK(!equal_plans(&by_mode[0], &by_mode[1]) && !equal_plans(&by_mode[1], &by_mode[2]));
  check_damage(model, &by_mode[2]);

  /* A plan of another file of the same shape is another plan. */
  toy_file other_toy = toy_build(1, 0);
  engine_model *other = open_toy_model(&other_toy);
  error.message[0] = '\0';
  CHECK_STATUS(engine_plan_verify(other, by_mode[2].text, by_mode[2].n_bytes, &error), ENGINE_PLAN);
  CHECK(error.code == ENGINE_PLAN && error.message[0]);
  engine_model_close(other);
  free(other_toy.bytes);
  for (int m = 0; m < N_MODES; ++m) free(by_mode[m].text);
}

static void check_without_weights(const toy_file *toy) {
  engine_error error = ENGINE_ERROR_INIT;
  engine_hook_site_info site = ENGINE_HOOK_SITE_INFO_INIT;
  engine_model_params params = ENGINE_MODEL_PARAMS_INIT;
  engine_model *model = NULL;
  engine_plan *plan = NULL;
  params.data = toy->bytes;
  params.length = toy->n_bytes;
  params.flags = ENGINE_OPEN_VOCAB_ONLY;
  CHECK_STATUS(engine_model_open(&params, &model, &error), ENGINE_OK);
  CHECK_STATUS(engine_plan_create(model, NULL, NULL, 0, &plan, &error), ENGINE_STATE);
  CHECK_STATUS(engine_hook_site_at(model, 0, &site), ENGINE_STATE);
  CHECK(plan == NULL);
  engine_model_close(model);
}

/* ---- profile, unembed ----------------------------------------------------------------------------- */

static void check_profile(const engine_model *model) {
  engine_error error = ENGINE_ERROR_INIT;
  static toy_run run;
  for (int m = 0; m < N_MODES; ++m) {
    engine_session *session = session_of_mode(model, kModes[m]);
    engine_profile_entry entry = ENGINE_PROFILE_ENTRY_INIT;
    uint64_t sum[2] = {0, 0}, call[2] = {0, 0}, n_calls[2] = {0, 0}, weight_bytes = 0;
    uint32_t fusions = 0, n = 0;
    int last_was_call = 1, kind = 0, layers_seen = 0;
    CHECK_STATUS(engine_session_profile(session, 1, &error), ENGINE_OK);
    CHECK_STATUS(decode_run(session, &run), ENGINE_OK);
    CHECK(same_run(&run, &expected));
    for (; engine_session_profile_at(session, n, &entry) == ENGINE_OK; ++n) {
      CHECK(entry.calls > 0 && entry.op[0] && entry.total_ns > 0);
      CHECK(entry.median_ns <= entry.p95_ns && entry.prefill >= kind);
      if (entry.prefill > kind) CHECK(last_was_call);
      kind = entry.prefill;
      last_was_call = strcmp(entry.op, "call") == 0;
      if (last_was_call) {
        CHECK(entry.layer == -1);
        call[kind] = entry.total_ns;
        n_calls[kind] = entry.calls;
      } else {
        sum[kind] += entry.total_ns;
        if (kind == 0 && entry.tensor[0]) weight_bytes += entry.bytes;
        layers_seen |= entry.layer < 0 ? 0 : 1 << entry.layer;
        fusions |= entry.fusions;
      }
    }
    CHECK(last_was_call && n > 10 && kind == 1 && layers_seen == 3);
    CHECK(n_calls[0] == RUN_TOKENS && n_calls[1] > 0);
    CHECK(sum[0] <= call[0] && sum[1] <= call[1]);
    engine_session_stats stats = ENGINE_SESSION_STATS_INIT;
    CHECK_STATUS(engine_session_stats_get(session, &stats), ENGINE_OK);
    CHECK(weight_bytes >= stats.bytes_per_token * RUN_TOKENS);
    CHECK((fusions != 0) == (kModes[m] == ENGINE_MODE_PLANNED_FUSED));
    CHECK((fusions & (ENGINE_FUSION_NORM_QUANTIZE | ENGINE_FUSION_ADD_NORM)) == 0);

    /* Stopped: the lines stay as they are. Started again: they are gone. */
    const int32_t id = 5;
    CHECK_STATUS(engine_session_profile(session, 0, &error), ENGINE_OK);
    CHECK_STATUS(engine_session_decode(session, &id, 1, NULL, &error), ENGINE_OK);
    CHECK_STATUS(engine_session_profile_at(session, 0, &entry), ENGINE_OK);
    CHECK(entry.calls == RUN_TOKENS && entry.prefill == 0);
    CHECK_STATUS(engine_session_profile(session, 1, &error), ENGINE_OK);
    CHECK_STATUS(engine_session_profile_at(session, 0, &entry), ENGINE_ARGUMENT);
    engine_session_destroy(session);
  }
}

static void check_unembed(const engine_model *model) {
  engine_error error = ENGINE_ERROR_INIT;
  static float rows[RUN_PROMPT][TOY_EMBD], logits[RUN_PROMPT][TOY_VOCAB],
      lens[RUN_PROMPT][TOY_VOCAB];
  static engine_capture_record records[RUN_PROMPT];
  const int32_t last[1] = {TOY_LAYERS - 1};
  for (int m = 0; m < N_MODES; ++m) {
    engine_session *session = session_of_mode(model, kModes[m]);
    engine_hook_params hook = ENGINE_HOOK_PARAMS_INIT;
    engine_hook_stats stats = ENGINE_HOOK_STATS_INIT;
    uint64_t id = 0, on_logits = 0;
    hook.action = ENGINE_HOOK_CAPTURE;
    hook.site = "residual-post-mlp";
    hook.layers = last;
    hook.n_layers = 1;
    hook.capture = rows[0];
    hook.capture_records = records;
    hook.capture_rows = RUN_PROMPT;
    CHECK_STATUS(engine_hook_register(session, &hook, &id, &error), ENGINE_OK);
    engine_hook_params scale = ENGINE_HOOK_PARAMS_INIT;
    scale.action = ENGINE_HOOK_SCALE; /* by 1: changes nothing, counts */
    scale.site = "final_norm";
    CHECK_STATUS(engine_hook_register(session, &scale, &on_logits, &error), ENGINE_OK);
    CHECK_STATUS(engine_session_decode_all(session, kRunPrompt, RUN_PROMPT, logits[0], &error),
                 ENGINE_OK);
    CHECK(memcmp(logits[RUN_PROMPT - 1], expected.logits[0], sizeof(logits[0])) == 0);
    memset(lens, 0, sizeof(lens));
    CHECK_STATUS(engine_unembed(session, rows[0], RUN_PROMPT, lens[0], &error), ENGINE_OK);
    CHECK(memcmp(lens, logits, sizeof(lens)) == 0);
    CHECK(engine_session_position(session) == RUN_PROMPT);
    CHECK_STATUS(engine_hook_stats_get(session, on_logits, &stats), ENGINE_OK);
    CHECK(stats.positions == RUN_PROMPT); /* unembed fires no hooks */
    for (int i = 0; i < RUN_PROMPT; ++i) {
      CHECK(records[i].position == i && records[i].token_id == kRunPrompt[i]);
      CHECK(records[i].layer == TOY_LAYERS - 1 && records[i].sequence == 0);
    }
    float bad[TOY_EMBD] = {0};
    bad[3] = (float)(1e308 * 10); /* infinity */
    CHECK_STATUS(engine_unembed(session, bad, 1, lens[0], &error), ENGINE_NONFINITE);
    engine_session_destroy(session);
  }
}

int main(void) {
  toy_file toy = toy_build(1, 1);
  engine_model *model = open_toy_model(&toy);
  if (model) {
    check_modes(model);
    check_without_fusions(model);
    check_choices(model);
    check_plans(model);
    check_without_weights(&toy);
    check_profile(model);
    check_unembed(model);
  }
  engine_model_close(model);
  free(toy.bytes);
  return abi_done();
}
