/* observe: the size of a hidden state in every layer while a model generates. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cli.h"
#include "common/generation.h"
#include "common/hook_options.h"

static const char kUsage[] =
    "observe MODEL -p TEXT [options]: the norm of a hidden state, per layer and generated token\n"
    "\n"
    "  -p, --prompt TEXT   the prompt\n"
    "  --chat              the prompt is a question: use the model's chat template\n"
    "  -n, --tokens N      tokens to generate, greedy (default 8)\n"
    "  --site NAME         what to look at (default resid_post); see inspect_plan for the names\n"
    "  --layer N           one layer only (default: all)\n"
    "  --callback          observe with a callback instead of a capture; the numbers are the same\n"
    "  --lines             one line for each token as it comes, instead of the table at the end\n"
    "  --mode NAME         " HOOK_OPTIONS_MODES
    "\n"
    "  -c, --ctx N         context in tokens (default: up to 4096, as the model was trained)\n"
    "  -t, --threads N     threads (default: all cores that this process may use)\n"
    "  --json              one JSON object instead of tables\n"
    "\n"
    "A norm is the Euclidean length of the row that the token has at the site. The capture is a\n"
    "ring with room for one token: it is read after every decode. Layers go down, tokens across.\n"
    "JSON: site, layers, ids, tokens, positions, norms [tokens][layers], text, counters.\n"
    "Status: 0 = done, 1 = failed (the reason is on stderr), 2 = wrong command line.\n"
    "\n"
    "Example: observe model.gguf -p \"The capital of France is\" -n 6\n";

enum { COLUMNS = 8 };

typedef struct observe_options {
  const char *model_path, *prompt, *site, *mode;
  int32_t chat, layer, callback, lines, json;
  uint32_t n_tokens, n_ctx, n_threads;
} observe_options;

/* Everything that is seen: a row of norms for each generated token. */
typedef struct observation {
  engine_hook_site_info site;
  uint64_t width;
  int32_t first_layer; /* of the columns; layers that lack the site stay NAN */
  uint32_t n_layers;
  float *ring; /* [n_layers][width], of the newest token */
  engine_capture_record *records;
  uint64_t seen; /* rows read from the ring so far */
  uint64_t hook;
  double *norms; /* [tokens][n_layers] */
  int64_t *positions;
  uint64_t token; /* row of norms that is being filled */
} observation;

static double norm_of(const float *row, uint64_t width) {
  double sum = 0;
  for (uint64_t i = 0; i < width; ++i) sum += (double)row[i] * row[i];
  return sqrt(sum);
}

static void note(observation *o, int32_t layer, int64_t position, const float *row) {
  const int32_t column = layer < 0 ? 0 : layer - o->first_layer;
  o->norms[o->token * o->n_layers + (uint64_t)column] = norm_of(row, o->width);
  o->positions[o->token] = position;
}

static int32_t on_rows(void *user, const engine_hook_event *event, float *values) {
  observation *o = user;
  for (uint32_t i = 0; i < event->n_rows; ++i) {
    note(o, event->layer, event->positions[i], values + i * event->width);
  }
  return 0;
}

/* Reads what the capture got since the last time. */
static int32_t read_ring(const engine_session *session, observation *o) {
  engine_hook_stats stats = ENGINE_HOOK_STATS_INIT;
  const int32_t status = engine_hook_stats_get(session, o->hook, &stats);
  if (status != ENGINE_OK) return status;
  for (; o->seen < stats.rows_captured; ++o->seen) {
    const uint64_t slot = o->seen % o->n_layers;
    note(o, o->records[slot].layer, o->records[slot].position, o->ring + slot * o->width);
  }
  return ENGINE_OK;
}

static int32_t add_hook(engine_session *session, const observe_options *options, int32_t begin,
                        int32_t end, observation *o, engine_error *error) {
  engine_hook_params params = ENGINE_HOOK_PARAMS_INIT;
  params.site = o->site.name;
  params.layer_begin = begin;
  params.layer_end = end;
  params.position_select = ENGINE_POSITIONS_GENERATED;
  if (options->callback) {
    params.action = ENGINE_HOOK_READ;
    params.callback = on_rows;
    params.user = o;
  } else {
    params.action = ENGINE_HOOK_CAPTURE;
    params.capture = o->ring;
    params.capture_records = o->records;
    params.capture_rows = o->n_layers;
    params.capture_flags = ENGINE_CAPTURE_RING;
  }
  return engine_hook_register(session, &params, &o->hook, error);
}

/* A token in at most `room` - 1 printable ASCII characters; other bytes as \xNN. */
static void short_text(const engine_model *model, int32_t id, char *text, size_t room) {
  char bytes[64];
  uint64_t n = 0;
  text[0] = '\0';
  if (engine_token_bytes(model, id, 1, bytes, sizeof(bytes), &n) != ENGINE_OK) return;
  for (uint64_t i = 0; i < n; ++i) {
    const unsigned char c = (unsigned char)bytes[i];
    char piece[8];
    snprintf(piece, sizeof(piece), c > 0x20 && c < 0x7F ? "%c" : (c == ' ' ? "_" : "\\x%02X"), c);
    if (strlen(text) + strlen(piece) + 1 > room) return;
    strcat(text, piece);
  }
}

static void print_table(const engine_model *model, const observation *o, const id_list *ids) {
  char text[10];
  for (uint64_t first = 0; first < ids->n; first += COLUMNS) {
    const uint64_t last = first + COLUMNS < ids->n ? first + COLUMNS : ids->n;
    printf("%-8s", "position");
    for (uint64_t t = first; t < last; ++t) printf("%11" PRId64, o->positions[t]);
    printf("\n%-8s", "token");
    for (uint64_t t = first; t < last; ++t) {
      short_text(model, ids->ids[t], text, sizeof(text));
      printf("%11s", text);
    }
    putchar('\n');
    for (uint32_t l = 0; l < o->n_layers; ++l) {
      printf("%-8" PRId32, o->site.per_layer ? o->first_layer + (int32_t)l : -1);
      for (uint64_t t = first; t < last; ++t) printf("%11.5g", o->norms[t * o->n_layers + l]);
      putchar('\n');
    }
    if (last < ids->n) putchar('\n');
  }
}

/* One line: up to COLUMNS layers, spread evenly, always the first and the last. */
static void print_line(const engine_model *model, const observation *o, int32_t id) {
  const uint32_t n = o->n_layers < COLUMNS ? o->n_layers : COLUMNS;
  char text[10];
  if (o->token == 0) {
    printf("%8s %-10s", "position", "token");
    for (uint32_t i = 0; i < n; ++i) {
      const uint32_t l = n > 1 ? i * (o->n_layers - 1) / (n - 1) : 0;
      printf("  layer %3" PRId32, o->site.per_layer ? o->first_layer + (int32_t)l : -1);
    }
    putchar('\n');
  }
  short_text(model, id, text, sizeof(text));
  printf("%8" PRId64 " %-10s", o->positions[o->token], text);
  for (uint32_t i = 0; i < n; ++i) {
    const uint32_t l = n > 1 ? i * (o->n_layers - 1) / (n - 1) : 0;
    printf("%11.5g", o->norms[o->token * o->n_layers + l]);
  }
  putchar('\n');
  fflush(stdout);
}

static int print_json(const engine_model *model, const engine_session *session,
                      const observe_options *options, const observation *o, const id_list *ids) {
  engine_hook_stats stats = ENGINE_HOOK_STATS_INIT;
  const int32_t status = engine_hook_stats_get(session, o->hook, &stats);
  if (status != ENGINE_OK) return cli_report("cannot read the hook's counters", status, NULL);
  printf("{\"site\": \"%s\", \"action\": \"%s\", \"layers\": [", o->site.name,
         options->callback ? "read" : "capture");
  for (uint32_t l = 0; l < o->n_layers; ++l) {
    printf("%s%" PRId32, l ? ", " : "", o->site.per_layer ? o->first_layer + (int32_t)l : -1);
  }
  fputs("], \"ids\": [", stdout);
  for (uint64_t t = 0; t < ids->n; ++t) printf("%s%" PRId32, t ? ", " : "", ids->ids[t]);
  fputs("], \"tokens\": [", stdout);
  for (uint64_t t = 0; t < ids->n; ++t) {
    char bytes[512];
    uint64_t n = 0;
    if (engine_token_bytes(model, ids->ids[t], 1, bytes, sizeof(bytes), &n) != ENGINE_OK) n = 0;
    if (t) fputs(", ", stdout);
    cli_print_json_text(bytes, n);
  }
  fputs("], \"positions\": [", stdout);
  for (uint64_t t = 0; t < ids->n; ++t) printf("%s%" PRId64, t ? ", " : "", o->positions[t]);
  fputs("], \"norms\": [", stdout);
  for (uint64_t t = 0; t < ids->n; ++t) {
    fputs(t ? ", [" : "[", stdout);
    for (uint32_t l = 0; l < o->n_layers; ++l) {
      const double norm = o->norms[t * o->n_layers + l];
      if (l) fputs(", ", stdout);
      if (isnan(norm)) {
        fputs("null", stdout);
      } else {
        printf("%.17g", norm);
      }
    }
    putchar(']');
  }
  fputs("], \"hook\": ", stdout);
  hook_options_print_stats(&stats);
  puts("}");
  return CLI_OK;
}

/* Generates and observes; 0 or an exit code. */
static int generate(const engine_model *model, const engine_model_info *info,
                    engine_session *session, const observe_options *options, const id_list *prompt,
                    observation *o, id_list *ids) {
  engine_error error = ENGINE_ERROR_INIT;
  engine_sampler *greedy = NULL;
  float *logits = cli_allocate((uint64_t)info->n_vocab * sizeof(float));
  int32_t status = engine_sampler_create(NULL, &greedy, &error);
  if (status == ENGINE_OK) {
    status = engine_session_decode(session, prompt->ids, prompt->n, logits, &error);
  }
  while (status == ENGINE_OK && ids->n < options->n_tokens) {
    int32_t id = 0;
    status = engine_sampler_sample(greedy, logits, (uint64_t)info->n_vocab, &id, &error);
    if (status != ENGINE_OK || engine_token_end_reason(model, id) != ENGINE_END_NONE) break;
    o->token = ids->n;
    status = engine_session_decode(session, &id, 1, logits, &error);
    if (status == ENGINE_OK && !options->callback) status = read_ring(session, o);
    if (status != ENGINE_OK) break;
    id_list_append(ids, id);
    if (options->lines) print_line(model, o, id);
  }
  engine_sampler_destroy(greedy);
  free(logits);
  return status == ENGINE_OK ? CLI_OK : cli_report("cannot generate", status, &error);
}

static int observe(const engine_model *model, const engine_model_info *info,
                   engine_session *session, const observe_options *options, const id_list *prompt) {
  observation o;
  memset(&o, 0, sizeof(o));
  id_list ids = {NULL, 0, 0};
  engine_error error = ENGINE_ERROR_INIT;
  engine_session_stats stats = ENGINE_SESSION_STATS_INIT;
  engine_session_stats_get(session, &stats);
  if (prompt->n == 0 || prompt->n + options->n_tokens > stats.n_ctx) {
    cli_message("the prompt has %" PRIu64 " tokens, the context holds %u; see -c", prompt->n,
                stats.n_ctx);
    return CLI_FAILED;
  }
  int32_t begin = 0, end = 0;
  int code = hook_options_site(model, options->site, &o.site);
  if (code == CLI_OK) {
    code = hook_options_layer(&o.site, options->layer, info->n_layer, &begin, &end);
  }
  if (code != CLI_OK) return code;
  o.width = hook_options_width(&o.site, stats.n_ctx);
  o.first_layer = begin;
  o.n_layers = !o.site.per_layer || end > begin ? 1 : (uint32_t)info->n_layer;
  o.ring = cli_allocate(o.n_layers * o.width * sizeof(float));
  o.records = cli_allocate(o.n_layers * sizeof(*o.records));
  const uint64_t n_norms = (uint64_t)options->n_tokens * o.n_layers;
  o.norms = cli_allocate(n_norms * sizeof(double));
  for (uint64_t i = 0; i < n_norms; ++i) o.norms[i] = NAN;
  o.positions = cli_allocate(options->n_tokens * sizeof(int64_t));
  const int32_t status = add_hook(session, options, begin, end, &o, &error);
  if (status != ENGINE_OK) code = cli_report("cannot register the hook", status, &error);
  if (code == CLI_OK) code = generate(model, info, session, options, prompt, &o, &ids);
  if (code == CLI_OK && options->json) code = print_json(model, session, options, &o, &ids);
  if (code == CLI_OK && !options->json && !options->lines) print_table(model, &o, &ids);
  if (o.hook) engine_hook_remove(session, o.hook, NULL);
  free(o.ring);
  free(o.records);
  free(o.norms);
  free(o.positions);
  free(ids.ids);
  return code;
}

static int open_and_observe(const observe_options *options, int32_t mode) {
  engine_model *model = NULL;
  engine_session *session = NULL;
  engine_model_info info;
  engine_error error = ENGINE_ERROR_INIT;
  id_list prompt = {NULL, 0, 0};
  int code = generation_open_model(options->model_path, 0, &model, &info);
  if (code == CLI_OK && options->chat) {
    const engine_chat_message message = {"user", options->prompt, strlen(options->prompt)};
    const int32_t status = generation_chat_ids(model, &message, 1, &prompt, &error);
    if (status != ENGINE_OK) code = cli_report("cannot use the chat template", status, &error);
  } else if (code == CLI_OK) {
    code = generation_tokenize(model, options->prompt, strlen(options->prompt), ENGINE_BOS_DEFAULT,
                               ENGINE_SPECIAL_PLAIN, &prompt);
  }
  if (code == CLI_OK) {
    engine_session_params params = ENGINE_SESSION_PARAMS_INIT;
    params.n_ctx = options->n_ctx;
    params.n_threads = options->n_threads;
    params.mode = mode;
    const int32_t status = engine_session_create(model, &params, &session, &error);
    if (status != ENGINE_OK) code = cli_report("cannot start a session", status, &error);
  }
  if (code == CLI_OK) code = observe(model, &info, session, options, &prompt);
  free(prompt.ids);
  engine_session_destroy(session);
  engine_model_close(model);
  return code;
}

int main(int argc, char **argv) {
  observe_options o = {NULL, NULL, "resid_post", "default", 0, -1, 0, 0, 0, 8, 0, 0};
  const cli_option options[] = {
      {"--prompt", "-p", CLI_TEXT, &o.prompt, NULL},
      {"--chat", NULL, CLI_FLAG, &o.chat, NULL},
      {"--tokens", "-n", CLI_COUNT, &o.n_tokens, NULL},
      {"--site", NULL, CLI_TEXT, &o.site, NULL},
      {"--layer", NULL, CLI_INT, &o.layer, NULL},
      {"--callback", NULL, CLI_FLAG, &o.callback, NULL},
      {"--lines", NULL, CLI_FLAG, &o.lines, NULL},
      {"--mode", NULL, CLI_TEXT, &o.mode, NULL},
      {"--ctx", "-c", CLI_COUNT, &o.n_ctx, NULL},
      {"--threads", "-t", CLI_COUNT, &o.n_threads, NULL},
      {"--json", NULL, CLI_FLAG, &o.json, NULL},
  };
  cli_parse(argc, argv, kUsage, options, sizeof(options) / sizeof(options[0]), &o.model_path);
  const int32_t mode = hook_options_mode(o.mode);
  if (mode < 0) cli_usage_error("unknown mode '%s': %s", o.mode, HOOK_OPTIONS_MODES);
  if (!o.prompt) cli_usage_error("give the prompt with -p TEXT");
  if (o.json && o.lines) cli_usage_error("--lines or --json, not both");
  return open_and_observe(&o, mode);
}
