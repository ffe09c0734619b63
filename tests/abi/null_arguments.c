/* NULL handles and pointers everywhere: an ARGUMENT or a harmless value, never a crash. */
#include <stddef.h>

#include "abi_check.h"
#include "abi_toy.h"
#include "engine.h"

static void check_plan_and_hooks_without_handles(void) {
  engine_error error = ENGINE_ERROR_INIT;
  engine_profile_entry entry = ENGINE_PROFILE_ENTRY_INIT;
  engine_hook_site_info site = ENGINE_HOOK_SITE_INFO_INIT;
  engine_hook_params hook_params = ENGINE_HOOK_PARAMS_INIT;
  engine_hook_stats hook_stats = ENGINE_HOOK_STATS_INIT;
  engine_plan *plan = (engine_plan *)&error; /* must be set to NULL on failure */
  const char *name = NULL;
  uint64_t n = 0;
  float values[1] = {0};
  char text[8];
  CHECK_STATUS(engine_session_fusion_at(NULL, 0, &name, &n), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_session_profile(NULL, 1, &error), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_session_profile_at(NULL, 0, &entry), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_hook_site_at(NULL, 0, &site), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_hook_register(NULL, &hook_params, &n, &error), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_hook_remove(NULL, 1, &error), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_hook_scope_open(NULL, &n, &error), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_hook_scope_close(NULL, 1, &error), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_hook_stats_get(NULL, 1, &hook_stats), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_session_tokens_are(NULL, ENGINE_TOKENS_AUTO), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_unembed(NULL, values, 1, values, &error), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_plan_create(NULL, NULL, NULL, 0, &plan, &error), ENGINE_ARGUMENT);
  CHECK(plan == NULL && error.code == ENGINE_ARGUMENT);
  plan = (engine_plan *)&error;
  CHECK_STATUS(engine_session_plan(NULL, &plan, &error), ENGINE_ARGUMENT);
  CHECK(plan == NULL);
  engine_plan_destroy(NULL);
  CHECK_STATUS(engine_plan_json(NULL, 0, text, 8, &n, &error), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_plan_verify(NULL, "{}", 2, &error), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_plan_diff(NULL, 2, "{}", 2, text, 8, &n, &error), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_plan_diff("{}", 2, NULL, 2, text, 8, &n, &error), ENGINE_ARGUMENT);
}

/* Calls that need no handle at all. */
static void check_without_handles(void) {
  engine_error error = ENGINE_ERROR_INIT;
  engine_model_info info = ENGINE_MODEL_INFO_INIT;
  engine_metadata entry = ENGINE_METADATA_INIT;
  engine_tensor_info tensor = ENGINE_TENSOR_INFO_INIT;
  engine_session_stats stats = ENGINE_SESSION_STATS_INIT;
  engine_model_params params = ENGINE_MODEL_PARAMS_INIT;
  engine_model *model = NULL;
  engine_session *session = NULL;
  engine_text_decoder *decoder = NULL;
  const engine_chat_message message = {"user", "hi", 2};
  const char *text = NULL;
  uint64_t n = 7;
  int32_t id = 0;
  float logits[1] = {0};
  char bytes[8];

  CHECK_STATUS(engine_model_open(NULL, &model, &error), ENGINE_ARGUMENT);
  CHECK(error.code == ENGINE_ARGUMENT && error.message[0] && error.offset == UINT64_MAX);
  CHECK_STATUS(engine_model_open(NULL, &model, NULL), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_model_open(&params, NULL, &error), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_model_open(&params, &model, &error), ENGINE_ARGUMENT); /* no source */
  engine_model_close(NULL);
  CHECK_STATUS(engine_model_info_get(NULL, &info), ENGINE_ARGUMENT);
  CHECK(engine_model_metadata_count(NULL) == 0);
  CHECK_STATUS(engine_model_metadata_at(NULL, 0, &entry), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_model_metadata_find(NULL, "general.name", &entry), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_metadata_string(NULL, 0, &text, &n), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_metadata_string(&entry, 0, &text, &n), ENGINE_ARGUMENT);
  CHECK(engine_model_tensor_count(NULL) == 0);
  CHECK_STATUS(engine_model_tensor_at(NULL, 0, &tensor), ENGINE_ARGUMENT);
  CHECK(engine_model_target_at(NULL, 0) == NULL);
  CHECK(engine_pretokenizer_at(UINT32_MAX, NULL) == NULL);
  CHECK(engine_chat_template_at(UINT32_MAX) == NULL);
  CHECK(engine_chat_tokenize_with(NULL, NULL, 0, NULL, NULL, 0, NULL, NULL) == ENGINE_ARGUMENT);
  CHECK(engine_chat_render_with(NULL, NULL, 0, NULL, NULL, 0, NULL, NULL) == ENGINE_ARGUMENT);
  CHECK(engine_memory_forecast(NULL, NULL, NULL, NULL) == ENGINE_ARGUMENT);
  CHECK_STATUS(engine_tokenize(NULL, "a", 1, 0, 0, &id, 1, &n, NULL, &error), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_token_bytes(NULL, 0, 0, bytes, 8, &n), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_detokenize(NULL, &id, 1, 0, bytes, 8, &n, &error), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_text_decoder_create(NULL, 0, 0, &decoder), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_text_decoder_push(NULL, 0, &text, &n), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_text_decoder_flush(NULL, &text, &n), ENGINE_ARGUMENT);
  engine_text_decoder_destroy(NULL);
  CHECK(engine_token_end_reason(NULL, 0) == ENGINE_END_NONE);
  CHECK_STATUS(engine_chat_template(NULL, &text, &n), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_chat_tokenize(NULL, &message, 1, 1, &id, 1, &n, &error), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_chat_render(NULL, &message, 1, 1, bytes, 8, &n, &error), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_session_create(NULL, NULL, &session, &error), ENGINE_ARGUMENT);
  CHECK(session == NULL);
  engine_session_destroy(NULL);
  CHECK_STATUS(engine_session_decode(NULL, &id, 1, logits, &error), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_session_decode_all(NULL, &id, 1, logits, &error), ENGINE_ARGUMENT);
  CHECK(engine_session_position(NULL) == 0);
  CHECK_STATUS(engine_session_truncate(NULL, 0), ENGINE_ARGUMENT);
  engine_session_cancel(NULL);
  CHECK_STATUS(engine_session_stats_get(NULL, &stats), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_session_kernel_at(NULL, 0, &text, &n), ENGINE_ARGUMENT);
  check_plan_and_hooks_without_handles();
  CHECK_STATUS(engine_sampler_create(NULL, NULL, &error), ENGINE_ARGUMENT);
  engine_sampler_destroy(NULL);
  CHECK(engine_sampler_seed(NULL) == 0);
  CHECK_STATUS(engine_sampler_accept(NULL, 0), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_sampler_sample(NULL, logits, 1, &id, &error), ENGINE_ARGUMENT);
  CHECK(engine_status_name(-5) && engine_status_name(12345) && engine_version_string());
}

/* A good handle, and NULL for each other pointer in turn. */
static void check_with_model(engine_model *model) {
  engine_error error = ENGINE_ERROR_INIT;
  engine_metadata entry = ENGINE_METADATA_INIT;
  engine_text_decoder *decoder = NULL;
  engine_chat_message message = {"user", "hi", 2};
  const char *text = NULL;
  uint64_t n = 0;
  int32_t ids[64];
  char bytes[64];
  CHECK_STATUS(engine_model_info_get(model, NULL), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_model_metadata_at(model, 0, NULL), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_model_metadata_at(model, UINT64_MAX, &entry), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_model_metadata_find(model, NULL, &entry), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_model_metadata_find(model, "general.name", NULL), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_model_metadata_find(model, "no.such.key", &entry), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_model_metadata_find(model, "tokenizer.ggml.tokens", &entry), ENGINE_OK);
  CHECK_STATUS(engine_metadata_string(&entry, 0, NULL, &n), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_metadata_string(&entry, 0, &text, NULL), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_metadata_string(&entry, entry.count, &text, &n), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_model_tensor_at(model, 0, NULL), ENGINE_ARGUMENT);
  CHECK(engine_model_target_at(model, UINT32_MAX) == NULL);
  CHECK_STATUS(engine_tokenize(model, NULL, 1, 0, 0, ids, 64, &n, NULL, &error), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_tokenize(model, NULL, 0, 0, 0, ids, 64, &n, NULL, &error), ENGINE_OK);
  CHECK_STATUS(engine_tokenize(model, "a", 1, 0, 0, NULL, 4, &n, NULL, &error), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_tokenize(model, "a", 1, 0, 0, ids, 64, NULL, NULL, &error), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_tokenize(model, "a", 1, 3, 0, ids, 64, &n, NULL, &error), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_tokenize(model, "a", 1, 0, -1, ids, 64, &n, NULL, &error), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_tokenize(model, "a", 1, 0, 0, ids, 64, &n, NULL, NULL), ENGINE_OK);
  CHECK_STATUS(engine_token_bytes(model, 5, 0, NULL, 4, &n), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_token_bytes(model, 5, 0, bytes, 4, NULL), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_token_bytes(model, -1, 0, bytes, 4, &n), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_token_bytes(model, TOY_VOCAB, 0, bytes, 4, &n), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_detokenize(model, NULL, 1, 0, bytes, 64, &n, &error), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_detokenize(model, NULL, 0, 0, NULL, 0, &n, &error), ENGINE_OK);
  ids[0] = TOY_VOCAB;
  CHECK_STATUS(engine_detokenize(model, ids, 1, 0, bytes, 64, &n, &error), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_text_decoder_create(model, 0, 0, NULL), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_text_decoder_create(model, 0, 0, &decoder), ENGINE_OK);
  CHECK_STATUS(engine_text_decoder_push(decoder, 5, NULL, &n), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_text_decoder_push(decoder, 5, &text, NULL), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_text_decoder_push(decoder, -1, &text, &n), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_text_decoder_push(decoder, TOY_VOCAB, &text, &n), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_text_decoder_flush(decoder, NULL, &n), ENGINE_ARGUMENT);
  engine_text_decoder_destroy(decoder);
  CHECK(engine_token_end_reason(model, -1) == ENGINE_END_NONE);
  CHECK(engine_token_end_reason(model, INT32_MAX) == ENGINE_END_NONE);
  CHECK_STATUS(engine_chat_template(model, NULL, &n), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_chat_tokenize(model, NULL, 1, 1, ids, 64, &n, &error), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_chat_tokenize(model, &message, 0, 1, ids, 64, &n, &error), ENGINE_ARGUMENT);
  message.content = NULL;
  CHECK_STATUS(engine_chat_render(model, &message, 1, 1, bytes, 64, &n, &error), ENGINE_ARGUMENT);
  message.role = NULL;
  CHECK_STATUS(engine_chat_render(model, &message, 1, 1, bytes, 64, &n, &error), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_session_create(model, NULL, NULL, &error), ENGINE_ARGUMENT);
}

static void check_plan(engine_model *model) {
  engine_error error = ENGINE_ERROR_INIT;
  engine_hook_site_info site = ENGINE_HOOK_SITE_INFO_INIT;
  engine_hook_params hook = ENGINE_HOOK_PARAMS_INIT;
  engine_plan *plan = NULL;
  uint64_t n = 0;
  char text[8], *json = NULL;
  CHECK_STATUS(engine_hook_site_at(model, 0, NULL), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_hook_site_at(model, UINT32_MAX, &site), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_plan_create(model, NULL, NULL, 0, NULL, &error), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_plan_create(model, NULL, NULL, 1, &plan, &error), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_plan_create(model, NULL, &hook, 1, &plan, &error), ENGINE_ARGUMENT);
  CHECK(plan == NULL); /* the hook names no site */
  CHECK_STATUS(engine_plan_create(model, NULL, NULL, 0, &plan, NULL), ENGINE_OK);
  CHECK_STATUS(engine_plan_json(plan, 0, NULL, 8, &n, &error), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_plan_json(plan, 0, text, 8, NULL, &error), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_plan_json(plan, 0, NULL, 0, &n, NULL), ENGINE_BUFFER_TOO_SMALL);
  json = calloc(1, n + 1);
  if (!json) abort();
  CHECK_STATUS(engine_plan_json(plan, 0, json, n, &n, NULL), ENGINE_OK);
  CHECK_STATUS(engine_plan_verify(model, NULL, n, &error), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_plan_verify(model, json, 0, &error), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_plan_verify(NULL, json, n, &error), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_plan_verify(model, json, n, NULL), ENGINE_OK);
  CHECK_STATUS(engine_plan_diff(json, n, json, n, NULL, 0, NULL, &error), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_plan_diff(json, n, json, n, NULL, 8, &n, &error), ENGINE_ARGUMENT);
  free(json);
  engine_plan_destroy(plan);
}

static void check_hooks(engine_session *session) {
  engine_error error = ENGINE_ERROR_INIT;
  engine_hook_params hook = ENGINE_HOOK_PARAMS_INIT;
  engine_hook_stats stats = ENGINE_HOOK_STATS_INIT;
  engine_profile_entry entry = ENGINE_PROFILE_ENTRY_INIT;
  engine_plan *plan = NULL;
  const char *name = NULL;
  uint64_t n = 0;
  float row[TOY_EMBD] = {0}, logits[TOY_VOCAB];
  row[0] = 1.0f;
  CHECK_STATUS(engine_session_fusion_at(session, 0, NULL, &n), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_session_fusion_at(session, 0, &name, NULL), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_session_fusion_at(session, 6, &name, &n), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_session_profile_at(session, 0, &entry), ENGINE_ARGUMENT); /* not started */
  CHECK_STATUS(engine_session_profile(session, 2, &error), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_session_profile(session, 1, NULL), ENGINE_OK);
  CHECK_STATUS(engine_session_profile_at(session, 0, NULL), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_session_profile_at(session, UINT32_MAX, &entry), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_session_plan(session, NULL, &error), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_session_plan(session, &plan, NULL), ENGINE_OK);
  engine_plan_destroy(plan);
  CHECK_STATUS(engine_hook_register(session, NULL, &n, &error), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_hook_register(session, &hook, &n, &error), ENGINE_ARGUMENT); /* no site */
  hook.site = "resid_post";
  CHECK_STATUS(engine_hook_register(session, &hook, &n, &error), ENGINE_ARGUMENT); /* no action */
  hook.action = ENGINE_HOOK_CAPTURE;
  CHECK_STATUS(engine_hook_register(session, &hook, &n, &error), ENGINE_ARGUMENT); /* no buffer */
  hook.action = ENGINE_HOOK_READ;
  CHECK_STATUS(engine_hook_register(session, &hook, &n, &error), ENGINE_ARGUMENT); /* no callback */
  hook.action = ENGINE_HOOK_ADD;
  CHECK_STATUS(engine_hook_register(session, &hook, &n, &error), ENGINE_ARGUMENT); /* no values */
  hook.n_values = TOY_EMBD;
  CHECK_STATUS(engine_hook_register(session, &hook, &n, &error), ENGINE_ARGUMENT);
  hook.action = ENGINE_HOOK_SCALE;
  hook.n_values = 0;
  hook.n_layers = 1;
  CHECK_STATUS(engine_hook_register(session, &hook, &n, &error), ENGINE_ARGUMENT);
  hook.n_layers = 0;
  hook.n_heads = 1;
  CHECK_STATUS(engine_hook_register(session, &hook, &n, &error), ENGINE_ARGUMENT);
  hook.n_heads = 0;
  hook.n_sequences = 1;
  CHECK_STATUS(engine_hook_register(session, &hook, &n, &error), ENGINE_ARGUMENT);
  hook.n_sequences = 0;
  hook.position_select = ENGINE_POSITIONS_LIST;
  hook.n_positions = 1;
  CHECK_STATUS(engine_hook_register(session, &hook, &n, &error), ENGINE_ARGUMENT);
  hook.position_select = ENGINE_POSITIONS_ALL;
  hook.n_positions = 0;
  CHECK_STATUS(engine_hook_register(session, &hook, NULL, &error), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_hook_register(session, &hook, &n, NULL), ENGINE_OK);
  CHECK_STATUS(engine_hook_stats_get(session, n, NULL), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_hook_stats_get(session, n + 1, &stats), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_hook_remove(session, n + 1, &error), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_hook_remove(session, n, NULL), ENGINE_OK);
  CHECK_STATUS(engine_hook_remove(session, n, &error), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_hook_scope_open(session, NULL, &error), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_hook_scope_close(session, 77, &error), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_hook_scope_close(session, 0, &error), ENGINE_ARGUMENT); /* is the session */
  CHECK_STATUS(engine_session_tokens_are(session, -1), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_session_tokens_are(session, 4), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_unembed(session, NULL, 1, logits, &error), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_unembed(session, row, 1, NULL, &error), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_unembed(session, row, 0, logits, &error), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_unembed(session, row, 1, logits, NULL), ENGINE_OK);
}

static void check_with_session(engine_model *model) {
  engine_error error = ENGINE_ERROR_INIT;
  engine_session *session = NULL;
  engine_sampler *sampler = NULL;
  const char *name = NULL;
  uint64_t calls = 0;
  int32_t id = 5;
  float logits[TOY_VOCAB] = {0};
  CHECK_STATUS(engine_session_create(model, NULL, &session, &error), ENGINE_OK);
  CHECK_STATUS(engine_session_decode(session, NULL, 1, logits, &error), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_session_decode(session, &id, 0, logits, &error), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_session_decode_all(session, &id, 1, NULL, &error), ENGINE_ARGUMENT);
  id = -1;
  CHECK_STATUS(engine_session_decode(session, &id, 1, logits, &error), ENGINE_ARGUMENT);
  id = TOY_VOCAB;
  CHECK_STATUS(engine_session_decode(session, &id, 1, logits, &error), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_session_truncate(session, 1), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_session_truncate(session, UINT64_MAX), ENGINE_ARGUMENT);
  CHECK(engine_session_position(session) == 0);
  id = 5;
  CHECK_STATUS(engine_session_decode(session, &id, 1, NULL, NULL), ENGINE_OK);
  CHECK(engine_session_position(session) == 1);
  CHECK_STATUS(engine_session_stats_get(session, NULL), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_session_kernel_at(session, 0, NULL, &calls), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_session_kernel_at(session, 0, &name, NULL), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_session_kernel_at(session, UINT32_MAX, &name, &calls), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_session_kernel_at(session, 0, &name, &calls), ENGINE_OK);
  CHECK(calls > 0 && name && name[0]);
  check_hooks(session);
  engine_session_destroy(session);

  CHECK_STATUS(engine_sampler_create(NULL, &sampler, NULL), ENGINE_OK);
  CHECK_STATUS(engine_sampler_accept(sampler, -1), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_sampler_sample(sampler, NULL, TOY_VOCAB, &id, &error), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_sampler_sample(sampler, logits, 0, &id, &error), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_sampler_sample(sampler, logits, TOY_VOCAB, NULL, &error), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_sampler_sample(sampler, logits, TOY_VOCAB, &id, NULL), ENGINE_OK);
  CHECK(id == 0); /* all equal: the lowest id */
  engine_sampler_destroy(sampler);
}

int main(void) {
  engine_error error = ENGINE_ERROR_INIT;
  engine_model_params params = ENGINE_MODEL_PARAMS_INIT;
  engine_model *model = NULL;
  toy_file toy = toy_build(1, 1);
  check_without_handles();
  params.data = toy.bytes;
  params.length = toy.n_bytes;
  CHECK_STATUS(engine_model_open(&params, &model, &error), ENGINE_OK);
  if (model) {
    check_with_model(model);
    check_plan(model);
    check_with_session(model);
  } else {
    fprintf(stderr, "%s [%s]\n", error.message, error.name);
  }
  engine_model_close(model);
  free(toy.bytes);
  return abi_done();
}
