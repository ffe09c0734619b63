/* Sampling and streaming of odd tokens (case 36 without its grammar): bytes that are no characters by
 * themselves, control tokens, end tokens, and logits that leave no choice. */
#include <math.h>

#include "abi_check.h"
#include "abi_session.h"

static int32_t byte_token(int byte) { return 3 + byte; } /* the toy's layout */

/* What a sampler takes from logits in which one id is far ahead. */
static int32_t sampled(engine_sampler *sampler, int32_t id) {
  float logits[TOY_VOCAB];
  int32_t got = -1;
  engine_error error = ENGINE_ERROR_INIT;
  for (int i = 0; i < TOY_VOCAB; ++i) logits[i] = (float)(i % 7);
  logits[id] = 1000.0f;
  CHECK_STATUS(engine_sampler_sample(sampler, logits, TOY_VOCAB, &got, &error), ENGINE_OK);
  return got;
}

static void check_push(engine_text_decoder *decoder, int32_t id, const char *expected) {
  const char *text = NULL;
  uint64_t n = 99;
  CHECK_STATUS(engine_text_decoder_push(decoder, id, &text, &n), ENGINE_OK);
  CHECK(n == strlen(expected) && text && strcmp(text, expected) == 0);
}

static void check_flush(engine_text_decoder *decoder, const char *expected) {
  const char *text = NULL;
  uint64_t n = 99;
  CHECK_STATUS(engine_text_decoder_flush(decoder, &text, &n), ENGINE_OK);
  CHECK(n == strlen(expected) && text && memcmp(text, expected, n) == 0);
}

/* The ids of a character's bytes, each the clear winner: sampled as they are, shown when whole. */
static void check_bytes(const engine_model *model, engine_sampler *sampler) {
  static const unsigned char kCharacter[] = {0xE6, 0xAD, 0x8C}; /* U+6B4C */
  engine_text_decoder *decoder = NULL;
  CHECK_STATUS(engine_text_decoder_create(model, 0, 0, &decoder), ENGINE_OK);
  for (int i = 0; i < 3; ++i) {
    const int32_t id = sampled(sampler, byte_token(kCharacter[i]));
    CHECK(id == byte_token(kCharacter[i]));
    CHECK(engine_token_end_reason(model, id) == ENGINE_END_NONE);
    check_push(decoder, id, i < 2 ? "" : "\xE6\xAD\x8C");
  }
  check_push(decoder, sampled(sampler, byte_token(0xE6)), "");
  check_push(decoder, sampled(sampler, byte_token(0xAD)), "");
  check_flush(decoder, "\xE6\xAD"); /* stopped in the middle */
  check_push(decoder, sampled(sampler, byte_token(0x80)), "\xEF\xBF\xBD"); /* never a character */
  check_push(decoder, sampled(sampler, byte_token(0xF0)), "");
  check_push(decoder, sampled(sampler, 262),
             "\xEF\xBF\xBD"
             "a"); /* cut off by another token */
  check_flush(decoder, "");
  engine_text_decoder_destroy(decoder);
}

static void check_control(const engine_model *model, engine_sampler *sampler) {
  engine_text_decoder *plain = NULL;
  engine_text_decoder *shown = NULL;
  CHECK_STATUS(engine_text_decoder_create(model, 0, 0, &plain), ENGINE_OK);
  CHECK_STATUS(engine_text_decoder_create(model, 1, 0, &shown), ENGINE_OK);
  CHECK(sampled(sampler, TOY_IM_START) == TOY_IM_START);
  check_push(plain, TOY_IM_START, "");
  check_push(shown, TOY_IM_START, "<|im_start|>");
  CHECK(engine_token_end_reason(model, TOY_IM_START) == ENGINE_END_NONE);
  CHECK(engine_token_end_reason(model, sampled(sampler, TOY_IM_END)) == ENGINE_END_EOT);
  CHECK(engine_token_end_reason(model, sampled(sampler, 2)) == ENGINE_END_EOS);
  check_push(plain, TOY_IM_END, "");
  check_push(plain, 2, "");
  /* A control token in the middle of a character does not glue its parts together. */
  check_push(plain, byte_token(0xE6), "");
  const char *text = NULL;
  uint64_t n = 0;
  CHECK_STATUS(engine_text_decoder_push(plain, -1, &text, &n), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_text_decoder_push(plain, TOY_VOCAB, &text, &n), ENGINE_ARGUMENT);
  check_flush(plain, "\xE6"); /* what a refused id left as it was */
  engine_text_decoder_destroy(plain);
  engine_text_decoder_destroy(shown);
}

/* Such tokens are decoded like any other. */
static void check_decode(const engine_model *model) {
  const int32_t ids[] = {1, byte_token(0xE6), byte_token(0x80), TOY_IM_START, TOY_IM_END, 2, 0};
  float logits[TOY_VOCAB];
  engine_error error = ENGINE_ERROR_INIT;
  engine_session *session = session_of_mode(model, ENGINE_MODE_DEFAULT);
  CHECK_STATUS(engine_session_decode(session, ids, 7, logits, &error), ENGINE_OK);
  for (int i = 0; i < TOY_VOCAB; ++i) CHECK(isfinite(logits[i]));
  engine_session_destroy(session);
}

/* A host's mask: -infinity. One token left is the token; none left is an error, not an invented token. */
static void check_masks(engine_sampler *sampler) {
  float logits[TOY_VOCAB];
  engine_error error = ENGINE_ERROR_INIT;
  int32_t id = -7;
  for (int i = 0; i < TOY_VOCAB; ++i) logits[i] = -INFINITY;
  CHECK_STATUS(engine_sampler_sample(sampler, logits, TOY_VOCAB, &id, &error), ENGINE_NONFINITE);
  CHECK(id == -7 && error.code == ENGINE_NONFINITE && error.message[0]);
  logits[TOY_IM_END] = -50.0f; /* complete: only the end is allowed */
  CHECK_STATUS(engine_sampler_sample(sampler, logits, TOY_VOCAB, &id, &error), ENGINE_OK);
  CHECK(id == TOY_IM_END);
}

int main(void) {
  toy_file toy = toy_build(1, 1);
  engine_model *model = open_toy_model(&toy);
  for (int warm = 0; warm < 2; ++warm) {
    engine_sampler_params params = ENGINE_SAMPLER_PARAMS_INIT;
    engine_sampler *sampler = NULL;
    engine_error error = ENGINE_ERROR_INIT;
    if (warm) {
      params.temperature = 1.0f;
      params.top_k = 40;
      params.top_p = 0.95f;
      params.min_p = 0.05f;
      params.repeat_penalty = 1.1f;
      params.has_seed = 1;
      params.seed = 36;
    }
    CHECK_STATUS(engine_sampler_create(&params, &sampler, &error), ENGINE_OK);
    check_bytes(model, sampler);
    check_control(model, sampler);
    check_masks(sampler);
    engine_sampler_destroy(sampler);
  }
  check_decode(model);
  engine_model_close(model);
  free(toy.bytes);
  return abi_done();
}
