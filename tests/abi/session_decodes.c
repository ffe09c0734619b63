/* Other ways to decode through the C ABI: speculation and submitted decodes give the bits of plain ones. */
#include "abi_session.h"

enum { N_TOKENS = 40, N_CTX = 100 };

static int32_t plain_ids[N_TOKENS + 1];
static float plain_logits[N_TOKENS][TOY_VOCAB];

static engine_session *new_session(const engine_model *model) {
  engine_session_params params = run_params(ENGINE_MODE_PLANNED_FUSED);
  params.n_ctx = N_CTX;
  params.prefill_chunk = 8;
  return create_session(model, &params);
}

static void run_plain(const engine_model *model) {
  engine_session *session = new_session(model);
  float logits[TOY_VOCAB];
  CHECK_STATUS(engine_session_decode(session, kRunPrompt, RUN_PROMPT, logits, NULL), ENGINE_OK);
  plain_ids[0] = best_id(logits);
  for (int i = 0; i < N_TOKENS; ++i) {
    CHECK_STATUS(engine_session_decode(session, &plain_ids[i], 1, plain_logits[i], NULL),
                 ENGINE_OK);
    plain_ids[i + 1] = best_id(plain_logits[i]);
  }
  engine_session_destroy(session);
}

static void check_speculation(const engine_model *model, const engine_model *other) {
  static float logits[8][TOY_VOCAB];
  engine_session *session = new_session(model), *drafter = new_session(model);
  engine_session *stranger = create_session(other, NULL);
  engine_speculation_params params = ENGINE_SPECULATION_PARAMS_INIT;
  engine_speculation_stats stats = ENGINE_SPECULATION_STATS_INIT;
  int32_t next[8], id = plain_ids[0];
  uint64_t n = 0, done = 0;
  CHECK_STATUS(engine_session_decode(session, kRunPrompt, RUN_PROMPT, NULL, NULL), ENGINE_OK);
  params.drafter = session;
  CHECK_STATUS(engine_session_decode_speculative(session, id, &params, next, 8, &n, NULL, NULL),
               ENGINE_ARGUMENT);
  params.drafter = stranger;
  CHECK_STATUS(engine_session_decode_speculative(session, id, &params, next, 8, &n, NULL, NULL),
               ENGINE_ARGUMENT);
  params.drafter = drafter; /* the same model: it is always right */
  params.max_draft = 257;
  CHECK_STATUS(engine_session_decode_speculative(session, id, &params, next, 8, &n, NULL, NULL),
               ENGINE_ARGUMENT);
  params.max_draft = 6;
  CHECK_STATUS(engine_session_decode_speculative(session, id, &params, next, 0, &n, NULL, NULL),
               ENGINE_ARGUMENT);
  CHECK_STATUS(
      engine_session_decode_speculative(session, TOY_VOCAB, &params, next, 8, &n, NULL, NULL),
      ENGINE_ARGUMENT);
  CHECK(engine_session_position(session) == RUN_PROMPT);
  while (done < N_TOKENS) {
    const uint64_t room = N_TOKENS - done < 8 ? N_TOKENS - done : 8;
    CHECK_STATUS(
        engine_session_decode_speculative(session, id, &params, next, room, &n, logits[0], NULL),
        ENGINE_OK);
    CHECK(n >= 1 && n <= room);
    if (n < 1 || n > room) break;
    CHECK(memcmp(next, &plain_ids[done + 1], n * sizeof(next[0])) == 0);
    CHECK(memcmp(logits, plain_logits[done], n * sizeof(logits[0])) == 0);
    id = next[n - 1];
    done += n;
    CHECK(engine_session_position(session) == RUN_PROMPT + done);
  }
  CHECK_STATUS(engine_session_speculation_get(session, &stats), ENGINE_OK);
  CHECK(stats.calls > 0 && stats.calls < N_TOKENS && stats.right > 0);
  CHECK(stats.calls + stats.right == N_TOKENS);
  CHECK_STATUS(engine_session_speculation_get(NULL, &stats), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_session_decode_speculative(NULL, 1, NULL, next, 8, &n, NULL, NULL),
               ENGINE_ARGUMENT);
  engine_session_destroy(session);
  engine_session_destroy(drafter);
  engine_session_destroy(stranger);
}

static void check_submitted(const engine_model *model) {
  engine_session *session = new_session(model);
  engine_completion *c = NULL;
  float logits[TOY_VOCAB];
  int32_t done = 0, n_polls = 0;
  CHECK_STATUS(engine_session_decode(session, kRunPrompt, RUN_PROMPT, NULL, NULL), ENGINE_OK);
  CHECK_STATUS(engine_session_submit(session, plain_ids, N_TOKENS, logits, 0, NULL, NULL),
               ENGINE_ARGUMENT);
  CHECK_STATUS(engine_session_submit(session, plain_ids, N_TOKENS, logits, 2, &c, NULL),
               ENGINE_TOO_NEW);
  CHECK_STATUS(engine_session_submit(session, plain_ids, N_TOKENS, logits, 0, &c, NULL), ENGINE_OK);
  CHECK_STATUS(engine_session_decode(session, plain_ids, 1, logits, NULL), ENGINE_STATE);
  while (!done && n_polls < 100) {
    CHECK_STATUS(engine_completion_poll(c, &done), ENGINE_OK);
    ++n_polls;
  }
  CHECK(n_polls == N_TOKENS / 8);
  CHECK_STATUS(engine_completion_wait(c, NULL), ENGINE_OK);
  CHECK(memcmp(logits, plain_logits[N_TOKENS - 1], sizeof(logits)) == 0);
  engine_completion_destroy(c);
  CHECK_STATUS(engine_session_truncate(session, RUN_PROMPT), ENGINE_OK);
  CHECK_STATUS(
      engine_session_submit(session, plain_ids, N_TOKENS, logits, ENGINE_SUBMIT_THREAD, &c, NULL),
      ENGINE_OK);
  CHECK_STATUS(engine_completion_wait(c, NULL), ENGINE_OK);
  CHECK(memcmp(logits, plain_logits[N_TOKENS - 1], sizeof(logits)) == 0);
  engine_completion_destroy(c);
  CHECK_STATUS(engine_session_truncate(session, RUN_PROMPT), ENGINE_OK);
  CHECK_STATUS(engine_session_submit(session, plain_ids, N_TOKENS, logits, 0, &c, NULL), ENGINE_OK);
  engine_completion_cancel(c);
  CHECK_STATUS(engine_completion_wait(c, NULL), ENGINE_CANCELLED);
  CHECK(engine_session_position(session) == RUN_PROMPT);
  engine_completion_destroy(c);
  CHECK_STATUS(engine_session_submit(session, plain_ids, 0, logits, 0, &c, NULL), ENGINE_ARGUMENT);
  CHECK(c == NULL);
  CHECK_STATUS(engine_session_submit(NULL, plain_ids, 1, logits, 0, &c, NULL), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_completion_poll(NULL, &done), ENGINE_ARGUMENT);
  CHECK_STATUS(engine_completion_wait(NULL, NULL), ENGINE_ARGUMENT);
  engine_completion_cancel(NULL);
  engine_completion_destroy(NULL);
  engine_session_destroy(session);
}

int main(void) {
  toy_file toy = toy_build(1, 1), other = toy_build(1, 0);
  engine_model *model = open_toy_model(&toy), *other_model = open_toy_model(&other);
  if (!model || !other_model) return abi_done();
  run_plain(model);
  check_speculation(model, other_model);
  check_submitted(model);
  engine_model_close(model);
  engine_model_close(other_model);
  free(toy.bytes);
  free(other.bytes);
  return abi_done();
}
