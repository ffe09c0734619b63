/* generate: continues a text, or answers a question through the model's chat template. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cli.h"
#include "common/generation.h"

static const char kUsage[] =
    "generate MODEL -p TEXT [options]: continue a text, or answer a question\n"
    "\n"
    "  -p, --prompt TEXT      the prompt\n"
    "  -f, --file FILE        read the prompt from a file, - = standard input\n"
    "  --chat                 the prompt is a question: use the model's chat template\n"
    "  --system TEXT          system message, with --chat\n"
    "  -n, --tokens N         at most N tokens, -1 = until the model ends (default 128)\n"
    "  -c, --ctx N            context in tokens (default: up to 4096, as the model was trained)\n"
    "  -t, --threads N        threads (default: all cores that this process may use)\n"
    "  --ignore-eos           go on after an end-of-generation token\n"
    "  --stats                one line about speed to stderr\n"
    "  --json                 one JSON object to stdout when all is done, instead of the text\n"
    "\n" SAMPLING_USAGE
    "\n"
    "The text goes to stdout as it is made, everything else to stderr.\n"
    "Status: 0 = done, 1 = failed (the reason is on stderr), 2 = wrong command line.\n"
    "\n"
    "Example: generate model.gguf --chat -p \"What is the capital of France?\" -n 64 --stats\n";

typedef struct generate_options {
  const char *model_path;
  const char *prompt;
  const char *prompt_file;
  const char *system;
  int32_t chat;
  int32_t n_tokens;
  uint32_t n_ctx;
  uint32_t n_threads;
  int32_t ignore_eos;
  int32_t stats;
  int32_t json;
  sampling_options sampling;
} generate_options;

static void print_stats(const generation_speed *s, const generation_result *result) {
  fprintf(stderr,
          "prompt %" PRIu64 " tokens, prefill %.1f tok/s; generated %" PRIu64
          " tokens, decode %.1f tok/s; %.2f GB/s, %.1f%% of %.1f GB/s read bandwidth (%u threads); "
          "stop: %s\n",
          s->n_prompt, s->prefill_tok_s, s->n_generated, s->tok_s, s->gb_s, s->roofline_percent,
          s->read_bandwidth_gb_s, s->n_threads, result->stop_reason);
}

static void print_json(const generation_speed *s, const generation_result *result, uint64_t seed) {
  fputs("{\"text\": ", stdout);
  cli_print_json_text(result->text, result->text_bytes);
  fputs(", \"ids\": [", stdout);
  for (uint64_t i = 0; i < result->ids.n; ++i) {
    printf("%s%" PRId32, i ? ", " : "", result->ids.ids[i]);
  }
  printf("], \"stop\": \"%s\", \"seed\": %" PRIu64 ", \"prompt_tokens\": %" PRIu64
         ", \"generated_tokens\": %" PRIu64 ", \"prefill_tok_s\": %.3f, \"tok_s\": %.3f",
         result->stop_reason, seed, s->n_prompt, s->n_generated, s->prefill_tok_s, s->tok_s);
  printf(", \"threads\": %u, \"bytes_per_token\": %" PRIu64
         ", \"gb_s\": %.3f, \"read_bandwidth_gb_s\": %.3f, \"roofline\": %.1f}\n",
         s->n_threads, s->bytes_per_token, s->gb_s, s->read_bandwidth_gb_s, s->roofline_percent);
}

/* The ids of the prompt; 0 or an exit code. */
static int read_prompt(const engine_model *model, const generate_options *o, id_list *ids) {
  uint64_t n_bytes = o->prompt ? strlen(o->prompt) : 0;
  char *from_file = NULL;
  const char *text = o->prompt;
  if (o->prompt_file) {
    from_file = cli_read_file(o->prompt_file, &n_bytes);
    if (!from_file) return CLI_FAILED;
    text = from_file;
  }
  int code = CLI_OK;
  if (o->chat) {
    engine_chat_message messages[2];
    uint64_t n_messages = 0;
    if (o->system) {
      messages[n_messages++] = (engine_chat_message){"system", o->system, strlen(o->system)};
    }
    messages[n_messages++] = (engine_chat_message){"user", text, n_bytes};
    engine_error error = ENGINE_ERROR_INIT;
    const int32_t status = generation_chat_ids(model, messages, n_messages, ids, &error);
    if (status != ENGINE_OK) code = cli_report("cannot use the chat template", status, &error);
  } else {
    code = generation_tokenize(model, text, n_bytes, ENGINE_BOS_DEFAULT, ENGINE_SPECIAL_PLAIN, ids);
  }
  free(from_file);
  return code;
}

static int run(const engine_model *model, const engine_model_info *info, engine_session *session,
               engine_sampler *sampler, const generate_options *o, const id_list *prompt) {
  engine_session_stats stats = ENGINE_SESSION_STATS_INIT;
  engine_session_stats_get(session, &stats);
  if (prompt->n == 0) {
    cli_message("the prompt is empty");
    return CLI_FAILED;
  }
  if (prompt->n > stats.n_ctx) {
    cli_message("the prompt has %" PRIu64 " tokens, the context holds %u; ask for more with -c",
                prompt->n, stats.n_ctx);
    return CLI_FAILED;
  }
  generation_request request;
  memset(&request, 0, sizeof(request));
  request.model = model;
  request.session = session;
  request.sampler = sampler;
  request.n_vocab = (uint64_t)info->n_vocab;
  request.prompt = prompt->ids;
  request.n_prompt = prompt->n;
  request.max_tokens = o->n_tokens < 0 ? UINT64_MAX : (uint64_t)o->n_tokens;
  request.ignore_end = o->ignore_eos;
  request.at_start = o->chat;
  request.stream = !o->json;

  generation_result result;
  engine_error error = ENGINE_ERROR_INIT;
  const int32_t status = generation_run(&request, &result, &error);
  if (!o->json) putchar('\n');
  fflush(stdout);
  if (status == ENGINE_OK && (o->stats || o->json)) {
    const generation_speed speed = generation_measure(&request, &result);
    if (o->json) print_json(&speed, &result, engine_sampler_seed(sampler));
    if (o->stats) print_stats(&speed, &result);
  }
  generation_result_free(&result);
  return status == ENGINE_OK ? CLI_OK : cli_report("cannot generate", status, &error);
}

static int open_and_run(generate_options *o) {
  engine_model *model = NULL;
  engine_session *session = NULL;
  engine_sampler *sampler = NULL;
  engine_model_info info;
  engine_error error = ENGINE_ERROR_INIT;
  id_list prompt = {NULL, 0, 0};
  o->sampling.params.has_seed = o->sampling.seed_given ? 1 : 0;
  int32_t status = engine_sampler_create(&o->sampling.params, &sampler, &error);
  if (status != ENGINE_OK) return cli_report("wrong sampling options", status, &error);
  int code = generation_open_model(o->model_path, 0, &model, &info);
  if (code == CLI_OK) code = read_prompt(model, o, &prompt);
  if (code == CLI_OK) {
    engine_session_params params = ENGINE_SESSION_PARAMS_INIT;
    params.n_ctx = o->n_ctx;
    params.n_threads = o->n_threads;
    status = engine_session_create(model, &params, &session, &error);
    if (status != ENGINE_OK) code = cli_report("cannot start a session", status, &error);
  }
  if (code == CLI_OK) code = run(model, &info, session, sampler, o, &prompt);
  free(prompt.ids);
  engine_session_destroy(session);
  engine_model_close(model);
  engine_sampler_destroy(sampler);
  return code;
}

int main(int argc, char **argv) {
  generate_options o = {NULL, NULL, NULL, NULL, 0, 128, 0, 0, 0, 0, 0, SAMPLING_OPTIONS_INIT};
  const cli_option options[] = {
      {"--prompt", "-p", CLI_TEXT, &o.prompt, NULL},
      {"--file", "-f", CLI_TEXT, &o.prompt_file, NULL},
      {"--system", NULL, CLI_TEXT, &o.system, NULL},
      {"--chat", NULL, CLI_FLAG, &o.chat, NULL},
      {"--tokens", "-n", CLI_INT, &o.n_tokens, NULL},
      {"--ctx", "-c", CLI_COUNT, &o.n_ctx, NULL},
      {"--threads", "-t", CLI_COUNT, &o.n_threads, NULL},
      {"--ignore-eos", NULL, CLI_FLAG, &o.ignore_eos, NULL},
      {"--stats", NULL, CLI_FLAG, &o.stats, NULL},
      {"--json", NULL, CLI_FLAG, &o.json, NULL},
      SAMPLING_OPTION_ROWS(o.sampling),
  };
  cli_parse(argc, argv, kUsage, options, sizeof(options) / sizeof(options[0]), &o.model_path);
  if (!o.prompt == !o.prompt_file) cli_usage_error("give the prompt with -p TEXT or with -f FILE");
  if (o.system && !o.chat) cli_usage_error("--system needs --chat");
  return open_and_run(&o);
}
