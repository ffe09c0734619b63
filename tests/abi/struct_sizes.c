/* struct_size rules: smaller, larger with a zero tail, larger with a set tail; unknown flags; two-call buffers. */
#include <stddef.h>

#include "abi_check.h"
#include "abi_toy.h"
#include "engine.h"

/* A caller that was built against a later header. */
typedef struct later_model_params {
  engine_model_params params;
  uint64_t later_field;
} later_model_params;
typedef struct later_session_params {
  engine_session_params params;
  uint64_t later_field;
} later_session_params;
typedef struct later_hook_params {
  engine_hook_params params;
  uint64_t later_field;
} later_hook_params;
typedef struct later_sampler_params {
  engine_sampler_params params;
  uint64_t later_field;
} later_sampler_params;

static engine_model *open_toy(const toy_file *toy) {
  engine_error error = ENGINE_ERROR_INIT;
  engine_model_params params = ENGINE_MODEL_PARAMS_INIT;
  engine_model *model = NULL;
  params.data = toy->bytes;
  params.length = toy->n_bytes;
  CHECK_STATUS(engine_model_open(&params, &model, &error), ENGINE_OK);
  return model;
}

static void check_model_params(const toy_file *toy) {
  engine_error error = ENGINE_ERROR_INIT;
  engine_model *model = NULL;
  later_model_params later = {ENGINE_MODEL_PARAMS_INIT, 0};
  later.params.data = toy->bytes;
  later.params.length = toy->n_bytes;
  later.params.struct_size = (uint32_t)sizeof(later);
  CHECK_STATUS(engine_model_open(&later.params, &model, &error), ENGINE_OK);
  engine_model_close(model);
  model = (engine_model *)&later; /* must be set to NULL on failure */
  later.later_field = 1;
  CHECK_STATUS(engine_model_open(&later.params, &model, &error), ENGINE_TOO_NEW);
  CHECK(model == NULL && error.code == ENGINE_TOO_NEW);

  later.later_field = 0;
  later.params.struct_size = 0;
  CHECK_STATUS(engine_model_open(&later.params, &model, &error), ENGINE_ARGUMENT);
  later.params.struct_size = (uint32_t)sizeof(engine_model_params);
  later.params.flags = 1u << 31;
  CHECK_STATUS(engine_model_open(&later.params, &model, &error), ENGINE_TOO_NEW);
  later.params.flags = 0;
  engine_host host = ENGINE_HOST_INIT;
  host.struct_size = 0;
  later.params.host = &host;
  CHECK_STATUS(engine_model_open(&later.params, &model, &error), ENGINE_ARGUMENT);
  host.struct_size = 4; /* a host that knows no service */
  CHECK_STATUS(engine_model_open(&later.params, &model, &error), ENGINE_OK);
  engine_model_close(model);
}

static void check_session_params(const engine_model *model) {
  engine_error error = ENGINE_ERROR_INIT;
  engine_session *session = NULL;
  engine_session_stats stats = ENGINE_SESSION_STATS_INIT;
  later_session_params later = {ENGINE_SESSION_PARAMS_INIT, 0};
  later.params.struct_size = (uint32_t)sizeof(later);
  later.params.n_ctx = 17;
  CHECK_STATUS(engine_session_create(model, &later.params, &session, &error), ENGINE_OK);
  engine_session_destroy(session);
  later.later_field = 1;
  CHECK_STATUS(engine_session_create(model, &later.params, &session, &error), ENGINE_TOO_NEW);
  CHECK(session == NULL);

  /* The smaller struct ends after n_ctx: what lies behind must not be read. */
  later.params.struct_size = offsetof(engine_session_params, n_threads);
  later.params.n_threads = 100000;
  later.params.kv_type = -7;
  later.params.mode = 99;
  later.params.target = "no such target";
  CHECK_STATUS(engine_session_create(model, &later.params, &session, &error), ENGINE_OK);
  CHECK_STATUS(engine_session_stats_get(session, &stats), ENGINE_OK);
  CHECK(stats.n_ctx == 17 && stats.mode == ENGINE_MODE_PLANNED_FUSED && stats.target[0]);
  engine_session_destroy(session);

  const engine_session_params good = ENGINE_SESSION_PARAMS_INIT;
  engine_session_params bad = good;
  bad.n_threads = 100000;
  CHECK_STATUS(engine_session_create(model, &bad, &session, &error), ENGINE_ARGUMENT);
  bad = good;
  bad.kv_type = 3;
  CHECK_STATUS(engine_session_create(model, &bad, &session, &error), ENGINE_ARGUMENT);
  bad = good;
  bad.mode = 99;
  CHECK_STATUS(engine_session_create(model, &bad, &session, &error), ENGINE_ARGUMENT);
  bad = good;
  bad.mode = -1;
  CHECK_STATUS(engine_session_create(model, &bad, &session, &error), ENGINE_ARGUMENT);
  bad = good;
  bad.weights = 2;
  CHECK_STATUS(engine_session_create(model, &bad, &session, &error), ENGINE_ARGUMENT);
  bad = good;
  bad.without_fusions = 1u << 6;
  CHECK_STATUS(engine_session_create(model, &bad, &session, &error), ENGINE_TOO_NEW);
  bad = good;
  bad.target = "no such target";
  CHECK_STATUS(engine_session_create(model, &bad, &session, &error), ENGINE_DEVICE);
  CHECK(session == NULL && strstr(error.message, "no such target"));
  bad = good;
  bad.n_ctx = UINT32_MAX;
  CHECK(engine_session_create(model, &bad, &session, &error) != ENGINE_OK && session == NULL);
}

/* A caller of 0.1.0: its session params end before the fields of the plan. */
static void check_old_session_params(const engine_model *model) {
  engine_error error = ENGINE_ERROR_INIT;
  engine_session *session = NULL;
  engine_session_stats stats = ENGINE_SESSION_STATS_INIT;
  engine_session_params params = ENGINE_SESSION_PARAMS_INIT;
  params.struct_size = offsetof(engine_session_params, kernels);
  params.mode = ENGINE_MODE_REFERENCE;
  params.kernels = "no such kernel";
  params.without_fusions = UINT32_MAX;
  CHECK_STATUS(engine_session_create(model, &params, &session, &error), ENGINE_OK);
  CHECK_STATUS(engine_session_stats_get(session, &stats), ENGINE_OK);
  CHECK(stats.mode == ENGINE_MODE_REFERENCE);
  engine_session_destroy(session);
}

static void check_sampler_params(void) {
  engine_error error = ENGINE_ERROR_INIT;
  engine_sampler *sampler = NULL;
  later_sampler_params later = {ENGINE_SAMPLER_PARAMS_INIT, 0};
  later.params.struct_size = (uint32_t)sizeof(later);
  CHECK_STATUS(engine_sampler_create(&later.params, &sampler, &error), ENGINE_OK);
  engine_sampler_destroy(sampler);
  later.later_field = 1;
  CHECK_STATUS(engine_sampler_create(&later.params, &sampler, &error), ENGINE_TOO_NEW);
  CHECK(sampler == NULL);
  later.params.struct_size = (uint32_t)sizeof(engine_sampler_params);
  later.params.top_p = -1.0f;
  CHECK_STATUS(engine_sampler_create(&later.params, &sampler, &error), ENGINE_ARGUMENT);
}

/* Bytes of `result` from `from` on are untouched. */
static int untouched(const void *result, size_t from, size_t size) {
  const unsigned char *p = result;
  for (size_t i = from; i < size; ++i) {
    if (p[i] != 0xA5) return 0;
  }
  return 1;
}

static void check_results(const engine_model *model) {
  engine_model_info info;
  memset(&info, 0xA5, sizeof(info));
  info.struct_size = offsetof(engine_model_info, n_layer);
  CHECK_STATUS(engine_model_info_get(model, &info), ENGINE_OK);
  CHECK(info.struct_size == offsetof(engine_model_info, n_layer));
  CHECK(info.n_vocab == TOY_VOCAB && info.n_tokens == TOY_VOCAB && info.n_embd == TOY_EMBD);
  CHECK(untouched(&info, info.struct_size, sizeof(info)));
  info.struct_size = 3;
  CHECK_STATUS(engine_model_info_get(model, &info), ENGINE_ARGUMENT);

  struct {
    engine_model_info info;
    unsigned char tail[16];
  } later;
  memset(&later, 0xA5, sizeof(later));
  later.info.struct_size = (uint32_t)sizeof(later);
  CHECK_STATUS(engine_model_info_get(model, &later.info), ENGINE_OK);
  CHECK(later.info.struct_size == sizeof(later));
  CHECK(strcmp(later.info.architecture, "llama") == 0 && strcmp(later.info.name, "abi toy") == 0);
  CHECK(later.info.n_head_kv == TOY_KV_HEADS && later.info.has_weights == 1 &&
        later.info.has_tokenizer == 1);
  CHECK(later.info.bos_id == 1 && later.info.eos_id == 2 && later.info.bytes_per_token > 0);
  CHECK(untouched(later.tail, 0, sizeof(later.tail)));

  engine_tensor_info tensor = ENGINE_TENSOR_INFO_INIT;
  CHECK(engine_model_tensor_count(model) == 21);
  CHECK_STATUS(engine_model_tensor_at(model, 0, &tensor), ENGINE_OK);
  CHECK(tensor.n_dims == 2 && tensor.dims[0] == TOY_EMBD && tensor.dims[1] == TOY_VOCAB);
  CHECK(tensor.dims[2] == 1 && tensor.file_offset % 32 == 0 && strcmp(tensor.format, "F32") == 0);
  CHECK(tensor.name_bytes == 17 && memcmp(tensor.name, "token_embd.weight", 17) == 0);

  /* An engine_error of an old caller: no more than it has is written. */
  struct {
    engine_error error;
  } old;
  memset(&old, 0xA5, sizeof(old));
  old.error.struct_size = offsetof(engine_error, offset);
  CHECK_STATUS(engine_model_open(NULL, NULL, &old.error), ENGINE_ARGUMENT);
  CHECK(old.error.code == ENGINE_ARGUMENT);
  CHECK(untouched(&old.error, old.error.struct_size, sizeof(old.error)));
}

static void check_hook_params(const engine_model *model) {
  engine_error error = ENGINE_ERROR_INIT;
  engine_session *session = NULL;
  engine_plan *plan = NULL;
  uint64_t hook = 0, refused = 0;
  const int32_t id = 5;
  later_hook_params later = {ENGINE_HOOK_PARAMS_INIT, 0};
  CHECK_STATUS(engine_session_create(model, NULL, &session, &error), ENGINE_OK);
  later.params.struct_size = (uint32_t)sizeof(later);
  later.params.action = ENGINE_HOOK_SCALE;
  later.params.site = "resid_post";
  CHECK_STATUS(engine_hook_register(session, &later.params, &hook, &error), ENGINE_OK);
  later.later_field = 1;
  CHECK_STATUS(engine_hook_register(session, &later.params, &refused, &error), ENGINE_TOO_NEW);
  CHECK_STATUS(engine_plan_create(model, NULL, &later.params, 1, &plan, &error), ENGINE_TOO_NEW);
  CHECK(plan == NULL);
  later.later_field = 0;
  later.params.struct_size = 0;
  CHECK_STATUS(engine_hook_register(session, &later.params, &refused, &error), ENGINE_ARGUMENT);
  later.params.struct_size = (uint32_t)sizeof(engine_hook_params);
  later.params.capture_flags = 4;
  CHECK_STATUS(engine_hook_register(session, &later.params, &refused, &error), ENGINE_TOO_NEW);

  engine_hook_stats stats;
  memset(&stats, 0xA5, sizeof(stats));
  stats.struct_size = offsetof(engine_hook_stats, prefill_positions);
  CHECK_STATUS(engine_session_decode(session, &id, 1, NULL, &error), ENGINE_OK);
  CHECK_STATUS(engine_hook_stats_get(session, hook, &stats), ENGINE_OK);
  CHECK(stats.calls == TOY_LAYERS && stats.positions == TOY_LAYERS);
  CHECK(untouched(&stats, stats.struct_size, sizeof(stats)));
  stats.struct_size = 3;
  CHECK_STATUS(engine_hook_stats_get(session, hook, &stats), ENGINE_ARGUMENT);

  engine_hook_site_info site;
  memset(&site, 0xA5, sizeof(site));
  site.struct_size = offsetof(engine_hook_site_info, width);
  CHECK_STATUS(engine_hook_site_at(model, 0, &site), ENGINE_OK);
  CHECK(site.site == 0 && site.per_layer == 0 && site.writable == 1);
  CHECK(untouched(&site, site.struct_size, sizeof(site)));
  site.struct_size = 3;
  CHECK_STATUS(engine_hook_site_at(model, 0, &site), ENGINE_ARGUMENT);

  engine_profile_entry entry;
  memset(&entry, 0xA5, sizeof(entry));
  entry.struct_size = offsetof(engine_profile_entry, op);
  CHECK_STATUS(engine_session_profile(session, 1, &error), ENGINE_OK);
  CHECK_STATUS(engine_session_decode(session, &id, 1, NULL, &error), ENGINE_OK);
  CHECK_STATUS(engine_session_profile_at(session, 0, &entry), ENGINE_OK);
  CHECK(entry.layer == -1 && entry.prefill == 0 && entry.calls == 1);
  CHECK(untouched(&entry, entry.struct_size, sizeof(entry)));
  entry.struct_size = 3;
  CHECK_STATUS(engine_session_profile_at(session, 0, &entry), ENGINE_ARGUMENT);
  engine_session_destroy(session);

  engine_plan *whole = NULL;
  uint64_t n = 0;
  char byte = 0;
  CHECK_STATUS(engine_plan_create(model, NULL, NULL, 0, &whole, &error), ENGINE_OK);
  CHECK_STATUS(engine_plan_json(whole, 2, &byte, 1, &n, &error), ENGINE_TOO_NEW);
  CHECK_STATUS(engine_plan_json(whole, 0, &byte, 1, &n, &error), ENGINE_BUFFER_TOO_SMALL);
  CHECK(n > 100 && byte == 0);
  engine_plan_destroy(whole);
}

static void check_buffers(const engine_model *model) {
  engine_error error = ENGINE_ERROR_INIT;
  const engine_chat_message message = {"user", "the cat", 7};
  int32_t ids[64], again[64];
  char text[256];
  uint64_t n = 0, needed = 0;
  uint32_t flags = 0;
  memset(ids, 0xA5, sizeof(ids));
  CHECK_STATUS(engine_tokenize(model, "the cat", 7, 0, 0, NULL, 0, &needed, &flags, &error),
               ENGINE_BUFFER_TOO_SMALL);
  CHECK(needed > 1 && needed < 16 && flags == ENGINE_TOKENIZE_BOS_ADDED);
  CHECK_STATUS(engine_tokenize(model, "the cat", 7, 0, 0, ids, needed - 1, &n, NULL, &error),
               ENGINE_BUFFER_TOO_SMALL);
  CHECK(n == needed && untouched(ids, 0, sizeof(ids)));
  CHECK_STATUS(engine_tokenize(model, "the cat", 7, 0, 0, ids, needed, &n, NULL, &error),
               ENGINE_OK);
  CHECK(n == needed && ids[0] == 1 && untouched(ids, 4 * n, sizeof(ids)));
  CHECK_STATUS(
      engine_tokenize(model, "the cat", 7, ENGINE_BOS_NONE, 0, again, 64, &n, NULL, &error),
      ENGINE_OK);
  CHECK(n == needed - 1 && memcmp(again, ids + 1, 4 * n) == 0);

  CHECK_STATUS(engine_detokenize(model, ids, needed, 0, NULL, 0, &n, &error),
               ENGINE_BUFFER_TOO_SMALL);
  CHECK(n == 7);
  memset(text, 0xA5, sizeof(text));
  CHECK_STATUS(engine_detokenize(model, ids, needed, 0, text, 6, &n, &error),
               ENGINE_BUFFER_TOO_SMALL);
  CHECK(n == 7 && untouched(text, 0, sizeof(text)));
  CHECK_STATUS(engine_detokenize(model, ids, needed, 0, text, 7, &n, &error), ENGINE_OK);
  CHECK(n == 7 && memcmp(text, "the cat", 7) == 0 && untouched(text, 7, sizeof(text)));

  CHECK_STATUS(engine_token_bytes(model, TOY_IM_END, 1, text, 3, &n), ENGINE_BUFFER_TOO_SMALL);
  CHECK(n == 10);
  CHECK_STATUS(engine_token_bytes(model, TOY_IM_END, 1, text, 10, &n), ENGINE_OK);
  CHECK(n == 10 && memcmp(text, "<|im_end|>", 10) == 0);
  CHECK_STATUS(engine_token_bytes(model, TOY_IM_END, 0, NULL, 0, &n), ENGINE_OK);
  CHECK(n == 0 && engine_token_end_reason(model, TOY_IM_END) == ENGINE_END_EOT);

  memset(text, 0, sizeof(text));
  CHECK_STATUS(engine_chat_render(model, &message, 1, 1, NULL, 0, &needed, &error),
               ENGINE_BUFFER_TOO_SMALL);
  CHECK_STATUS(engine_chat_render(model, &message, 1, 1, text, sizeof(text), &n, &error),
               ENGINE_OK);
  CHECK(n == needed &&
        strstr(text, "<|im_start|>user\nthe cat<|im_end|>\n<|im_start|>assistant\n"));
  CHECK_STATUS(engine_chat_tokenize(model, &message, 1, 1, NULL, 0, &needed, &error),
               ENGINE_BUFFER_TOO_SMALL);
  CHECK_STATUS(engine_chat_tokenize(model, &message, 1, 1, ids, 64, &n, &error), ENGINE_OK);
  int n_marks = 0;
  for (uint64_t i = 0; i < n; ++i) n_marks += ids[i] == TOY_IM_START || ids[i] == TOY_IM_END;
  CHECK(n == needed && n_marks == 3);
}

int main(void) {
  toy_file toy = toy_build(1, 1);
  engine_model *model = open_toy(&toy);
  if (model) {
    check_model_params(&toy);
    check_session_params(model);
    check_old_session_params(model);
    check_hook_params(model);
    check_sampler_params();
    check_results(model);
    check_buffers(model);
  }
  engine_model_close(model);
  free(toy.bytes);
  return abi_done();
}
