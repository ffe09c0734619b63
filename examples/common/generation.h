/* One answer of a model: prefill, sample, stream whole characters, measure. Shared by generate and chat. */
#ifndef ENGINE_EXAMPLES_COMMON_GENERATION_H_
#define ENGINE_EXAMPLES_COMMON_GENERATION_H_

#include <signal.h>
#include <stddef.h>
#include <stdint.h>

#include "cli.h"
#include "engine.h"

/* The sampling options of the command line, and rows that read them. */
typedef struct sampling_options {
  engine_sampler_params params;
  int32_t seed_given;
} sampling_options;
#define SAMPLING_OPTIONS_INIT \
  { ENGINE_SAMPLER_PARAMS_INIT, 0 }

#define SAMPLING_OPTION_ROWS(options)                                                     \
  {"--temp", "--temperature", CLI_REAL, &(options).params.temperature, NULL},             \
      {"--top-k", NULL, CLI_INT, &(options).params.top_k, NULL},                          \
      {"--top-p", NULL, CLI_REAL, &(options).params.top_p, NULL},                         \
      {"--min-p", NULL, CLI_REAL, &(options).params.min_p, NULL},                         \
      {"--repeat-penalty", NULL, CLI_REAL, &(options).params.repeat_penalty, NULL},       \
      {"--frequency-penalty", NULL, CLI_REAL, &(options).params.frequency_penalty, NULL}, \
      {"--presence-penalty", NULL, CLI_REAL, &(options).params.presence_penalty, NULL},   \
      {"--penalty-last-n", NULL, CLI_INT, &(options).params.penalty_last_n, NULL}, {      \
    "--seed", NULL, CLI_U64, &(options).params.seed, &(options).seed_given                \
  }

#define SAMPLING_USAGE                                                                            \
  "Sampling, in the order of use (default: greedy, the most likely token each time)\n"            \
  "  --repeat-penalty X     divide (multiply, if negative) the logits of recent tokens by X\n"    \
  "  --frequency-penalty X  subtract X for each time that a token is in the window\n"             \
  "  --presence-penalty X   subtract X once if a token is in the window\n"                        \
  "  --penalty-last-n N     the window: the last N tokens, -1 = all (default 64)\n"               \
  "  --top-k N              keep the N likeliest tokens\n"                                        \
  "  --top-p X              keep the likeliest tokens that together have probability X\n"         \
  "  --min-p X              keep tokens at least X times as likely as the likeliest\n"            \
  "  --temp, --temperature X  draw at random; 1 = as the model says, lower = safer; 0 = greedy\n" \
  "  --seed N               repeat a random run\n"

/* A growing array of ids. */
typedef struct id_list {
  int32_t *ids;
  uint64_t n;
  uint64_t capacity;
} id_list;
void id_list_append(id_list *list, int32_t id);

/* Set by a signal handler to stop a generation; see chat. */
extern volatile sig_atomic_t generation_stop;

typedef struct generation_request {
  const engine_model *model;
  engine_session *session;
  engine_sampler *sampler;
  uint64_t n_vocab;
  const int32_t *prompt; /* the ids that the session does not hold yet */
  uint64_t n_prompt;
  uint64_t max_tokens; /* UINT64_MAX = until the model ends or the context is full */
  int ignore_end;      /* go on after an end-of-generation token */
  int at_start;        /* the text begins here, it does not continue the prompt */
  int stream;          /* write the text to stdout as it comes */
} generation_request;

typedef struct generation_result {
  id_list ids;    /* what was generated, with the token that ended it */
  uint64_t n_fed; /* how many of them the session holds */
  char *text;     /* whole characters, NUL-terminated */
  uint64_t text_bytes;
  double prefill_seconds;
  double decode_seconds; /* of n_decoded_tokens steps */
  uint64_t n_decoded_tokens;
  const char *stop_reason; /* eos eot eom fim name length context stopped */
} generation_result;

/* The status of the engine; on failure `error` is filled and the result holds what was generated so far.
 * A stop before the first token is ENGINE_CANCELLED, a later one a success with stop_reason "stopped". */
int32_t generation_run(const generation_request *request, generation_result *result,
                       engine_error *error);
void generation_result_free(generation_result *result);

/* Speed of a finished generation, with the read bandwidth measured now. */
typedef struct generation_speed {
  uint64_t n_prompt;
  uint64_t n_generated;
  uint32_t n_threads;
  uint64_t bytes_per_token;
  double prefill_tok_s;
  double tok_s;
  double gb_s;
  double read_bandwidth_gb_s; /* 0 = not to be had */
  double roofline_percent;
} generation_speed;
generation_speed generation_measure(const generation_request *request,
                                    const generation_result *result);

/* Opens a model and reports what went wrong. */
int generation_open_model(const char *path, uint32_t flags, engine_model **model,
                          engine_model_info *info);

/* Ids of plain text or of a conversation, reported on failure. */
int generation_tokenize(const engine_model *model, const char *text, uint64_t n_bytes, int32_t bos,
                        int32_t special, id_list *ids);
int32_t generation_chat_ids(const engine_model *model, const engine_chat_message *messages,
                            uint64_t n_messages, id_list *ids, engine_error *error);

#endif /* ENGINE_EXAMPLES_COMMON_GENERATION_H_ */
