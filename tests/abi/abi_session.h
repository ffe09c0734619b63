/* Sessions on the toy for the C tests: open, create with a mode, decode a prompt and greedy tokens. */
#ifndef ENGINE_TESTS_ABI_ABI_SESSION_H_
#define ENGINE_TESTS_ABI_ABI_SESSION_H_

#include "abi_check.h"
#include "abi_toy.h"
#include "engine.h"

enum { RUN_PROMPT = 10, RUN_TOKENS = 20, RUN_CALLS = 1 + RUN_TOKENS };

/* Logits of each call of a run, and the tokens chosen from them. */
typedef struct toy_run {
  float logits[RUN_CALLS][TOY_VOCAB];
  int32_t ids[RUN_TOKENS];
} toy_run;

static const int32_t kRunPrompt[RUN_PROMPT] = {1, 270, 288, 289, 262, 12, 299, 140, 261, 290};
static const int32_t kModes[] = {ENGINE_MODE_REFERENCE, ENGINE_MODE_PLANNED,
                                 ENGINE_MODE_PLANNED_FUSED};
enum { N_MODES = 3 };

static inline engine_model *open_toy_model(const toy_file *toy) {
  engine_error error = ENGINE_ERROR_INIT;
  engine_model_params params = ENGINE_MODEL_PARAMS_INIT;
  engine_model *model = NULL;
  params.data = toy->bytes;
  params.length = toy->n_bytes;
  CHECK_STATUS(engine_model_open(&params, &model, &error), ENGINE_OK);
  if (!model) fprintf(stderr, "%s [%s]\n", error.message, error.name);
  return model;
}

/* Two threads, chunks of 4: the prompt is cut, the work is split. */
static inline engine_session_params run_params(int32_t mode) {
  engine_session_params params = ENGINE_SESSION_PARAMS_INIT;
  params.n_ctx = 64;
  params.n_threads = 2;
  params.prefill_chunk = 4;
  params.mode = mode;
  return params;
}

static inline engine_session *create_session(const engine_model *model,
                                             const engine_session_params *params) {
  engine_error error = ENGINE_ERROR_INIT;
  engine_session *session = NULL;
  CHECK_STATUS(engine_session_create(model, params, &session, &error), ENGINE_OK);
  if (!session) {
    fprintf(stderr, "%s [%s]\n", error.message, error.name);
    exit(1);
  }
  return session;
}

static inline engine_session *session_of_mode(const engine_model *model, int32_t mode) {
  const engine_session_params params = run_params(mode);
  return create_session(model, &params);
}

static inline int32_t best_id(const float *logits) {
  int32_t best = 0;
  for (int32_t i = 1; i < TOY_VOCAB; ++i) best = logits[i] > logits[best] ? i : best;
  return best;
}

/* The prompt, then greedy tokens, in the session as it is; the status of the first call that failed. */
static inline int32_t decode_run(engine_session *session, toy_run *run) {
  engine_error error = ENGINE_ERROR_INIT;
  int32_t status = engine_session_decode(session, kRunPrompt, RUN_PROMPT, run->logits[0], &error);
  for (int i = 0; i < RUN_TOKENS && status == ENGINE_OK; ++i) {
    run->ids[i] = best_id(run->logits[i]);
    status = engine_session_decode(session, &run->ids[i], 1, run->logits[i + 1], &error);
  }
  if (status != ENGINE_OK) fprintf(stderr, "decode: %s\n", error.message);
  return status;
}

static inline int same_run(const toy_run *a, const toy_run *b) {
  return memcmp(a, b, sizeof(*a)) == 0;
}

/* How often a fusion has run. */
static inline uint64_t fusion_count(const engine_session *session, uint32_t index) {
  const char *name = NULL;
  uint64_t calls = UINT64_MAX;
  CHECK_STATUS(engine_session_fusion_at(session, index, &name, &calls), ENGINE_OK);
  CHECK(name && name[0] == 'F' && name[1] == (char)('1' + index));
  return calls;
}

#endif /* ENGINE_TESTS_ABI_ABI_SESSION_H_ */
