/* The options of a session on a command line: mode, threads, target, chunk, context, KV type, fusions, kernels. */
#ifndef ENGINE_EXAMPLES_COMMON_SESSION_OPTIONS_H_
#define ENGINE_EXAMPLES_COMMON_SESSION_OPTIONS_H_

#include <stdint.h>

#include "cli.h"
#include "engine.h"

typedef struct session_options {
  const char *mode;    /* "reference", "planned", "planned-fused" */
  const char *kv;      /* "f16", "f32", "q8_0" */
  const char *without; /* "F1,F4", or NULL */
  const char *weights; /* "packed", "stored" */
  engine_session_params params;
} session_options;
#define SESSION_OPTIONS_INIT \
  { "planned-fused", "f16", NULL, "packed", ENGINE_SESSION_PARAMS_INIT }

#define SESSION_OPTION_ROWS(options)                                       \
  {"--threads", "-t", CLI_COUNT, &(options).params.n_threads, NULL},       \
      {"--mode", NULL, CLI_TEXT, &(options).mode, NULL},                   \
      {"--target", NULL, CLI_TEXT, &(options).params.target, NULL},        \
      {"--chunk", NULL, CLI_COUNT, &(options).params.prefill_chunk, NULL}, \
      {"--ctx", "-c", CLI_COUNT, &(options).params.n_ctx, NULL},           \
      {"--kv", NULL, CLI_TEXT, &(options).kv, NULL},                       \
      {"--without", NULL, CLI_TEXT, &(options).without, NULL},             \
      {"--weights", NULL, CLI_TEXT, &(options).weights, NULL}, {           \
    "--kernels", NULL, CLI_TEXT, &(options).params.kernels, NULL           \
  }

#define SESSION_USAGE                                                                           \
  "  --threads N       threads (default: all cores that this process may use)\n"                \
  "  --mode NAME       reference, planned or planned-fused (default)\n"                         \
  "  --target NAME     CPU target to force (default: the best one here)\n"                      \
  "  --chunk N         tokens of the prompt that go through the layers at once (default 128)\n" \
  "  --ctx N           context in tokens (default: up to 4096, as the model was trained)\n"     \
  "  --kv TYPE         f16 (default), f32 or q8_0\n"                                            \
  "  --weights FORM    packed (default; once per model, in memory once) or stored (as in the "  \
  "file)\n"                                                                                     \
  "  --without LIST    fusions not to use, such as F1,F4\n"                                     \
  "  --kernels PATTERN kernels to use where one of that name exists, such as '*__cpu_scalar'\n"

/* Fills params from the texts; ends the program with status 2 where one of them is no value. */
void session_options_read(session_options *options);

enum { SESSION_FUSIONS = 6 };
/* How often each fusion has run: calls[0] is F1. */
void session_fusion_counts(const engine_session *session, uint64_t calls[SESSION_FUSIONS]);

/* "F1+F3" of the bits, "none" for 0. */
typedef struct fusion_text {
  char text[3 * SESSION_FUSIONS + 5];
} fusion_text;
fusion_text session_fusion_text(uint32_t fusions);

/* The plan as JSON, NUL-terminated, to be freed; NULL: reported. */
char *session_plan_text(const engine_plan *plan, uint32_t flags, uint64_t *n_bytes);

/* Status of a mode's proof: 0, or reported and CLI_FAILED where the session ran something else. */
int session_prove_mode(const engine_session *session, const session_options *options);

#endif /* ENGINE_EXAMPLES_COMMON_SESSION_OPTIONS_H_ */
