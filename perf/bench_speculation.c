/* bench_speculation: what guessing ahead gains on text that repeats itself, and costs on text that does not. */
#define _POSIX_C_SOURCE 200809L

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cli.h"
#include "engine.h"

static const char kUsage[] =
    "bench_speculation MODEL [options]: speculative against plain decoding, greedy\n"
    "\n"
    "  --tokens N        tokens after each prompt (default 128)\n"
    "  --repeats N       rounds, plain and speculative in turns; the best of each counts (default "
    "5)\n"
    "  --threads N       threads (default: all cores that this process may use)\n"
    "  --max-draft N     guessed tokens in a call, at most (default 16)\n"
    "  --drafter MODEL2  a smaller model of the same vocabulary, asked where nothing matches\n"
    "  --text FILE       one more prompt\n"
    "\n"
    "Columns: text, tok/s plain and speculative, gain, guessed tokens, how many of them were "
    "right.\n"
    "Ids must be those of plain decoding, else the program fails. Bars: copies gain, free text "
    "keeps\n"
    "0.97 of its speed.\n"
    "\n"
    "Example: bench_speculation model.gguf --threads 2\n";

typedef struct sample {
  const char *name, *text;
} sample;

static const sample kTexts[] = {
    {"code edit",
     "Here is a file:\n\n"
     "def load(path):\n    with open(path) as file:\n        lines = file.readlines()\n"
     "    result = {}\n    for number, line in enumerate(lines):\n        key, value = "
     "line.split(\"=\")\n"
     "        result[key.strip()] = value.strip()\n    return result\n\n\n"
     "def save(path, values):\n    with open(path, \"w\") as file:\n"
     "        for key, value in values.items():\n            file.write(f\"{key} = "
     "{value}\\n\")\n\n"
     "Here is the same file again, with a docstring in each function:\n\n"
     "def load(path):\n    \"\"\"Reads values.\"\"\"\n    with open(path) as file:\n"},
    {"summary",
     "The harbour of Vell was built in 1412 by order of the council. Its lighthouse, the tallest "
     "of the "
     "northern coast, burned for three hundred years without a night of darkness. In 1719 a storm "
     "took "
     "the eastern mole and eleven ships with it. The council of Vell had the mole rebuilt in "
     "granite.\n\n"
     "The key sentences, quoted:\n1. The harbour of Vell was built in 1412 by order of the "
     "council.\n"
     "2. Its lighthouse, the tallest of the"},
    {"free", "Once upon a time, in a village by the sea, there lived a girl who"},
    {"free 2", "The three most important ideas of modern physics are"},
};
enum { N_TEXTS = sizeof(kTexts) / sizeof(kTexts[0]) };

typedef struct speculation_bench {
  uint32_t tokens, repeats, max_draft;
  engine_session_params params;
  engine_model *model, *small;
  int32_t n_vocab;
} speculation_bench;

typedef struct text_run {
  int32_t *ids; /* [tokens] */
  double seconds;
  uint64_t guessed, right;
} text_run;

static int32_t best_of(const float *logits, int32_t n) {
  int32_t best = 0;
  for (int32_t i = 1; i < n; ++i) {
    if (logits[i] > logits[best]) best = i;
  }
  return best;
}

static int32_t decode_plainly(const speculation_bench *b, engine_session *session, float *logits,
                              text_run *run, engine_error *error) {
  const double start = cli_seconds();
  for (uint32_t i = 1; i < b->tokens; ++i) {
    const int32_t status = engine_session_decode(session, &run->ids[i - 1], 1, logits, error);
    if (status != ENGINE_OK) return status;
    run->ids[i] = best_of(logits, b->n_vocab);
  }
  run->seconds = cli_seconds() - start;
  return ENGINE_OK;
}

static int32_t decode_guessing(const speculation_bench *b, engine_session *session,
                               engine_session *drafter, text_run *run, engine_error *error) {
  engine_speculation_params params = ENGINE_SPECULATION_PARAMS_INIT;
  engine_speculation_stats stats = ENGINE_SPECULATION_STATS_INIT;
  params.max_draft = b->max_draft;
  params.drafter = drafter;
  const double start = cli_seconds();
  for (uint64_t i = 1; i < b->tokens;) {
    uint64_t n = 0;
    const int32_t status = engine_session_decode_speculative(
        session, run->ids[i - 1], &params, run->ids + i, b->tokens - i, &n, NULL, error);
    if (status != ENGINE_OK) return status;
    i += n;
  }
  run->seconds = cli_seconds() - start;
  engine_session_speculation_get(session, &stats);
  run->guessed = stats.guessed;
  run->right = stats.right;
  return ENGINE_OK;
}

/* One run of the text from its start; CLI_FAILED: reported. */
static int run_text(const speculation_bench *b, const int32_t *prompt, uint64_t n_prompt,
                    int guessing, text_run *run) {
  engine_error error = ENGINE_ERROR_INIT;
  engine_session_params params = b->params;
  engine_session *session = NULL, *drafter = NULL;
  float *logits = cli_allocate((uint64_t)b->n_vocab * sizeof(float));
  params.n_ctx = (uint32_t)n_prompt + b->tokens + 1;
  int32_t status = engine_session_create(b->model, &params, &session, &error);
  if (status == ENGINE_OK && guessing && b->small) {
    status = engine_session_create(b->small, &params, &drafter, &error);
  }
  if (status == ENGINE_OK) {
    status = engine_session_decode(session, prompt, n_prompt, logits, &error);
  }
  if (status == ENGINE_OK) {
    run->ids[0] = best_of(logits, b->n_vocab);
    status = guessing ? decode_guessing(b, session, drafter, run, &error)
                      : decode_plainly(b, session, logits, run, &error);
  }
  engine_session_destroy(session);
  engine_session_destroy(drafter);
  free(logits);
  return status == ENGINE_OK ? CLI_OK : cli_report("run", status, &error);
}

static int compare(const speculation_bench *b, const char *name, const char *text) {
  enum { MAX_PROMPT = 8192 };
  static int32_t prompt[MAX_PROMPT];
  engine_error error = ENGINE_ERROR_INIT;
  uint64_t n_prompt = 0;
  const int32_t status =
      engine_tokenize(b->model, text, strlen(text), ENGINE_BOS_DEFAULT, ENGINE_SPECIAL_PLAIN,
                      prompt, MAX_PROMPT, &n_prompt, NULL, &error);
  if (status != ENGINE_OK) return cli_report(name, status, &error);
  text_run plain = {cli_allocate(b->tokens * sizeof(int32_t)), 0, 0, 0}, guessed = plain;
  guessed.ids = cli_allocate(b->tokens * sizeof(int32_t));
  double best_plain = 1e30, best_guessed = 1e30;
  int code = CLI_OK;
  for (uint32_t r = 0; r < b->repeats && code == CLI_OK; ++r) {
    code = run_text(b, prompt, n_prompt, 0, &plain);
    if (code == CLI_OK) code = run_text(b, prompt, n_prompt, 1, &guessed);
    if (code != CLI_OK) break;
    best_plain = plain.seconds < best_plain ? plain.seconds : best_plain;
    best_guessed = guessed.seconds < best_guessed ? guessed.seconds : best_guessed;
    if (memcmp(plain.ids, guessed.ids, b->tokens * sizeof(int32_t)) != 0) {
      cli_message("%s: ids differ from those of plain decoding", name);
      code = CLI_FAILED;
    }
  }
  if (code == CLI_OK) {
    const double n = b->tokens - 1;
    printf("%-10s %7.1f %12.1f %5.2fx %8" PRIu64 " %6" PRIu64 "\n", name, n / best_plain,
           n / best_guessed, best_plain / best_guessed, guessed.guessed, guessed.right);
  }
  free(plain.ids);
  free(guessed.ids);
  return code;
}

static int open_model(const char *path, engine_model **model) {
  engine_error error = ENGINE_ERROR_INIT;
  engine_model_params params = ENGINE_MODEL_PARAMS_INIT;
  params.path = path;
  const int32_t status = engine_model_open(&params, model, &error);
  return status == ENGINE_OK ? CLI_OK : cli_report(path, status, &error);
}

int main(int argc, char **argv) {
  speculation_bench b = {128, 5, 0, ENGINE_SESSION_PARAMS_INIT, NULL, NULL, 0};
  const char *path = NULL, *small = NULL, *file = NULL;
  const cli_option options[] = {
      {"--tokens", "-n", CLI_COUNT, &b.tokens, NULL},
      {"--repeats", NULL, CLI_COUNT, &b.repeats, NULL},
      {"--threads", "-t", CLI_COUNT, &b.params.n_threads, NULL},
      {"--max-draft", NULL, CLI_COUNT, &b.max_draft, NULL},
      {"--drafter", NULL, CLI_TEXT, &small, NULL},
      {"--text", NULL, CLI_TEXT, &file, NULL},
  };
  cli_parse(argc, argv, kUsage, options, sizeof(options) / sizeof(options[0]), &path);
  if (b.tokens < 2 || b.repeats < 1) cli_usage_error("--tokens is below 2, or --repeats 0");
  int code = open_model(path, &b.model);
  if (code == CLI_OK && small) code = open_model(small, &b.small);
  if (code == CLI_OK) {
    engine_model_info info = ENGINE_MODEL_INFO_INIT;
    engine_model_info_get(b.model, &info);
    b.n_vocab = info.n_vocab;
    printf("text         plain  speculative  gain  guessed  right\n");
  }
  for (int i = 0; i < N_TEXTS && code == CLI_OK; ++i) {
    code = compare(&b, kTexts[i].name, kTexts[i].text);
  }
  if (code == CLI_OK && file) {
    uint64_t n_bytes = 0;
    char *text = cli_read_file(file, &n_bytes);
    code = text ? compare(&b, "file", text) : CLI_FAILED;
    free(text);
  }
  engine_model_close(b.small);
  engine_model_close(b.model);
  return code;
}
