/* steer: adds a vector to a hidden state while a model generates, and shows the text with and without. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cli.h"
#include "common/float_vector.h"
#include "common/generation.h"
#include "common/hook_options.h"

static const char kUsage[] =
    "steer MODEL -p TEXT --vector FILE --layer N [options]: generate with a vector added\n"
    "steer MODEL --make-vector A B --layer N --out FILE [options]: make such a vector\n"
    "\n"
    "  -p, --prompt TEXT   the prompt\n"
    "  --chat              the prompt is a question: use the model's chat template\n"
    "  --vector FILE       raw float32, or NumPy .npy of float32; one row is used\n"
    "  --row N             which row, where the file holds more than one\n"
    "  --site NAME         where to add (default resid_post)\n"
    "  --layer N           in which layer\n"
    "  --alpha A           times what (default 1); negative turns it round\n"
    "  --positions WHICH   all (default) or generated: leave the prompt as it is\n"
    "  --make-vector A B   mean of the site over text A minus the mean over text B. The first\n"
    "                      position of a text is left out: in most models it is an outlier\n"
    "  --out FILE          where --make-vector writes: .npy by name, else raw float32\n"
    "  -n, --tokens N      at most N tokens (default 48)\n"
    "  --mode NAME         " HOOK_OPTIONS_MODES
    "\n"
    "  -c, --ctx N         context in tokens (default: up to 4096, as the model was trained)\n"
    "  -t, --threads N     threads (default: all cores that this process may use)\n"
    "  --json              one JSON object instead of the texts\n"
    "\n" SAMPLING_USAGE
    "\n"
    "Without steering comes first, then with; both start from the same seed.\n"
    "Status: 0 = done, 1 = failed (the reason is on stderr), 2 = wrong command line.\n"
    "\n"
    "Example: steer model.gguf --make-vector \"I love it, it is wonderful\" \"I hate it, it is "
    "awful\" --layer 12 --out love.npy\n"
    "         steer model.gguf -p \"I think that this film is\" --vector love.npy --layer 12 "
    "--alpha 2\n";

typedef struct steer_options {
  const char *model_path, *prompt, *vector, *site, *positions, *mode, *out;
  const char *texts[2]; /* of --make-vector */
  int32_t make_vector, layer_given, layer, row, chat, json;
  uint32_t n_tokens, n_ctx, n_threads;
  float alpha;
  sampling_options sampling;
} steer_options;

typedef struct steer_context {
  const engine_model *model;
  engine_model_info info;
  engine_session *session;
  engine_hook_site_info site;
  uint64_t width;
  uint32_t n_ctx;
} steer_context;

static double norm_of(const double *values, uint64_t n) {
  double sum = 0;
  for (uint64_t i = 0; i < n; ++i) sum += values[i] * values[i];
  return sqrt(sum);
}

/* A hook at the site and layer of the command line. */
static engine_hook_params hook_at_site(const steer_context *c, const steer_options *o) {
  engine_hook_params params = ENGINE_HOOK_PARAMS_INIT;
  params.site = c->site.name;
  if (c->site.per_layer) {
    params.layer_begin = o->layer;
    params.layer_end = o->layer + 1;
  }
  return params;
}

/* ---- --make-vector ------------------------------------------------------------------------------ */

/* The mean row of a text, and the mean of the rows' norms; 0 or an exit code. */
static int mean_of_text(const steer_context *c, const steer_options *o, const char *text,
                        double *mean, double *mean_norm) {
  id_list ids = {NULL, 0, 0};
  int code = generation_tokenize(c->model, text, strlen(text), ENGINE_BOS_DEFAULT,
                                 ENGINE_SPECIAL_PLAIN, &ids);
  if (code == CLI_OK && (ids.n == 0 || ids.n > c->n_ctx)) {
    cli_message("the text \"%s\" has %" PRIu64 " tokens; 1 to %u can be used", text, ids.n,
                c->n_ctx);
    code = CLI_FAILED;
  }
  if (code != CLI_OK) {
    free(ids.ids);
    return code;
  }
  engine_error error = ENGINE_ERROR_INIT;
  uint64_t hook = 0;
  engine_hook_params params = hook_at_site(c, o);
  params.action = ENGINE_HOOK_CAPTURE;
  params.capture = cli_allocate(ids.n * c->width * sizeof(float));
  params.capture_rows = ids.n;
  int32_t status = engine_session_truncate(c->session, 0);
  if (status == ENGINE_OK) status = engine_hook_register(c->session, &params, &hook, &error);
  if (status == ENGINE_OK) {
    status = engine_session_decode(c->session, ids.ids, ids.n, NULL, &error);
  }
  engine_hook_stats stats = ENGINE_HOOK_STATS_INIT;
  if (hook) {
    engine_hook_stats_get(c->session, hook, &stats);
    const int32_t removed = engine_hook_remove(c->session, hook, &error);
    if (status == ENGINE_OK) status = removed;
  }
  memset(mean, 0, c->width * sizeof(double));
  *mean_norm = 0;
  double *row = cli_allocate(c->width * sizeof(double));
  const uint64_t first = stats.rows_captured > 1 ? 1 : 0;
  for (uint64_t i = first; i < stats.rows_captured; ++i) {
    const double share = 1.0 / (double)(stats.rows_captured - first);
    for (uint64_t k = 0; k < c->width; ++k) {
      row[k] = params.capture[i * c->width + k];
      mean[k] += share * row[k];
    }
    *mean_norm += share * norm_of(row, c->width);
  }
  free(row);
  free(params.capture);
  free(ids.ids);
  return status == ENGINE_OK ? CLI_OK : cli_report("cannot capture", status, &error);
}

static int make_vector(const steer_context *c, const steer_options *o) {
  double *means[2], norms[2] = {0, 0};
  int code = CLI_OK;
  for (int i = 0; i < 2; ++i) means[i] = cli_allocate(c->width * sizeof(double));
  for (int i = 0; i < 2 && code == CLI_OK; ++i) {
    code = mean_of_text(c, o, o->texts[i], means[i], &norms[i]);
  }
  if (code == CLI_OK) {
    float *vector = cli_allocate(c->width * sizeof(float));
    for (uint64_t k = 0; k < c->width; ++k) {
      means[0][k] -= means[1][k];
      vector[k] = (float)means[0][k];
    }
    const double norm = norm_of(means[0], c->width);
    code = float_vector_write(o->out, vector, c->width);
    free(vector);
    if (code == CLI_OK && o->json) {
      printf("{\"site\": \"%s\", \"layer\": %" PRId32 ", \"width\": %" PRIu64
             ", \"norm\": %.9g, \"norm_a\": %.9g, \"norm_b\": %.9g, \"out\": ",
             c->site.name, o->layer, c->width, norm, norms[0], norms[1]);
      cli_print_json_text(o->out, strlen(o->out));
      puts("}");
    } else if (code == CLI_OK) {
      printf("%s: %s of layer %" PRId32 ", %" PRIu64
             " values, norm %.4g; the rows of A have norm %.4g, of B %.4g on average\n",
             o->out, c->site.name, o->layer, c->width, norm, norms[0], norms[1]);
    }
  }
  for (int i = 0; i < 2; ++i) free(means[i]);
  return code;
}

/* ---- steering ----------------------------------------------------------------------------------- */

/* One text from an empty session; 0 or an exit code. */
static int generate(const steer_context *c, const steer_options *o, uint64_t seed,
                    const id_list *prompt, generation_result *result) {
  engine_error error = ENGINE_ERROR_INIT;
  engine_sampler_params sampling = o->sampling.params;
  generation_request request;
  memset(&request, 0, sizeof(request));
  sampling.has_seed = 1;
  sampling.seed = seed;
  int32_t status = engine_sampler_create(&sampling, &request.sampler, &error);
  if (status == ENGINE_OK) status = engine_session_truncate(c->session, 0);
  request.model = c->model;
  request.session = c->session;
  request.n_vocab = (uint64_t)c->info.n_vocab;
  request.prompt = prompt->ids;
  request.n_prompt = prompt->n;
  request.max_tokens = o->n_tokens;
  request.at_start = o->chat;
  request.stream = !o->json;
  if (status == ENGINE_OK) status = generation_run(&request, result, &error);
  if (!o->json) putchar('\n');
  engine_sampler_destroy(request.sampler);
  return status == ENGINE_OK ? CLI_OK : cli_report("cannot generate", status, &error);
}

static void print_text_json(const char *name, const generation_result *result) {
  printf("\"%s\": {\"text\": ", name);
  cli_print_json_text(result->text, result->text_bytes);
  fputs(", \"ids\": [", stdout);
  for (uint64_t i = 0; i < result->ids.n; ++i) {
    printf("%s%" PRId32, i ? ", " : "", result->ids.ids[i]);
  }
  printf("], \"stop\": \"%s\"}, ", result->stop_reason);
}

static int steer(const steer_context *c, const steer_options *o, const id_list *prompt) {
  generation_result plain, steered;
  memset(&plain, 0, sizeof(plain));
  memset(&steered, 0, sizeof(steered));
  engine_error error = ENGINE_ERROR_INIT;
  engine_hook_stats stats = ENGINE_HOOK_STATS_INIT;
  engine_sampler *seeded = NULL;
  engine_sampler_params sampling = o->sampling.params;
  uint64_t hook = 0;
  float *vector = float_vector_read(o->vector, c->width, o->row);
  if (!vector) return CLI_FAILED;
  /* Greedy draws nothing: no seed to tell. */
  sampling.has_seed = o->sampling.seed_given || sampling.temperature <= 0;
  int32_t status = engine_sampler_create(&sampling, &seeded, &error);
  const uint64_t seed = engine_sampler_seed(seeded);
  engine_sampler_destroy(seeded);
  int code = status == ENGINE_OK ? CLI_OK : cli_report("wrong sampling options", status, &error);

  if (code == CLI_OK && !o->json) puts("--- without");
  if (code == CLI_OK) code = generate(c, o, seed, prompt, &plain);
  if (code == CLI_OK) {
    engine_hook_params params = hook_at_site(c, o);
    params.action = ENGINE_HOOK_ADD;
    params.values = vector;
    params.n_values = c->width;
    params.alpha = o->alpha;
    if (strcmp(o->positions, "generated") == 0) params.position_select = ENGINE_POSITIONS_GENERATED;
    status = engine_hook_register(c->session, &params, &hook, &error);
    if (status != ENGINE_OK) code = cli_report("cannot register the hook", status, &error);
  }
  if (code == CLI_OK && !o->json) {
    printf("--- with %s of layer %" PRId32 " += %g * %s\n", c->site.name, o->layer,
           (double)o->alpha, o->vector);
  }
  if (code == CLI_OK) code = generate(c, o, seed, prompt, &steered);
  if (code == CLI_OK) {
    status = engine_hook_stats_get(c->session, hook, &stats);
    if (status != ENGINE_OK) code = cli_report("cannot read the hook's counters", status, NULL);
  }
  if (code == CLI_OK && o->json) {
    printf("{\"site\": \"%s\", \"layer\": %" PRId32
           ", \"alpha\": %.9g, \"positions\": \"%s\", \"seed\": %" PRIu64 ", ",
           c->site.name, o->layer, (double)o->alpha, o->positions, seed);
    print_text_json("without", &plain);
    print_text_json("with", &steered);
    fputs("\"hook\": ", stdout);
    hook_options_print_stats(&stats);
    puts("}");
  } else if (code == CLI_OK) {
    printf("--- the hook: %" PRIu64 " calls, %" PRIu64 " positions (%" PRIu64
           " of the prompt, %" PRIu64 " generated), %" PRIu64 " rows written\n",
           stats.calls, stats.positions, stats.prefill_positions, stats.decode_positions,
           stats.writes);
  }
  generation_result_free(&plain);
  generation_result_free(&steered);
  free(vector);
  return code;
}

/* ---- opening ------------------------------------------------------------------------------------ */

static int read_prompt(const steer_context *c, const steer_options *o, id_list *ids) {
  if (!o->chat) {
    const int code = generation_tokenize(c->model, o->prompt, strlen(o->prompt), ENGINE_BOS_DEFAULT,
                                         ENGINE_SPECIAL_PLAIN, ids);
    if (code != CLI_OK) return code;
  } else {
    const engine_chat_message message = {"user", o->prompt, strlen(o->prompt)};
    engine_error error = ENGINE_ERROR_INIT;
    const int32_t status = generation_chat_ids(c->model, &message, 1, ids, &error);
    if (status != ENGINE_OK) return cli_report("cannot use the chat template", status, &error);
  }
  if (ids->n > 0 && ids->n <= c->n_ctx) return CLI_OK;
  cli_message("the prompt has %" PRIu64 " tokens, the context holds %u; see -c", ids->n, c->n_ctx);
  return CLI_FAILED;
}

static int open_and_run(const steer_options *o, int32_t mode) {
  engine_model *model = NULL;
  engine_error error = ENGINE_ERROR_INIT;
  id_list prompt = {NULL, 0, 0};
  steer_context c;
  memset(&c, 0, sizeof(c));
  int code = generation_open_model(o->model_path, 0, &model, &c.info);
  c.model = model;
  if (code == CLI_OK) code = hook_options_site(model, o->site, &c.site);
  if (code == CLI_OK) {
    int32_t begin, end;
    code = hook_options_layer(&c.site, o->layer, c.info.n_layer, &begin, &end);
  }
  if (code == CLI_OK) {
    engine_session_params params = ENGINE_SESSION_PARAMS_INIT;
    engine_session_stats stats = ENGINE_SESSION_STATS_INIT;
    params.n_ctx = o->n_ctx;
    params.n_threads = o->n_threads;
    params.mode = mode;
    const int32_t status = engine_session_create(model, &params, &c.session, &error);
    if (status != ENGINE_OK) code = cli_report("cannot start a session", status, &error);
    if (status == ENGINE_OK) engine_session_stats_get(c.session, &stats);
    c.n_ctx = stats.n_ctx;
    c.width = hook_options_width(&c.site, stats.n_ctx);
  }
  if (code == CLI_OK && o->make_vector) code = make_vector(&c, o);
  if (code == CLI_OK && o->prompt) code = read_prompt(&c, o, &prompt);
  if (code == CLI_OK && o->prompt) code = steer(&c, o, &prompt);
  free(prompt.ids);
  engine_session_destroy(c.session);
  engine_model_close(model);
  return code;
}

int main(int argc, char **argv) {
  steer_options o = {
      NULL, NULL, NULL, "resid_post", "all", "default", NULL, {NULL, NULL},         0, 0, 0,
      -1,   0,    0,    48,           0,     0,         1.0f, SAMPLING_OPTIONS_INIT};
  const cli_option options[] = {
      {"--prompt", "-p", CLI_TEXT, &o.prompt, NULL},
      {"--chat", NULL, CLI_FLAG, &o.chat, NULL},
      {"--vector", NULL, CLI_TEXT, &o.vector, NULL},
      {"--row", NULL, CLI_INT, &o.row, NULL},
      {"--site", NULL, CLI_TEXT, &o.site, NULL},
      {"--layer", NULL, CLI_INT, &o.layer, &o.layer_given},
      {"--alpha", NULL, CLI_REAL, &o.alpha, NULL},
      {"--positions", NULL, CLI_TEXT, &o.positions, NULL},
      {"--make-vector", NULL, CLI_PAIR, o.texts, &o.make_vector},
      {"--out", "-o", CLI_TEXT, &o.out, NULL},
      {"--tokens", "-n", CLI_COUNT, &o.n_tokens, NULL},
      {"--mode", NULL, CLI_TEXT, &o.mode, NULL},
      {"--ctx", "-c", CLI_COUNT, &o.n_ctx, NULL},
      {"--threads", "-t", CLI_COUNT, &o.n_threads, NULL},
      {"--json", NULL, CLI_FLAG, &o.json, NULL},
      SAMPLING_OPTION_ROWS(o.sampling),
  };
  cli_parse(argc, argv, kUsage, options, sizeof(options) / sizeof(options[0]), &o.model_path);
  const int32_t mode = hook_options_mode(o.mode);
  if (mode < 0) cli_usage_error("unknown mode '%s': %s", o.mode, HOOK_OPTIONS_MODES);
  if (strcmp(o.positions, "all") != 0 && strcmp(o.positions, "generated") != 0) {
    cli_usage_error("'%s' is not a value for --positions: all or generated", o.positions);
  }
  if (!o.layer_given) cli_usage_error("which layer? Give it with --layer N");
  if (o.layer < 0) cli_usage_error("--layer counts from 0");
  if (o.make_vector == !o.out) cli_usage_error("--make-vector A B and --out FILE go together");
  if (!o.prompt == !o.make_vector) cli_usage_error("give -p TEXT, or --make-vector A B");
  if (o.prompt && !o.vector) cli_usage_error("which vector? Give it with --vector FILE");
  return open_and_run(&o, mode);
}
