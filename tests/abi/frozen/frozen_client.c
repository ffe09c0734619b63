/* A client as it was written for 0.1.0: it knows nothing later. Compiled once against today's header and once
 * against each frozen one; frozen_headers.c runs them all. CLIENT_HEADER names the header, CLIENT_NAME the
 * function. */
#include CLIENT_HEADER

#include "frozen_client.h"

#include <string.h>

static int32_t decode_and_sample(const engine_model *model, int32_t mode, client_result *out) {
  engine_error error = ENGINE_ERROR_INIT;
  engine_session_params session_params = ENGINE_SESSION_PARAMS_INIT;
  engine_sampler_params sampler_params = ENGINE_SAMPLER_PARAMS_INIT;
  engine_session *session = NULL;
  engine_sampler *sampler = NULL;
  engine_text_decoder *decoder = NULL;
  uint64_t n_prompt = 0;
  int32_t prompt[CLIENT_PROMPT_IDS];
  uint32_t flags = 0;
  session_params.n_ctx = 96;
  session_params.n_threads = 2;
  session_params.prefill_chunk = 5;
  session_params.kv_type = ENGINE_KV_F32;
  session_params.mode = mode;
  sampler_params.has_seed = 1;
  sampler_params.seed = 42;
  sampler_params.temperature = 0.8f;
  sampler_params.top_k = 50;
  sampler_params.repeat_penalty = 1.1f;
  int32_t status =
      engine_tokenize(model, "the rain on the inn", 19, ENGINE_BOS_DEFAULT, ENGINE_SPECIAL_PLAIN,
                      prompt, CLIENT_PROMPT_IDS, &n_prompt, &flags, &error);
  if (status == ENGINE_OK) {
    status = engine_session_create(model, &session_params, &session, &error);
  }
  if (status == ENGINE_OK) status = engine_sampler_create(&sampler_params, &sampler, &error);
  if (status == ENGINE_OK) status = engine_text_decoder_create(model, 0, 0, &decoder);
  if (status == ENGINE_OK) {
    status = engine_session_decode(session, prompt, n_prompt, out->logits, &error);
  }
  for (int i = 0; i < CLIENT_TOKENS && status == ENGINE_OK; ++i) {
    const char *text = NULL;
    uint64_t n_bytes = 0;
    status = engine_sampler_sample(sampler, out->logits, CLIENT_VOCAB, &out->ids[i], &error);
    if (status == ENGINE_OK) {
      status = engine_session_decode(session, &out->ids[i], 1, out->logits, &error);
    }
    if (status == ENGINE_OK)
      status = engine_text_decoder_push(decoder, out->ids[i], &text, &n_bytes);
    if (status == ENGINE_OK && out->text_bytes + n_bytes <= sizeof(out->text)) {
      memcpy(out->text + out->text_bytes, text, n_bytes);
      out->text_bytes += n_bytes;
    }
  }
  if (status == ENGINE_OK) status = engine_session_truncate(session, n_prompt);
  if (status == ENGINE_OK) {
    status = engine_session_decode_all(session, out->ids, 2, out->two_rows, &error);
  }
  if (status == ENGINE_OK) {
    engine_session_stats stats = ENGINE_SESSION_STATS_INIT;
    status = engine_session_stats_get(session, &stats);
    out->n_threads = stats.n_threads;
    out->n_ctx = stats.n_ctx;
    out->decoded_tokens = stats.decoded_tokens;
    out->kv_bytes = stats.kv_bytes;
    out->position = engine_session_position(session);
  }
  if (status == ENGINE_OK) {
    const char *name = NULL;
    status = engine_session_kernel_at(session, 0, &name, &out->kernel_calls);
  }
  engine_text_decoder_destroy(decoder);
  engine_sampler_destroy(sampler);
  engine_session_destroy(session);
  return status;
}

int32_t CLIENT_NAME(const void *file, uint64_t n_bytes, client_result out[CLIENT_RUNS]) {
  engine_error error = ENGINE_ERROR_INIT;
  engine_model_params params = ENGINE_MODEL_PARAMS_INIT;
  engine_model_info info = ENGINE_MODEL_INFO_INIT;
  engine_model *model = NULL;
  params.data = file;
  params.length = n_bytes;
  if (engine_api_version() >> 16 != ENGINE_API_VERSION >> 16) return ENGINE_TOO_NEW;
  int32_t status = engine_model_open(&params, &model, &error);
  if (status == ENGINE_OK) status = engine_model_info_get(model, &info);
  if (status == ENGINE_OK && info.n_vocab != CLIENT_VOCAB) status = ENGINE_INTERNAL;
  if (status == ENGINE_OK) status = decode_and_sample(model, ENGINE_MODE_DEFAULT, &out[0]);
  if (status == ENGINE_OK) status = decode_and_sample(model, ENGINE_MODE_REFERENCE, &out[1]);
  engine_model_close(model);
  /* An error still comes in a struct of the old size. */
  params.data = "no model";
  params.length = 8;
  if (status == ENGINE_OK &&
      (engine_model_open(&params, &model, &error) != ENGINE_FILE_FORMAT || !error.message[0])) {
    status = ENGINE_INTERNAL;
  }
  return status;
}
