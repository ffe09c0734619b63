/* perplexity: how well a model foretells a text, by the definition of llama.cpp's program of that name. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cli.h"
#include "common/generation.h"
#include "common/session_options.h"

static const char kUsage[] =
    "perplexity MODEL FILE [options]: how well a model foretells a text (- = standard input)\n"
    "\n"
    "  --chunks N        at most N chunks (default: all)\n" SESSION_USAGE
    "  --json            one JSON object instead of the line\n"
    "\n"
    "The ids of the text are cut into chunks of the context (--ctx, default 512), each decoded "
    "from an empty\n"
    "session; a last chunk that is not whole is left out. Where the model begins with BOS, it "
    "takes the\n"
    "place of a chunk's first id. The first half of a chunk is context only; the second half's ids "
    "count.\n"
    "Prints\n"
    "PERPLEXITY ppl= stderr= chunks= scored= nll=\n"
    "ppl          exp of nll, the mean of -ln(probability) over the scored ids\n"
    "stderr       of ppl, from the spread of the -ln(probability)\n"
    "Progress goes to stderr. Status: 0 = done, 1 = failed, 2 = wrong command line.\n"
    "\n"
    "Example: perplexity model.gguf text.txt --ctx 64 --json\n";

enum { ROWS = 32, DEFAULT_CTX = 512 }; /* rows of logits held at once */

typedef struct tally {
  double nll, nll_squares;
  uint64_t scored;
} tally;

/* -ln of the probability of `id`. */
static double surprise(const float *logits, uint64_t n_vocab, int32_t id) {
  float most = logits[0];
  double sum = 0;
  for (uint64_t i = 1; i < n_vocab; ++i) most = logits[i] > most ? logits[i] : most;
  for (uint64_t i = 0; i < n_vocab; ++i) sum += exp((double)logits[i] - most);
  return log(sum) + most - logits[id];
}

static int32_t score_chunk(engine_session *session, const int32_t *ids, uint32_t n_ctx,
                           uint64_t n_vocab, float *logits, tally *t, engine_error *error) {
  const uint32_t first = n_ctx / 2;
  int32_t status = engine_session_truncate(session, 0);
  if (status == ENGINE_OK) status = engine_session_decode(session, ids, first, NULL, error);
  for (uint32_t at = first; at < n_ctx && status == ENGINE_OK; at += ROWS) {
    const uint32_t n = n_ctx - at < ROWS ? n_ctx - at : ROWS;
    status = engine_session_decode_all(session, ids + at, n, logits, error);
    for (uint32_t i = 0; i < n && at + i + 1 < n_ctx && status == ENGINE_OK; ++i) {
      const double nll = surprise(logits + i * n_vocab, n_vocab, ids[at + i + 1]);
      t->nll += nll;
      t->nll_squares += nll * nll;
      t->scored += 1;
    }
  }
  return status;
}

int main(int argc, char **argv) {
  const char *model_path = NULL, *file_path = NULL;
  uint32_t max_chunks = 0;
  int32_t json = 0;
  session_options session_options = SESSION_OPTIONS_INIT;
  const cli_option options[] = {
      SESSION_OPTION_ROWS(session_options),
      {"--chunks", NULL, CLI_COUNT, &max_chunks, NULL},
      {"--json", NULL, CLI_FLAG, &json, NULL},
  };
  cli_parse_with_file(argc, argv, kUsage, options, sizeof(options) / sizeof(options[0]),
                      &model_path, &file_path);
  session_options_read(&session_options);
  if (session_options.params.n_ctx == 0) session_options.params.n_ctx = DEFAULT_CTX;
  const uint32_t n_ctx = session_options.params.n_ctx;
  if (n_ctx < 4) cli_usage_error("--ctx must be at least 4");

  engine_model *model = NULL;
  engine_model_info info;
  engine_session *session = NULL;
  engine_error error = ENGINE_ERROR_INIT;
  id_list ids = {NULL, 0, 0};
  uint64_t n_bytes = 0;
  char *text = cli_read_file(file_path, &n_bytes);
  if (!text) return CLI_FAILED;
  int code = generation_open_model(model_path, 0, &model, &info);
  if (code == CLI_OK)
    code =
        generation_tokenize(model, text, n_bytes, ENGINE_BOS_DEFAULT, ENGINE_SPECIAL_PLAIN, &ids);
  free(text);
  uint64_t n_chunks = ids.n / n_ctx;
  if (code == CLI_OK && n_chunks == 0) {
    cli_message("the text has %" PRIu64 " ids, a chunk needs %" PRIu32, ids.n, n_ctx);
    code = CLI_FAILED;
  }
  if (max_chunks && n_chunks > max_chunks) n_chunks = max_chunks;
  int32_t status = ENGINE_OK;
  if (code == CLI_OK) {
    status = engine_session_create(model, &session_options.params, &session, &error);
    if (status != ENGINE_OK) code = cli_report("no session", status, &error);
  }
  tally t = {0, 0, 0};
  const double start = cli_seconds();
  if (code == CLI_OK) {
    const uint64_t n_vocab = (uint64_t)info.n_vocab;
    float *logits = cli_allocate(ROWS * n_vocab * sizeof(float));
    for (uint64_t chunk = 0; chunk < n_chunks && status == ENGINE_OK; ++chunk) {
      int32_t *const first = ids.ids + chunk * n_ctx;
      if (info.adds_bos) first[0] = info.bos_id;
      status = score_chunk(session, first, n_ctx, n_vocab, logits, &t, &error);
      if (status == ENGINE_OK && t.scored)
        fprintf(stderr, "chunk %" PRIu64 " of %" PRIu64 ": ppl %.4f, %.1f s\n", chunk + 1, n_chunks,
                exp(t.nll / (double)t.scored), cli_seconds() - start);
    }
    free(logits);
    if (status != ENGINE_OK) code = cli_report("cannot decode", status, &error);
  }
  if (code == CLI_OK) {
    const double n = (double)t.scored, mean = t.nll / n, ppl = exp(mean);
    const double variance = t.nll_squares / n - mean * mean;
    const double deviation = n > 1 && variance > 0 ? ppl * sqrt(variance / (n - 1)) : 0;
    if (json) {
      printf("{\"model\": ");
      cli_print_json_text(model_path, strlen(model_path));
      printf(", \"file\": ");
      cli_print_json_text(file_path, strlen(file_path));
      printf(", \"ppl\": %.9g, \"stderr\": %.9g, \"nll\": %.12g, \"chunks\": %" PRIu64
             ", \"n_ctx\": %" PRIu32 ", \"scored\": %" PRIu64 ", \"ids\": %" PRIu64
             ", \"seconds\": %.3f}\n",
             ppl, deviation, mean, n_chunks, n_ctx, t.scored, ids.n, cli_seconds() - start);
    } else {
      printf("PERPLEXITY ppl=%.4f stderr=%.4f chunks=%" PRIu64 " scored=%" PRIu64 " nll=%.6f\n",
             ppl, deviation, n_chunks, t.scored, mean);
    }
  }
  engine_session_destroy(session);
  engine_model_close(model);
  free(ids.ids);
  return code;
}
