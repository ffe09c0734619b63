/* decode_proxy: measures and fingerprints greedy decoding, and proves which mode, target and kernels ran. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cli.h"
#include "common/generation.h"
#include "common/profile_table.h"
#include "common/read_bandwidth.h"
#include "common/session_options.h"

static const char kDefaultPrompt[] = "The capital of France is";

static const char kUsage[] =
    "decode_proxy MODEL [options]: speed and fingerprint of greedy decoding\n"
    "\n"
    "  --tokens N        tokens to decode (default 32)\n" SESSION_USAGE
    "  --prompt TEXT     another prompt than \"The capital of France is\"; coherence is then na\n"
    "  --signature       a hash over all ids and logit bits\n"
    "  --skip-bandwidth  do not measure the read bandwidth; its fields are na\n"
    "  --profile-operators  time, bytes and share of the token by operator; costs two clock reads "
    "each\n"
    "  --profile-layers  the same, and by layer\n"
    "  --plan-out FILE   write the plan that was obeyed as JSON\n"
    "  --json            one JSON object instead of the line\n"
    "\n"
    "A first session with the same options warms up and is thrown away. Prints one line:\n"
    "DECODE_PROXY tok_s= prefill_tok_s= mode= fusions= threads= tokens= bytes_per_token= gb_s=\n"
    "  read_bandwidth_gb_s= roofline= target= coherence=0|1|na [signature=]\n"
    "tok_s        decode steps (with the choice of the token) a second; prefill is apart\n"
    "gb_s         tok_s * bytes_per_token, 10^9 bytes\n"
    "roofline     gb_s in percent of read_bandwidth_gb_s: the best plain read of 512 MiB by as\n"
    "             many threads in this run\n"
    "mode         the mode that ran, by the session's own word and its counters; with any other "
    "than\n"
    "             was asked for the program fails\n"
    "fusions      those that ran, such as F1+F3, or none\n"
    "coherence    1 = the text contains \"Paris\"; na = other prompt, or a file without "
    "vocabulary,\n"
    "             which decodes fixed ids\n"
    "signature    FNV-1a, 64 bits, over little-endian 32-bit words: the ids of the prompt; then "
    "for\n"
    "             each token the bits of all logits that it was chosen from, and its id; last the\n"
    "             bits of the logits after the last token\n"
    "JSON: the same fields (na is null), text, ids, context, kernels and fusions with their "
    "counts,\n"
    "profile. Of a profile: median and p95 are added over the layers of a row; \"between\" is the\n"
    "time of a token that is in no operator.\n"
    "Status: 0 = done, 1 = failed, 2 = wrong command line, 3 = decoded, but coherence is 0.\n"
    "\n"
    "Example: decode_proxy model.gguf --threads 1 --target scalar --signature\n"
    "         decode_proxy model.gguf --mode planned --profile-operators --plan-out plan.json\n";

typedef struct proxy_options {
  const char *model_path;
  const char *prompt;
  const char *plan_path;
  uint32_t n_tokens;
  int32_t signature;
  int32_t skip_bandwidth;
  int32_t json;
  int32_t profile_operators;
  int32_t profile_layers;
  session_options session;
} proxy_options;

typedef struct proxy_run {
  double prefill_seconds;
  double decode_seconds;
  id_list ids; /* what was decoded */
  uint64_t signature;
} proxy_run;

typedef struct proxy_report {
  const proxy_run *run;
  engine_session_stats stats;
  uint64_t fusions[SESSION_FUSIONS];
  profile_table profile;
  uint64_t n_prompt;
  char *text;
  uint64_t text_bytes;
  double tok_s, prefill_tok_s, gb_s;
  double read_bandwidth_gb_s; /* 0 = not measured */
  int coherence;              /* -1 = na */
} proxy_report;

static uint64_t hash_words(uint64_t hash, const void *words, uint64_t n_words) {
  const unsigned char *p = words;
  for (uint64_t i = 0; i < n_words; ++i) {
    uint32_t word;
    memcpy(&word, p + 4 * i, 4);
    for (int shift = 0; shift < 32; shift += 8) {
      hash = (hash ^ (word >> shift & 0xFFu)) * 0x100000001B3u;
    }
  }
  return hash;
}

/* Decodes the prompt and n_tokens greedy tokens in an empty session; 0 or an exit code. */
static int decode(engine_session *session, uint64_t n_vocab, const id_list *prompt,
                  uint32_t n_tokens, int with_signature, proxy_run *run) {
  engine_error error = ENGINE_ERROR_INIT;
  engine_sampler *greedy = NULL;
  float *logits = cli_allocate(n_vocab * sizeof(float));
  uint64_t hash = 0xCBF29CE484222325u;
  int32_t status = engine_sampler_create(NULL, &greedy, &error);
  if (status == ENGINE_OK) {
    const double start = cli_seconds();
    status = engine_session_decode(session, prompt->ids, prompt->n, logits, &error);
    run->prefill_seconds = cli_seconds() - start;
  }
  if (with_signature && status == ENGINE_OK) {
    hash = hash_words(hash, prompt->ids, prompt->n);
    hash = hash_words(hash, logits, n_vocab);
  }
  for (uint32_t i = 0; i < n_tokens && status == ENGINE_OK; ++i) {
    int32_t id = 0;
    const double start = cli_seconds();
    status = engine_sampler_sample(greedy, logits, n_vocab, &id, &error);
    if (status == ENGINE_OK) status = engine_session_decode(session, &id, 1, logits, &error);
    run->decode_seconds += cli_seconds() - start;
    id_list_append(&run->ids, id);
    if (with_signature && status == ENGINE_OK) {
      hash = hash_words(hash, &id, 1);
      hash = hash_words(hash, logits, n_vocab);
    }
  }
  run->signature = hash;
  engine_sampler_destroy(greedy);
  free(logits);
  return status == ENGINE_OK ? CLI_OK : cli_report("cannot decode", status, &error);
}

/* A session that is what was asked for, never silently another one; 0 or an exit code. The mode is proven when
 * it has run. */
static int create_session(const engine_model *model, const proxy_options *o, uint64_t n_positions,
                          engine_session **session, engine_session_stats *stats) {
  const engine_session_stats empty = ENGINE_SESSION_STATS_INIT;
  engine_error error = ENGINE_ERROR_INIT;
  int32_t status = engine_session_create(model, &o->session.params, session, &error);
  if (status != ENGINE_OK) return cli_report("cannot start a session", status, &error);
  *stats = empty;
  status = engine_session_stats_get(*session, stats);
  if (status != ENGINE_OK) return cli_report("cannot read the session's stats", status, NULL);
  if (o->session.params.target && strcmp(o->session.params.target, stats->target) != 0) {
    cli_message("asked for target %s, but the session runs %s", o->session.params.target,
                stats->target);
    return CLI_FAILED;
  }
  if (o->session.params.n_threads && o->session.params.n_threads != stats->n_threads) {
    cli_message("asked for %u threads, but the session runs %u", o->session.params.n_threads,
                stats->n_threads);
    return CLI_FAILED;
  }
  if (n_positions > stats->n_ctx) {
    cli_message("prompt and tokens need %" PRIu64 " positions, the context holds %u; see --ctx",
                n_positions, stats->n_ctx);
    return CLI_FAILED;
  }
  return CLI_OK;
}

/* The ids to start from: the prompt's, or fixed ones where the file names no tokens. */
static int make_prompt(const engine_model *model, const engine_model_info *info,
                       const proxy_options *o, id_list *prompt) {
  if (!info->has_tokenizer) {
    for (int32_t i = 0; i < 6; ++i) id_list_append(prompt, (1 + 7 * i) % info->n_vocab);
    return CLI_OK;
  }
  const char *text = o->prompt ? o->prompt : kDefaultPrompt;
  const int code = generation_tokenize(model, text, strlen(text), ENGINE_BOS_DEFAULT,
                                       ENGINE_SPECIAL_PLAIN, prompt);
  if (code != CLI_OK) return code;
  if (prompt->n > 0) return CLI_OK;
  cli_message("the prompt is empty");
  return CLI_FAILED;
}

static int contains_paris(const char *text, uint64_t n_bytes) {
  for (uint64_t i = 0; i + 5 <= n_bytes; ++i) {
    if (memcmp(text + i, "Paris", 5) == 0) return 1;
  }
  return 0;
}

static int make_text(const engine_model *model, proxy_report *report) {
  const id_list *ids = &report->run->ids;
  engine_error error = ENGINE_ERROR_INIT;
  uint64_t capacity = 64 * ids->n + 64;
  report->text = cli_allocate(capacity);
  int32_t status = engine_detokenize(model, ids->ids, ids->n, 0, report->text, capacity,
                                     &report->text_bytes, &error);
  if (status == ENGINE_BUFFER_TOO_SMALL) {
    capacity = report->text_bytes;
    report->text = cli_resize(report->text, capacity);
    status = engine_detokenize(model, ids->ids, ids->n, 0, report->text, capacity,
                               &report->text_bytes, &error);
  }
  return status == ENGINE_OK ? CLI_OK : cli_report("cannot write the text", status, &error);
}

static uint32_t fusions_that_ran(const proxy_report *r) {
  uint32_t fusions = 0;
  for (int i = 0; i < SESSION_FUSIONS; ++i) fusions |= r->fusions[i] ? 1u << i : 0;
  return fusions;
}

static void print_line(const proxy_options *o, const proxy_report *r) {
  printf("DECODE_PROXY tok_s=%.2f prefill_tok_s=%.2f mode=%s fusions=%s threads=%u tokens=%" PRIu64
         " bytes_per_token=%" PRIu64 " gb_s=%.3f",
         r->tok_s, r->prefill_tok_s, o->session.mode, session_fusion_text(fusions_that_ran(r)).text,
         r->stats.n_threads, r->run->ids.n, r->stats.bytes_per_token, r->gb_s);
  if (r->read_bandwidth_gb_s > 0) {
    printf(" read_bandwidth_gb_s=%.2f roofline=%.1f", r->read_bandwidth_gb_s,
           100.0 * r->gb_s / r->read_bandwidth_gb_s);
  } else {
    fputs(" read_bandwidth_gb_s=na roofline=na", stdout);
  }
  printf(" target=%s coherence=%s", r->stats.target,
         r->coherence < 0 ? "na" : (r->coherence ? "1" : "0"));
  if (o->signature) printf(" signature=%016" PRIx64, r->run->signature);
  putchar('\n');
  if (r->profile.n_tokens > 0) profile_table_print(&r->profile, o->profile_layers);
}

static void print_json(const proxy_options *o, const proxy_report *r,
                       const engine_session *session) {
  printf(
      "{\"tok_s\": %.3f, \"prefill_tok_s\": %.3f, \"mode\": \"%s\", \"threads\": %u, \"tokens\": "
      "%" PRIu64 ", \"bytes_per_token\": %" PRIu64 ", \"gb_s\": %.4f",
      r->tok_s, r->prefill_tok_s, o->session.mode, r->stats.n_threads, r->run->ids.n,
      r->stats.bytes_per_token, r->gb_s);
  if (r->read_bandwidth_gb_s > 0) {
    printf(", \"read_bandwidth_gb_s\": %.3f, \"roofline\": %.1f", r->read_bandwidth_gb_s,
           100.0 * r->gb_s / r->read_bandwidth_gb_s);
  } else {
    fputs(", \"read_bandwidth_gb_s\": null, \"roofline\": null", stdout);
  }
  printf(", \"target\": \"%s\", \"coherence\": %s", r->stats.target,
         r->coherence < 0 ? "null" : (r->coherence ? "1" : "0"));
  if (o->signature) printf(", \"signature\": \"%016" PRIx64 "\"", r->run->signature);
  printf(", \"weights\": \"%s\", \"packed_bytes\": %" PRIu64, o->session.weights,
         r->stats.packed_bytes);
  printf(", \"kv\": \"%s\", \"n_ctx\": %u, \"context_start\": %" PRIu64
         ", \"context_end\": %" PRIu64 ", \"text\": ",
         o->session.kv, r->stats.n_ctx, r->n_prompt, r->n_prompt + r->run->ids.n);
  cli_print_json_text(r->text, r->text_bytes);
  fputs(", \"ids\": [", stdout);
  for (uint64_t i = 0; i < r->run->ids.n; ++i)
    printf("%s%" PRId32, i ? ", " : "", r->run->ids.ids[i]);
  fputs("], \"kernels\": {", stdout);
  const char *name = NULL;
  uint64_t calls = 0;
  for (uint32_t i = 0; engine_session_kernel_at(session, i, &name, &calls) == ENGINE_OK; ++i) {
    printf("%s\"%s\": %" PRIu64, i ? ", " : "", name, calls);
  }
  fputs("}, \"fusions\": {", stdout);
  for (int i = 0; i < SESSION_FUSIONS; ++i) {
    printf("%s\"F%d\": %" PRIu64, i ? ", " : "", i + 1, r->fusions[i]);
  }
  putchar('}');
  if (r->profile.n_tokens > 0) {
    fputs(", \"profile\": ", stdout);
    profile_table_print_json(&r->profile, o->profile_layers);
  }
  puts("}");
}

static int write_plan(const engine_session *session, const char *path) {
  engine_error error = ENGINE_ERROR_INIT;
  engine_plan *plan = NULL;
  uint64_t n_bytes = 0;
  const int32_t status = engine_session_plan(session, &plan, &error);
  if (status != ENGINE_OK) return cli_report("cannot read the plan", status, &error);
  char *text = session_plan_text(plan, 0, &n_bytes);
  engine_plan_destroy(plan);
  const int code = text ? cli_write_file(path, text, n_bytes) : CLI_FAILED;
  free(text);
  return code;
}

/* What the measured session did, besides its speed; 0 or an exit code. */
static int collect(const engine_session *session, const proxy_options *o, proxy_report *report) {
  const int code = session_prove_mode(session, &o->session);
  if (code != CLI_OK) return code;
  session_fusion_counts(session, report->fusions);
  report->profile = profile_table_read(session); /* empty where nothing was measured */
  return o->plan_path ? write_plan(session, o->plan_path) : CLI_OK;
}

/* The warm-up and the measured session; 0 or an exit code. */
static int measure(const engine_model *model, const engine_model_info *info,
                   const proxy_options *o) {
  id_list prompt = {NULL, 0, 0};
  proxy_run warm_up, run;
  proxy_report report;
  engine_session *session = NULL;
  memset(&warm_up, 0, sizeof(warm_up));
  memset(&run, 0, sizeof(run));
  memset(&report, 0, sizeof(report));
  const uint64_t n_vocab = (uint64_t)info->n_vocab;
  int code = make_prompt(model, info, o, &prompt);
  const uint64_t n_positions = prompt.n + o->n_tokens;
  if (code == CLI_OK) code = create_session(model, o, n_positions, &session, &report.stats);
  if (code == CLI_OK) {
    code = decode(session, n_vocab, &prompt, o->n_tokens < 4 ? o->n_tokens : 4, 0, &warm_up);
  }
  engine_session_destroy(session);
  session = NULL;
  if (code == CLI_OK) code = create_session(model, o, n_positions, &session, &report.stats);
  if (code == CLI_OK && o->profile_operators) {
    engine_error error = ENGINE_ERROR_INIT;
    const int32_t status = engine_session_profile(session, 1, &error);
    if (status != ENGINE_OK) code = cli_report("cannot measure", status, &error);
  }
  if (code == CLI_OK) code = decode(session, n_vocab, &prompt, o->n_tokens, o->signature, &run);
  if (code == CLI_OK) code = collect(session, o, &report);
  report.run = &run;
  report.n_prompt = prompt.n;
  report.coherence = -1;
  if (code == CLI_OK && info->has_tokenizer) {
    code = make_text(model, &report);
    if (!o->prompt) report.coherence = contains_paris(report.text, report.text_bytes);
  }
  if (code == CLI_OK) {
    if (!o->skip_bandwidth)
      report.read_bandwidth_gb_s = read_bandwidth_gb_s(report.stats.n_threads);
    if (run.decode_seconds > 0) report.tok_s = o->n_tokens / run.decode_seconds;
    if (run.prefill_seconds > 0) report.prefill_tok_s = (double)prompt.n / run.prefill_seconds;
    report.gb_s = report.tok_s * (double)report.stats.bytes_per_token * 1e-9;
    if (o->json) {
      print_json(o, &report, session);
    } else {
      print_line(o, &report);
    }
    if (report.coherence == 0) {
      cli_message("the text does not contain \"Paris\"");
      code = CLI_INCOHERENT;
    }
  }
  engine_session_destroy(session);
  free(prompt.ids);
  free(warm_up.ids.ids);
  free(run.ids.ids);
  free(report.text);
  profile_table_free(&report.profile);
  return code;
}

int main(int argc, char **argv) {
  proxy_options o = {NULL, NULL, NULL, 32, 0, 0, 0, 0, 0, SESSION_OPTIONS_INIT};
  const cli_option options[] = {
      {"--tokens", "-n", CLI_COUNT, &o.n_tokens, NULL},
      SESSION_OPTION_ROWS(o.session),
      {"--prompt", "-p", CLI_TEXT, &o.prompt, NULL},
      {"--signature", NULL, CLI_FLAG, &o.signature, NULL},
      {"--skip-bandwidth", NULL, CLI_FLAG, &o.skip_bandwidth, NULL},
      {"--profile-operators", NULL, CLI_FLAG, &o.profile_operators, NULL},
      {"--profile-layers", NULL, CLI_FLAG, &o.profile_layers, NULL},
      {"--plan-out", NULL, CLI_TEXT, &o.plan_path, NULL},
      {"--json", NULL, CLI_FLAG, &o.json, NULL},
  };
  cli_parse(argc, argv, kUsage, options, sizeof(options) / sizeof(options[0]), &o.model_path);
  session_options_read(&o.session);
  o.profile_operators = o.profile_operators || o.profile_layers;

  engine_model *model = NULL;
  engine_model_info info;
  int code = generation_open_model(o.model_path, 0, &model, &info);
  if (code == CLI_OK) code = measure(model, &info, &o);
  engine_model_close(model);
  return code;
}
