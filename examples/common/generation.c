/* One answer of a model: prefill, sample, stream whole characters, measure. */
#define _POSIX_C_SOURCE 200809L

#include "generation.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "read_bandwidth.h"

volatile sig_atomic_t generation_stop = 0;

void id_list_append(id_list *list, int32_t id) {
  if (list->n == list->capacity) {
    list->capacity = list->capacity ? 2 * list->capacity : 256;
    list->ids = cli_resize(list->ids, list->capacity * sizeof(int32_t));
  }
  list->ids[list->n++] = id;
}

static void add_text(generation_result *result, const char *text, uint64_t n_bytes, int stream) {
  result->text = cli_resize(result->text, result->text_bytes + n_bytes + 1);
  if (n_bytes) memcpy(result->text + result->text_bytes, text, n_bytes);
  result->text_bytes += n_bytes;
  result->text[result->text_bytes] = '\0';
  if (stream && n_bytes) {
    fwrite(text, 1, n_bytes, stdout);
    fflush(stdout);
  }
}

static const char *end_name(int32_t reason) {
  switch (reason) {
    case ENGINE_END_EOS: return "eos";
    case ENGINE_END_EOT: return "eot";
    case ENGINE_END_EOM: return "eom";
    case ENGINE_END_FIM: return "fim";
    default: return "name";
  }
}

/* The loop after the prompt: sample, show, feed back. */
static int32_t generate_tokens(const generation_request *request, engine_text_decoder *decoder,
                               float *logits, uint64_t n_ctx, generation_result *result,
                               engine_error *error) {
  result->stop_reason = "length";
  while (result->ids.n < request->max_tokens) {
    if (generation_stop) {
      result->stop_reason = "stopped";
      return ENGINE_OK;
    }
    int32_t id = 0;
    const double start = cli_seconds();
    int32_t status = engine_sampler_sample(request->sampler, logits, request->n_vocab, &id, error);
    if (status != ENGINE_OK) return status;
    result->decode_seconds += cli_seconds() - start;
    id_list_append(&result->ids, id);
    const int32_t end = engine_token_end_reason(request->model, id);
    if (end != ENGINE_END_NONE && !request->ignore_end) {
      result->stop_reason = end_name(end);
      return ENGINE_OK;
    }
    const char *text = NULL;
    uint64_t n_bytes = 0;
    status = engine_text_decoder_push(decoder, id, &text, &n_bytes);
    if (status != ENGINE_OK) return status;
    add_text(result, text, n_bytes, request->stream);
    if (result->ids.n == request->max_tokens) return ENGINE_OK;
    if (engine_session_position(request->session) == n_ctx) {
      result->stop_reason = "context";
      return ENGINE_OK;
    }
    const double step_start = cli_seconds();
    status = engine_session_decode(request->session, &id, 1, logits, error);
    if (status == ENGINE_CANCELLED) {
      result->stop_reason = "stopped";
      return ENGINE_OK;
    }
    if (status != ENGINE_OK) return status;
    result->decode_seconds += cli_seconds() - step_start;
    result->n_fed = result->ids.n;
    ++result->n_decoded_tokens;
  }
  return ENGINE_OK;
}

int32_t generation_run(const generation_request *request, generation_result *result,
                       engine_error *error) {
  memset(result, 0, sizeof(*result));
  result->stop_reason = "stopped";
  add_text(result, "", 0, 0);
  engine_session_stats stats = ENGINE_SESSION_STATS_INIT;
  int32_t status = engine_session_stats_get(request->session, &stats);
  if (status != ENGINE_OK) return status;
  engine_text_decoder *decoder = NULL;
  status = engine_text_decoder_create(request->model, 0, request->at_start, &decoder);
  if (status != ENGINE_OK) return status;
  float *logits = cli_allocate(request->n_vocab * sizeof(float));

  for (uint64_t i = 0; i < request->n_prompt && status == ENGINE_OK; ++i) {
    status = engine_sampler_accept(request->sampler, request->prompt[i]);
  }
  if (status == ENGINE_OK) {
    const double start = cli_seconds();
    status =
        engine_session_decode(request->session, request->prompt, request->n_prompt, logits, error);
    result->prefill_seconds = cli_seconds() - start;
  }
  if (status == ENGINE_OK) {
    status = generate_tokens(request, decoder, logits, stats.n_ctx, result, error);
    const char *rest = NULL; /* bytes of a character that never became whole */
    uint64_t n_rest = 0;
    if (engine_text_decoder_flush(decoder, &rest, &n_rest) == ENGINE_OK) {
      add_text(result, n_rest ? "\xEF\xBF\xBD" : "", n_rest ? 3 : 0, request->stream);
    }
  }
  free(logits);
  engine_text_decoder_destroy(decoder);
  return status;
}

void generation_result_free(generation_result *result) {
  free(result->ids.ids);
  free(result->text);
  memset(result, 0, sizeof(*result));
}

generation_speed generation_measure(const generation_request *request,
                                    const generation_result *result) {
  generation_speed speed;
  memset(&speed, 0, sizeof(speed));
  engine_session_stats stats = ENGINE_SESSION_STATS_INIT;
  engine_session_stats_get(request->session, &stats);
  speed.n_prompt = request->n_prompt;
  speed.n_generated = result->ids.n;
  speed.n_threads = stats.n_threads;
  speed.bytes_per_token = stats.bytes_per_token;
  if (result->prefill_seconds > 0) {
    speed.prefill_tok_s = (double)request->n_prompt / result->prefill_seconds;
  }
  if (result->n_decoded_tokens > 0 && result->decode_seconds > 0) {
    speed.tok_s = (double)result->n_decoded_tokens / result->decode_seconds;
  }
  speed.gb_s = speed.tok_s * (double)stats.bytes_per_token * 1e-9;
  speed.read_bandwidth_gb_s = read_bandwidth_gb_s(stats.n_threads);
  if (speed.read_bandwidth_gb_s > 0) {
    speed.roofline_percent = 100.0 * speed.gb_s / speed.read_bandwidth_gb_s;
  }
  return speed;
}

int generation_open_model(const char *path, uint32_t flags, engine_model **model,
                          engine_model_info *info) {
  engine_model_params params = ENGINE_MODEL_PARAMS_INIT;
  engine_error error = ENGINE_ERROR_INIT;
  const engine_model_info empty = ENGINE_MODEL_INFO_INIT;
  params.path = path;
  params.flags = flags;
  int32_t status = engine_model_open(&params, model, &error);
  if (status != ENGINE_OK) return cli_report(path, status, &error);
  *info = empty;
  status = engine_model_info_get(*model, info);
  if (status == ENGINE_OK) return CLI_OK;
  engine_model_close(*model);
  *model = NULL;
  return cli_report(path, status, NULL);
}

static void reserve_ids(id_list *ids, uint64_t n) {
  ids->capacity = n;
  ids->ids = cli_resize(ids->ids, n * sizeof(int32_t));
}

int generation_tokenize(const engine_model *model, const char *text, uint64_t n_bytes, int32_t bos,
                        int32_t special, id_list *ids) {
  engine_error error = ENGINE_ERROR_INIT;
  ids->n = 0;
  reserve_ids(ids, n_bytes + 16); /* mostly enough: few tokens are shorter than a byte */
  int32_t status = engine_tokenize(model, text, n_bytes, bos, special, ids->ids, ids->capacity,
                                   &ids->n, NULL, &error);
  if (status == ENGINE_BUFFER_TOO_SMALL) {
    reserve_ids(ids, ids->n);
    status = engine_tokenize(model, text, n_bytes, bos, special, ids->ids, ids->capacity, &ids->n,
                             NULL, &error);
  }
  return status == ENGINE_OK ? CLI_OK : cli_report("cannot tokenize the text", status, &error);
}

int32_t generation_chat_ids(const engine_model *model, const engine_chat_message *messages,
                            uint64_t n_messages, id_list *ids, engine_error *error) {
  ids->n = 0;
  int32_t status =
      engine_chat_tokenize(model, messages, n_messages, 1, ids->ids, ids->capacity, &ids->n, error);
  if (status == ENGINE_BUFFER_TOO_SMALL) {
    reserve_ids(ids, ids->n);
    status = engine_chat_tokenize(model, messages, n_messages, 1, ids->ids, ids->capacity, &ids->n,
                                  error);
  }
  return status;
}
