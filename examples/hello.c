/* hello: the whole library in one page. Opens a model, decodes a prompt, prints 32 greedy tokens.
 *
 *   hello MODEL.gguf ["The capital of France is"]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine.h"

static engine_error error = ENGINE_ERROR_INIT;

static void check(int32_t status) {
  if (status == ENGINE_OK) return;
  fprintf(stderr, "hello: %s: %s [name %s] [file offset %lld]\n", engine_status_name(status),
          error.message, error.name, (long long)error.offset);
  exit(1);
}

int main(int argc, char **argv) {
  if (argc < 2 || argc > 3 || strcmp(argv[1], "--help") == 0) {
    fputs("hello MODEL [TEXT]: continue a text\nExample: hello model.gguf \"Once upon\"\n",
          argc == 2 ? stdout : stderr);
    return argc == 2 ? 0 : 2;
  }
  const char *prompt = argc == 3 ? argv[2] : "The capital of France is", *text;
  engine_model_params params = ENGINE_MODEL_PARAMS_INIT;
  engine_model_info info = ENGINE_MODEL_INFO_INIT;
  engine_model *model;
  engine_session *session;
  engine_sampler *sampler;
  engine_text_decoder *decoder;
  params.path = argv[1];
  check(engine_model_open(&params, &model, &error));
  check(engine_model_info_get(model, &info));
  check(engine_session_create(model, NULL, &session, &error)); /* NULL: the defaults */
  check(engine_sampler_create(NULL, &sampler, &error));        /* NULL: greedy */
  check(engine_text_decoder_create(model, 0, 0, &decoder));
  int32_t ids[4096];
  uint64_t n_ids, n_bytes;
  check(engine_tokenize(model, prompt, strlen(prompt), ENGINE_BOS_DEFAULT, ENGINE_SPECIAL_PLAIN,
                        ids, 4096, &n_ids, NULL, &error));
  float *logits = malloc((size_t)info.n_vocab * sizeof(float));
  check(engine_session_decode(session, ids, n_ids, logits, &error));
  fputs(prompt, stdout);
  for (int i = 0; i < 32; ++i) {
    check(engine_sampler_sample(sampler, logits, (uint64_t)info.n_vocab, &ids[0], &error));
    if (engine_token_end_reason(model, ids[0]) != ENGINE_END_NONE) break;
    check(engine_text_decoder_push(decoder, ids[0], &text, &n_bytes));
    fwrite(text, 1, n_bytes, stdout);
    check(engine_session_decode(session, ids, 1, logits, &error));
  }
  putchar('\n');
  free(logits);
  engine_text_decoder_destroy(decoder);
  engine_sampler_destroy(sampler);
  engine_session_destroy(session);
  engine_model_close(model);
}
