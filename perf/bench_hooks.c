/* bench_hooks: what hooks cost per decoded token, in alternating pairs of blocks within one process. */
#define _POSIX_C_SOURCE 200809L

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "allocation_count.h"
#include "common/cli.h"
#include "common/hook_options.h"
#include "engine.h"

static const char kUsage[] =
    "bench_hooks MODEL [options]: what hooks cost per decoded token\n"
    "\n"
    "  --repeats N       pairs of blocks for each row (default 9, at least 5)\n"
    "  --tokens N        measured tokens in a block (default 24)\n"
    "  --site NAME       site of the rows with one layer (default resid_post)\n"
    "  --layer N         their layer (default: the middle one)\n"
    "  --rows LIST       which rows, by name with commas between (default: all)\n"
    "  --threads N       threads (default: all cores that this process may use)\n"
    "  --mode NAME       " HOOK_OPTIONS_MODES
    "\n"
    "  --prompt TEXT     what stands before the tokens (default \"The capital of France is\")\n"
    "  --json            one JSON object instead of the table\n"
    "\n"
    "Every row compares A, no hook, with B. Blocks alternate, A B then B A; each decodes the same\n"
    "prompt and four tokens unmeasured, then the same N tokens, with a clock read around each.\n"
    "  null         B: another session without hooks; the noise of this machine\n"
    "  removed      B: a session whose hook was registered and removed again    bar 0.3 %\n"
    "  read-one     B: reading callback, one site of one layer                  bar 1 %\n"
    "  capture-one  B: capture to a ring, one site of one layer                 bar 1 %\n"
    "  add-one      B: a vector added in one layer                              bar 1 %\n"
    "  read-all     B: reading callback, resid_post of all layers               bar 5 %\n"
    "  capture-all  B: capture to a ring, resid_post of all layers              bar 5 %\n"
    "null and removed use two sessions; the others register and remove in one, between blocks.\n"
    "The bars are for models of 1 to 3 B weights; in smaller ones the same work weighs more.\n"
    "\n"
    "ns/token     min, median and max over all measured tokens of all blocks\n"
    "ratio        median of the pairs' ratios of block medians, [smallest .. largest]\n"
    "of best      ratio of the best block medians: what is left on a busy machine\n"
    "fired        calls of the hook in the measured tokens, of as many as there must be\n"
    "allocations  of the whole process, all threads, in the measured tokens of A and B\n"
    "verdict      met or over, where the middle half of the pairs agrees; else unclear\n"
    "Status: 0 = done, 1 = failed, or a count is not what it must be (allocations must be 0\n"
    "where no new KV page is needed, but for mode reference), 2 = wrong command line.\n"
    "\n"
    "Example: bench_hooks model.gguf --threads 1 --rows null,add-one\n";

enum { WARM_UP = 4, KV_PAGE = 64, N_FUSIONS = 6 };

typedef struct row_kind {
  const char *name;
  int32_t action; /* ENGINE_HOOK_*; 0 = no hook while measured */
  int all_layers, two_sessions, register_and_remove;
  double bar; /* largest ratio; 0 = none */
} row_kind;

static const row_kind kRows[] = {
    {"null", 0, 0, 1, 0, 0},
    {"removed", 0, 0, 1, 1, 1.003},
    {"read-one", ENGINE_HOOK_READ, 0, 0, 0, 1.01},
    {"capture-one", ENGINE_HOOK_CAPTURE, 0, 0, 0, 1.01},
    {"add-one", ENGINE_HOOK_ADD, 0, 0, 0, 1.01},
    {"read-all", ENGINE_HOOK_READ, 1, 0, 0, 1.05},
    {"capture-all", ENGINE_HOOK_CAPTURE, 1, 0, 0, 1.05},
};
enum { N_ROWS = sizeof(kRows) / sizeof(kRows[0]) };

typedef struct bench_options {
  const char *model_path, *site, *rows, *mode, *prompt;
  uint32_t repeats, tokens;
  int32_t layer, json;
  engine_session_params session;
} bench_options;

typedef struct bench_state {
  const bench_options *options;
  engine_model *model;
  engine_model_info info;
  engine_hook_site_info one, all; /* sites of the rows with one layer and with all */
  int32_t ids[256];
  uint64_t n_prompt;
  int32_t *tokens; /* [WARM_UP + options->tokens] */
  float *logits, *vector, *ring;
  engine_session_stats stats;
  uint64_t n_callbacks;
  float seen; /* what the callback read */
} bench_state;

/* One side of a row. */
typedef struct side {
  double *ns;     /* [repeats][tokens] */
  double *median; /* [repeats] */
  uint64_t fired, writes, rows_captured, callbacks;
  uint64_t fusions[N_FUSIONS];
  int64_t allocations;
} side;

typedef struct row_result {
  const row_kind *kind;
  side sides[2];
  double *ratios; /* [repeats], ascending */
  uint64_t expected;
} row_result;

static double now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return 1e9 * (double)t.tv_sec + (double)t.tv_nsec;
}

static int compare_doubles(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double median_of(const double *values, uint64_t n) {
  double *sorted = cli_allocate(n * sizeof(double));
  memcpy(sorted, values, n * sizeof(double));
  qsort(sorted, n, sizeof(double), compare_doubles);
  const double median = n % 2 ? sorted[n / 2] : 0.5 * (sorted[n / 2 - 1] + sorted[n / 2]);
  free(sorted);
  return median;
}

static int32_t on_rows(void *user, const engine_hook_event *event, float *values) {
  bench_state *b = user;
  b->n_callbacks += event->n_rows;
  b->seen += values[0];
  return 0;
}

static int32_t start_session(const bench_state *b, engine_session **session, engine_error *error) {
  return engine_session_create(b->model, &b->options->session, session, error);
}

static int32_t add_hook(bench_state *b, engine_session *session, int32_t action, int all_layers,
                        uint64_t *hook, engine_error *error) {
  engine_hook_params params = ENGINE_HOOK_PARAMS_INIT;
  const engine_hook_site_info *site = all_layers ? &b->all : &b->one;
  params.action = action;
  params.site = site->name;
  if (!all_layers && site->per_layer) {
    params.layer_begin = b->options->layer;
    params.layer_end = b->options->layer + 1;
  }
  if (action == ENGINE_HOOK_READ) {
    params.callback = on_rows;
    params.user = b;
  } else if (action == ENGINE_HOOK_CAPTURE) {
    params.capture = b->ring;
    params.capture_rows = all_layers ? site->n_layers : 1;
    params.capture_flags = ENGINE_CAPTURE_RING;
  } else {
    params.values = b->vector;
    params.n_values = site->width;
  }
  return engine_hook_register(session, &params, hook, error);
}

static void read_fusions(const engine_session *session, uint64_t *calls) {
  const char *name = NULL;
  for (uint32_t i = 0; i < N_FUSIONS; ++i) {
    if (engine_session_fusion_at(session, i, &name, &calls[i]) != ENGINE_OK) calls[i] = 0;
  }
}

/* One block; adds what was measured to `s`. hook 0 = none. */
static int32_t run_block(bench_state *b, engine_session *session, uint64_t hook, uint32_t repeat,
                         side *s, engine_error *error) {
  const uint32_t n = b->options->tokens;
  double *ns = s->ns + (uint64_t)repeat * n;
  engine_hook_stats before = ENGINE_HOOK_STATS_INIT, after = ENGINE_HOOK_STATS_INIT;
  uint64_t fusions[2][N_FUSIONS];
  int32_t status = engine_session_truncate(session, 0);
  if (status == ENGINE_OK) {
    status = engine_session_decode(session, b->ids, b->n_prompt, b->logits, error);
  }
  for (uint32_t i = 0; i < WARM_UP && status == ENGINE_OK; ++i) {
    status = engine_session_decode(session, b->tokens + i, 1, b->logits, error);
  }
  if (status == ENGINE_OK && hook) status = engine_hook_stats_get(session, hook, &before);
  read_fusions(session, fusions[0]);
  const uint64_t callbacks = b->n_callbacks;
  const int64_t allocations = allocation_count();
  for (uint32_t i = 0; i < n && status == ENGINE_OK; ++i) {
    const double start = now_ns();
    status = engine_session_decode(session, b->tokens + WARM_UP + i, 1, b->logits, error);
    ns[i] = now_ns() - start;
  }
  s->allocations += allocation_count() - allocations;
  s->callbacks += b->n_callbacks - callbacks;
  read_fusions(session, fusions[1]);
  for (int i = 0; i < N_FUSIONS; ++i) s->fusions[i] += fusions[1][i] - fusions[0][i];
  if (status == ENGINE_OK && hook) status = engine_hook_stats_get(session, hook, &after);
  s->fired += after.calls - before.calls;
  s->writes += after.writes - before.writes;
  s->rows_captured += after.rows_captured - before.rows_captured;
  if (status == ENGINE_OK) s->median[repeat] = median_of(ns, n);
  return status;
}

/* Registers and removes a hook, and makes sure that it is gone. */
static int32_t touch_hook(bench_state *b, engine_session *session, engine_error *error) {
  uint64_t hook = 0;
  engine_hook_stats stats = ENGINE_HOOK_STATS_INIT;
  int32_t status = add_hook(b, session, ENGINE_HOOK_ADD, 0, &hook, error);
  if (status == ENGINE_OK) status = engine_hook_remove(session, hook, error);
  if (status != ENGINE_OK) return status;
  return engine_hook_stats_get(session, hook, &stats) == ENGINE_ARGUMENT ? ENGINE_OK
                                                                         : ENGINE_INTERNAL;
}

static int32_t run_row(bench_state *b, row_result *r, engine_error *error) {
  engine_session *sessions[2] = {NULL, NULL};
  int32_t status = start_session(b, &sessions[0], error);
  if (status == ENGINE_OK && r->kind->two_sessions) status = start_session(b, &sessions[1], error);
  if (status == ENGINE_OK && r->kind->register_and_remove) {
    status = touch_hook(b, sessions[1], error);
  }
  for (uint32_t i = 0; i < b->options->repeats && status == ENGINE_OK; ++i) {
    /* A B, then B A: what the first of a pair gains or loses evens out. */
    for (int k = 0; k < 2 && status == ENGINE_OK; ++k) {
      const int which = (int)(i % 2) ^ k;
      engine_session *session = sessions[which && r->kind->two_sessions];
      uint64_t hook = 0;
      if (which && r->kind->action) {
        status = add_hook(b, session, r->kind->action, r->kind->all_layers, &hook, error);
      }
      if (status == ENGINE_OK) {
        status = run_block(b, session, hook, i, &r->sides[which], error);
      }
      if (status == ENGINE_OK && hook) status = engine_hook_remove(session, hook, error);
    }
    if (status == ENGINE_OK) r->ratios[i] = r->sides[1].median[i] / r->sides[0].median[i];
  }
  engine_session_destroy(sessions[0]);
  engine_session_destroy(sessions[1]);
  qsort(r->ratios, b->options->repeats, sizeof(double), compare_doubles);
  const uint64_t layers = r->kind->all_layers ? b->all.n_layers : 1;
  r->expected = r->kind->action ? layers * b->options->repeats * b->options->tokens : 0;
  return status;
}

/* Every counter of the row is what the work must have given. */
static int counts_are_right(const bench_state *b, const row_result *r) {
  const side *hooked = &r->sides[1];
  const int32_t action = r->kind->action;
  const uint64_t end = b->n_prompt + WARM_UP + b->options->tokens;
  const int no_new_page =
      (b->n_prompt + WARM_UP + KV_PAGE - 1) / KV_PAGE == (end + KV_PAGE - 1) / KV_PAGE;
  int right = hooked->fired == r->expected && r->sides[0].fired == 0;
  right &= hooked->callbacks == (action == ENGINE_HOOK_READ ? r->expected : 0);
  right &= hooked->rows_captured == (action == ENGINE_HOOK_CAPTURE ? r->expected : 0);
  right &= hooked->writes == (action == ENGINE_HOOK_ADD ? r->expected : 0);
  if (!right) {
    cli_message("%s: the hook fired %" PRIu64 " times, wrote %" PRIu64 " rows, captured %" PRIu64
                ", called back %" PRIu64 "; expected %" PRIu64,
                r->kind->name, hooked->fired, hooked->writes, hooked->rows_captured,
                hooked->callbacks, r->expected);
  }
  const int64_t allocations = r->sides[0].allocations + hooked->allocations;
  if (no_new_page && b->stats.mode != ENGINE_MODE_REFERENCE && allocations != 0) {
    cli_message("%s: %" PRId64 " allocations while decoding", r->kind->name, allocations);
    right = 0;
  }
  return right;
}

/* Decided only where the middle half of the pairs agrees. */
static const char *verdict_of(const row_result *r, uint32_t repeats) {
  const double low = r->ratios[repeats / 4], high = r->ratios[repeats - 1 - repeats / 4];
  if (r->kind->bar == 0) return "-";
  return high <= r->kind->bar ? "met" : low > r->kind->bar ? "over" : "unclear";
}

typedef struct spread {
  double least, median, most;
} spread;

static spread spread_of(const double *values, uint64_t n) {
  spread result = {values[0], median_of(values, n), values[0]};
  for (uint64_t i = 1; i < n; ++i) {
    if (values[i] < result.least) result.least = values[i];
    if (values[i] > result.most) result.most = values[i];
  }
  return result;
}

static void print_side_json(const char *name, const side *s, uint64_t n) {
  const spread ns = spread_of(s->ns, n);
  printf("\"%s\": {\"ns_min\": %.0f, \"ns_median\": %.0f, \"ns_max\": %.0f, \"allocations\": ",
         name, ns.least, ns.median, ns.most);
  printf(allocation_count() < 0 ? "null" : "%" PRId64, s->allocations);
  fputs(", \"fusions\": [", stdout);
  for (int i = 0; i < N_FUSIONS; ++i) printf("%s%" PRIu64, i ? ", " : "", s->fusions[i]);
  fputs("]}", stdout);
}

static void print_row(const bench_state *b, const row_result *r, int first) {
  const uint32_t repeats = b->options->repeats;
  const uint64_t n = (uint64_t)repeats * b->options->tokens;
  const double ratio = median_of(r->ratios, repeats);
  const double of_best =
      spread_of(r->sides[1].median, repeats).least / spread_of(r->sides[0].median, repeats).least;
  const char *verdict = verdict_of(r, repeats);
  if (b->options->json) {
    printf(
        "%s{\"name\": \"%s\", \"ratio\": %.5f, \"ratio_min\": %.5f, \"ratio_max\": %.5f, "
        "\"ratio_of_best\": %.5f, ",
        first ? "" : ", ", r->kind->name, ratio, r->ratios[0], r->ratios[repeats - 1], of_best);
    printf(r->kind->bar > 0 ? "\"bar\": %.3f, " : "\"bar\": null, ", r->kind->bar);
    print_side_json("a", &r->sides[0], n);
    fputs(", ", stdout);
    print_side_json("b", &r->sides[1], n);
    printf(", \"fired\": %" PRIu64 ", \"expected\": %" PRIu64 ", \"verdict\": \"%s\"}",
           r->sides[1].fired, r->expected, verdict);
    return;
  }
  char text[2][64], fired[48], allocations[48];
  for (int i = 0; i < 2; ++i) {
    const spread ns = spread_of(r->sides[i].ns, n);
    snprintf(text[i], sizeof(text[i]), "%.0f/%.0f/%.0f", ns.least, ns.median, ns.most);
  }
  snprintf(fired, sizeof(fired), "%" PRIu64 "/%" PRIu64, r->sides[1].fired, r->expected);
  snprintf(allocations, sizeof(allocations), allocation_count() < 0 ? "na" : "%" PRId64 "+%" PRId64,
           r->sides[0].allocations, r->sides[1].allocations);
  printf("%-12s %-28s %-28s %.4f [%.4f .. %.4f]  %-8.4f %-13s %-7s %s\n", r->kind->name, text[0],
         text[1], ratio, r->ratios[0], r->ratios[repeats - 1], of_best, fired, allocations,
         verdict);
  fflush(stdout);
}

/* The tokens that all blocks decode: what the model says after the prompt, greedily. */
static int32_t choose_tokens(bench_state *b, engine_error *error) {
  engine_session *session = NULL;
  engine_sampler *greedy = NULL;
  int32_t status = start_session(b, &session, error);
  if (status == ENGINE_OK) status = engine_session_stats_get(session, &b->stats);
  if (status == ENGINE_OK) status = engine_sampler_create(NULL, &greedy, error);
  if (status == ENGINE_OK) {
    status = engine_session_decode(session, b->ids, b->n_prompt, b->logits, error);
  }
  for (uint32_t i = 0; i < WARM_UP + b->options->tokens && status == ENGINE_OK; ++i) {
    status =
        engine_sampler_sample(greedy, b->logits, (uint64_t)b->info.n_vocab, &b->tokens[i], error);
    if (status == ENGINE_OK) {
      status = engine_session_decode(session, &b->tokens[i], 1, b->logits, error);
    }
  }
  engine_sampler_destroy(greedy);
  engine_session_destroy(session);
  return status;
}

static int is_wanted(const char *list, const char *name) {
  const size_t length = strlen(name);
  for (const char *at = list; at; at = strchr(at, ',')) {
    if (*at == ',') ++at;
    if (strncmp(at, name, length) == 0 && (at[length] == ',' || at[length] == '\0')) return 1;
  }
  return list == NULL;
}

static void allocate_row(row_result *r, const bench_options *o) {
  for (int i = 0; i < 2; ++i) {
    r->sides[i].ns = cli_allocate((uint64_t)o->repeats * o->tokens * sizeof(double));
    r->sides[i].median = cli_allocate(o->repeats * sizeof(double));
  }
  r->ratios = cli_allocate(o->repeats * sizeof(double));
}

static void free_row(row_result *r) {
  for (int i = 0; i < 2; ++i) {
    free(r->sides[i].ns);
    free(r->sides[i].median);
  }
  free(r->ratios);
}

static int run_rows(bench_state *b) {
  const bench_options *o = b->options;
  row_result rows[N_ROWS];
  engine_error error = ENGINE_ERROR_INIT;
  memset(rows, 0, sizeof(rows));
  int code = CLI_OK, n_printed = 0;
  if (o->json) {
    printf("{\"mode\": %" PRId32 ", \"threads\": %u, \"target\": \"%s\", \"n_params\": %" PRIu64
           ", \"repeats\": %u, \"tokens\": %u, \"context_start\": %" PRIu64
           ", \"site\": \"%s\", \"layer\": %" PRId32 ", \"rows\": [",
           b->stats.mode, b->stats.n_threads, b->stats.target, b->info.n_params, o->repeats,
           o->tokens, b->n_prompt + WARM_UP, b->one.name, o->layer);
  } else {
    printf("mode %" PRId32
           ", %u threads, target %s, %.0f M weights, %u pairs of %u tokens at "
           "position %" PRIu64 ", %s of layer %" PRId32 "\n",
           b->stats.mode, b->stats.n_threads, b->stats.target, 1e-6 * (double)b->info.n_params,
           o->repeats, o->tokens, b->n_prompt + WARM_UP, b->one.name, o->layer);
    printf("%-12s %-28s %-28s %-25s %-8s %-13s %-7s %s\n", "row", "A ns/token min/median/max",
           "B ns/token min/median/max", "ratio", "of best", "fired", "allocs", "verdict");
  }
  for (int i = 0; i < N_ROWS; ++i) {
    if (!is_wanted(o->rows, kRows[i].name)) continue;
    rows[i].kind = &kRows[i];
    allocate_row(&rows[i], o);
    const int32_t status = run_row(b, &rows[i], &error);
    if (status != ENGINE_OK) {
      code = cli_report(kRows[i].name, status, &error);
      break;
    }
    if (!counts_are_right(b, &rows[i])) code = CLI_FAILED;
    print_row(b, &rows[i], n_printed++ == 0);
  }
  if (o->json) puts("]}");
  for (int i = 0; i < N_ROWS; ++i) free_row(&rows[i]);
  return code;
}

/* Sites, prompt, memory; 0 or an exit code. */
static int prepare(bench_state *b, bench_options *o) {
  engine_error error = ENGINE_ERROR_INIT;
  engine_model_params params = ENGINE_MODEL_PARAMS_INIT;
  const engine_model_info empty = ENGINE_MODEL_INFO_INIT;
  params.path = o->model_path;
  int32_t status = engine_model_open(&params, &b->model, &error);
  if (status != ENGINE_OK) return cli_report(o->model_path, status, &error);
  b->info = empty;
  engine_model_info_get(b->model, &b->info);
  if (o->layer < 0) o->layer = b->info.n_layer / 2;
  int32_t begin, end;
  if (hook_options_site(b->model, o->site, &b->one) != CLI_OK ||
      hook_options_site(b->model, "resid_post", &b->all) != CLI_OK ||
      hook_options_layer(&b->one, o->layer, b->info.n_layer, &begin, &end) != CLI_OK) {
    return CLI_FAILED;
  }
  if (!b->one.writable || b->one.width == 0) {
    cli_message("%s cannot be written; choose another --site", b->one.name);
    return CLI_FAILED;
  }
  if (b->info.has_tokenizer) {
    status = engine_tokenize(b->model, o->prompt, strlen(o->prompt), ENGINE_BOS_DEFAULT,
                             ENGINE_SPECIAL_PLAIN, b->ids, sizeof(b->ids) / sizeof(b->ids[0]),
                             &b->n_prompt, NULL, &error);
    if (status != ENGINE_OK) return cli_report("cannot tokenize the prompt", status, &error);
  } else {
    for (b->n_prompt = 0; b->n_prompt < 6; ++b->n_prompt) {
      b->ids[b->n_prompt] = (int32_t)(1 + 7 * b->n_prompt) % b->info.n_vocab;
    }
  }
  if (b->n_prompt == 0) {
    cli_message("the prompt is empty");
    return CLI_FAILED;
  }
  b->tokens = cli_allocate((WARM_UP + o->tokens) * sizeof(int32_t));
  b->logits = cli_allocate((uint64_t)b->info.n_vocab * sizeof(float));
  b->vector = cli_allocate(b->one.width * sizeof(float));
  for (uint32_t i = 0; i < b->one.width; ++i) b->vector[i] = i % 2 ? 1e-3f : -1e-3f;
  const uint64_t one = b->one.width, all = (uint64_t)b->all.n_layers * b->all.width;
  b->ring = cli_allocate((one > all ? one : all) * sizeof(float));
  status = choose_tokens(b, &error);
  return status == ENGINE_OK ? CLI_OK : cli_report("cannot decode", status, &error);
}

int main(int argc, char **argv) {
  bench_options o = {NULL, "resid_post", NULL, "default", "The capital of France is",
                     9,    24,           -1,   0,         ENGINE_SESSION_PARAMS_INIT};
  const cli_option options[] = {
      {"--repeats", NULL, CLI_COUNT, &o.repeats, NULL},
      {"--tokens", "-n", CLI_COUNT, &o.tokens, NULL},
      {"--site", NULL, CLI_TEXT, &o.site, NULL},
      {"--layer", NULL, CLI_INT, &o.layer, NULL},
      {"--rows", NULL, CLI_TEXT, &o.rows, NULL},
      {"--threads", "-t", CLI_COUNT, &o.session.n_threads, NULL},
      {"--mode", NULL, CLI_TEXT, &o.mode, NULL},
      {"--prompt", "-p", CLI_TEXT, &o.prompt, NULL},
      {"--json", NULL, CLI_FLAG, &o.json, NULL},
  };
  cli_parse(argc, argv, kUsage, options, sizeof(options) / sizeof(options[0]), &o.model_path);
  o.session.mode = hook_options_mode(o.mode);
  if (o.session.mode < 0) cli_usage_error("unknown mode '%s': %s", o.mode, HOOK_OPTIONS_MODES);
  if (o.repeats < 5) cli_usage_error("--repeats must be at least 5");
  if (o.tokens < 1) cli_usage_error("--tokens must be at least 1");
  int n_wanted = 0;
  for (int i = 0; i < N_ROWS; ++i) n_wanted += is_wanted(o.rows, kRows[i].name);
  if (n_wanted == 0) cli_usage_error("no row of '%s'; see --help", o.rows);

  bench_state b;
  memset(&b, 0, sizeof(b));
  b.options = &o;
  const engine_session_stats empty = ENGINE_SESSION_STATS_INIT;
  b.stats = empty;
  int code = prepare(&b, &o);
  if (code == CLI_OK) code = run_rows(&b);
  free(b.tokens);
  free(b.logits);
  free(b.vector);
  free(b.ring);
  engine_model_close(b.model);
  return code;
}
