/* chat: a conversation in the terminal. Ctrl-C stops an answer and keeps the session. */
#define _POSIX_C_SOURCE 200809L

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/select.h>
#include <unistd.h>

#include "common/cli.h"
#include "common/generation.h"

static const char kUsage[] =
    "chat MODEL [options]: talk to a model\n"
    "\n"
    "  --system TEXT          system message\n"
    "  -n, --tokens N         at most N tokens in an answer, -1 = until the model ends (default "
    "-1)\n"
    "  -c, --ctx N            context in tokens (default: up to 4096, as the model was trained)\n"
    "  -t, --threads N        threads (default: all cores that this process may use)\n"
    "\n" SAMPLING_USAGE
    "\n"
    "Type a line to ask. /clear forgets the conversation, /stats shows the speed of the last "
    "answer,\n"
    "/exit or Ctrl-D ends. Ctrl-C stops an answer; at the prompt, a second Ctrl-C ends.\n"
    "With stdin from a pipe each line is a question, and only the answers are written to stdout.\n"
    "Status: 0 = done, 1 = failed (the reason is on stderr), 2 = wrong command line.\n"
    "\n"
    "Example: chat model.gguf --temp 0.7 --top-p 0.9\n"
    "         printf 'Hello\\nAnd in French?\\n' | chat model.gguf\n";

typedef struct turn {
  const char *role;
  char *content; /* owned */
  uint64_t content_bytes;
} turn;

typedef struct conversation {
  const engine_model *model;
  engine_session *session;
  engine_sampler *sampler;
  uint64_t n_vocab;
  uint32_t n_ctx;
  int32_t max_tokens;
  turn *turns;
  uint64_t n_turns;
  uint64_t n_kept_turns; /* the system message, which /clear keeps */
  id_list held;          /* the ids that the session holds */
  int has_speed;         /* an answer was measured */
  generation_request last_request;
  generation_result last_result;
} conversation;

static engine_session *volatile running_session = NULL;

/* Ctrl-C: stops a running answer; engine_session_cancel may be called from a handler. */
static void on_interrupt(int signal_number) {
  (void)signal_number;
  generation_stop = 1;
  engine_session *session = running_session;
  if (session) engine_session_cancel(session);
}

static void install_handler(void) {
  struct sigaction action;
  memset(&action, 0, sizeof(action));
  action.sa_handler = on_interrupt; /* without SA_RESTART: a wait at the prompt returns */
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, NULL);
}

static void add_turn(conversation *c, const char *role, const char *content, uint64_t n_bytes) {
  c->turns = cli_resize(c->turns, (c->n_turns + 1) * sizeof(turn));
  turn *t = &c->turns[c->n_turns++];
  t->role = role;
  t->content_bytes = n_bytes;
  t->content = cli_allocate(n_bytes + 1);
  memcpy(t->content, content, n_bytes);
  t->content[n_bytes] = '\0';
}

static void drop_turns(conversation *c, uint64_t n_left) {
  while (c->n_turns > n_left) free(c->turns[--c->n_turns].content);
}

static int32_t render(const conversation *c, uint64_t first_turn, id_list *ids,
                      engine_error *error) {
  const uint64_t n_head = first_turn > c->n_kept_turns ? c->n_kept_turns : 0;
  engine_chat_message *messages = cli_allocate((c->n_turns + 1) * sizeof(*messages));
  uint64_t n = 0;
  for (uint64_t i = 0; i < c->n_turns; ++i) {
    if (i >= n_head && i < first_turn) continue;
    messages[n++] =
        (engine_chat_message){c->turns[i].role, c->turns[i].content, c->turns[i].content_bytes};
  }
  const int32_t status = generation_chat_ids(c->model, messages, n, ids, error);
  free(messages);
  return status;
}

/* Says why the conversation does not fit, and what helps. */
static void explain_full(const conversation *c, uint64_t n_ids) {
  id_list alone = {NULL, 0, 0};
  engine_error error = ENGINE_ERROR_INIT;
  const int fits_alone =
      render(c, c->n_turns - 1, &alone, &error) == ENGINE_OK && alone.n < c->n_ctx;
  free(alone.ids);
  if (fits_alone) {
    cli_message("with this message the conversation has %" PRIu64
                " tokens, the context holds %u. The message "
                "was not added: /clear starts anew, -c N gives more room",
                n_ids, c->n_ctx);
  } else {
    cli_message("this message is too long: %" PRIu64
                " tokens, the context holds %u. It was not added; "
                "start with -c N for more room",
                n_ids, c->n_ctx);
  }
}

/* Keeps what the session and the new ids have in common; at least one id must be decoded. */
static uint64_t reuse_prefix(conversation *c, const id_list *ids) {
  uint64_t n = 0;
  while (n < c->held.n && n + 1 < ids->n && c->held.ids[n] == ids->ids[n]) ++n;
  if (engine_session_truncate(c->session, n) != ENGINE_OK) {
    n = 0;
    engine_session_truncate(c->session, 0);
  }
  c->held.n = n;
  return n;
}

/* Decodes the last turn and answers. Returns an engine status; the turn is dropped when there is no answer. */
static int32_t answer(conversation *c, const id_list *ids, engine_error *error) {
  generation_request request;
  memset(&request, 0, sizeof(request));
  const uint64_t n_reused = reuse_prefix(c, ids);
  request.model = c->model;
  request.session = c->session;
  request.sampler = c->sampler;
  request.n_vocab = c->n_vocab;
  request.prompt = ids->ids + n_reused;
  request.n_prompt = ids->n - n_reused;
  request.max_tokens = c->max_tokens < 0 ? UINT64_MAX : (uint64_t)c->max_tokens;
  request.at_start = 1;
  request.stream = 1;
  generation_result_free(&c->last_result);
  running_session = c->session;
  const int32_t status = generation_run(&request, &c->last_result, error);
  running_session = NULL;
  if (engine_session_position(c->session) > n_reused) {
    for (uint64_t i = n_reused; i < ids->n; ++i) id_list_append(&c->held, ids->ids[i]);
    for (uint64_t i = 0; i < c->last_result.n_fed; ++i) {
      id_list_append(&c->held, c->last_result.ids.ids[i]);
    }
  }
  c->last_request = request;
  c->last_request.prompt = NULL; /* not kept; only its length is used again */
  c->has_speed = status == ENGINE_OK;
  putchar('\n');
  fflush(stdout);
  return status;
}

/* One question; 0 or an exit code. Only a fault of the engine ends the program. */
static int ask(conversation *c, const char *line, uint64_t n_bytes) {
  engine_error error = ENGINE_ERROR_INIT;
  id_list ids = {NULL, 0, 0};
  int code = CLI_OK;
  const uint64_t n_before = c->n_turns;
  add_turn(c, "user", line, n_bytes);
  int32_t status = render(c, 0, &ids, &error);
  if (status == ENGINE_OK && ids.n >= c->n_ctx) {
    explain_full(c, ids.n);
    drop_turns(c, n_before);
  } else if (status == ENGINE_OK) {
    generation_stop = 0;
    status = answer(c, &ids, &error);
    if (status == ENGINE_CANCELLED) {
      cli_message("stopped before the answer began; the question was not added");
      drop_turns(c, n_before);
    } else if (status == ENGINE_OK) {
      add_turn(c, "assistant", c->last_result.text, c->last_result.text_bytes);
      if (strcmp(c->last_result.stop_reason, "context") == 0) {
        cli_message("the context of %u tokens is full: /clear starts anew, -c N gives more room",
                    c->n_ctx);
      } else if (strcmp(c->last_result.stop_reason, "stopped") == 0) {
        cli_message("stopped");
      }
    }
  }
  if (status != ENGINE_OK && status != ENGINE_CANCELLED) {
    code = cli_report("cannot answer", status, &error);
  }
  generation_stop = 0;
  free(ids.ids);
  return code;
}

static void show_stats(const conversation *c) {
  if (!c->has_speed) {
    cli_message("no answer yet");
    return;
  }
  const generation_speed s = generation_measure(&c->last_request, &c->last_result);
  cli_message(
      "prompt %" PRIu64 " new tokens, prefill %.1f tok/s; answer %" PRIu64
      " tokens, decode %.1f tok/s; %.2f GB/s, %.1f%% of %.1f GB/s read bandwidth; context %" PRIu64
      " of %u; stop: %s",
      s.n_prompt, s.prefill_tok_s, s.n_generated, s.tok_s, s.gb_s, s.roofline_percent,
      s.read_bandwidth_gb_s, c->held.n, c->n_ctx, c->last_result.stop_reason);
}

static void clear(conversation *c) {
  drop_turns(c, c->n_kept_turns);
  engine_session_truncate(c->session, 0);
  c->held.n = 0;
  cli_message("the conversation is forgotten");
}

/* The next line, as getline gives it; -1 with errno EINTR after a Ctrl-C. At the prompt Ctrl-C is let in only while
 * waiting: one that came between the prompt and the read would otherwise be lost. */
static ssize_t read_line(char **line, size_t *capacity, int interactive) {
  errno = 0;
  if (!interactive) return getline(line, capacity, stdin);
  sigset_t interrupt, before;
  sigemptyset(&interrupt);
  sigaddset(&interrupt, SIGINT);
  sigprocmask(SIG_BLOCK, &interrupt, &before);
  fputs("> ", stderr);
  fd_set input;
  FD_ZERO(&input);
  FD_SET(STDIN_FILENO, &input);
  ssize_t got = pselect(STDIN_FILENO + 1, &input, NULL, NULL, NULL, &before);
  if (got > 0) got = getline(line, capacity, stdin);
  const int reason = errno;
  sigprocmask(SIG_SETMASK, &before, NULL);
  errno = reason;
  return got;
}

/* Reads lines until the end; 0 or an exit code. */
static int talk(conversation *c) {
  const int interactive = isatty(STDIN_FILENO);
  char *line = NULL;
  size_t capacity = 0;
  int code = CLI_OK;
  int interrupts = 0; /* Ctrl-C at the prompt, without a line between */
  if (interactive)
    fputs("Type a question; /clear, /stats, /exit; Ctrl-C stops an answer.\n", stderr);
  while (code == CLI_OK) {
    const ssize_t got = read_line(&line, &capacity, interactive);
    if (got < 0) {
      if (errno != EINTR || ++interrupts > 1) break;
      clearerr(stdin);
      generation_stop = 0;
      fputs("\n(Ctrl-C again or Ctrl-D ends)\n", stderr);
      continue;
    }
    interrupts = 0;
    uint64_t n_bytes = (uint64_t)got;
    while (n_bytes && (line[n_bytes - 1] == '\n' || line[n_bytes - 1] == '\r'))
      line[--n_bytes] = '\0';
    if (n_bytes == 0) continue;
    if (strcmp(line, "/exit") == 0) break;
    if (strcmp(line, "/clear") == 0) {
      clear(c);
    } else if (strcmp(line, "/stats") == 0) {
      show_stats(c);
    } else if (line[0] == '/' && interactive) {
      cli_message("no such command: /clear, /stats or /exit");
    } else {
      code = ask(c, line, n_bytes);
    }
  }
  if (interactive) fputc('\n', stderr);
  free(line);
  return code;
}

/* A first look whether this model can hold a conversation at all. */
static int check_template(const conversation *c) {
  engine_chat_message messages[2];
  uint64_t n = 0;
  if (c->n_turns)
    messages[n++] = (engine_chat_message){"system", c->turns[0].content, c->turns[0].content_bytes};
  messages[n++] = (engine_chat_message){"user", "Hello", 5};
  engine_error error = ENGINE_ERROR_INIT;
  id_list ids = {NULL, 0, 0};
  const int32_t status = generation_chat_ids(c->model, messages, n, &ids, &error);
  free(ids.ids);
  return status == ENGINE_OK ? CLI_OK : cli_report("this model cannot chat", status, &error);
}

int main(int argc, char **argv) {
  const char *model_path = NULL, *system = NULL;
  engine_session_params params = ENGINE_SESSION_PARAMS_INIT;
  sampling_options sampling = SAMPLING_OPTIONS_INIT;
  conversation c;
  memset(&c, 0, sizeof(c));
  c.max_tokens = -1;
  const cli_option options[] = {
      {"--system", NULL, CLI_TEXT, &system, NULL},
      {"--tokens", "-n", CLI_INT, &c.max_tokens, NULL},
      {"--ctx", "-c", CLI_COUNT, &params.n_ctx, NULL},
      {"--threads", "-t", CLI_COUNT, &params.n_threads, NULL},
      SAMPLING_OPTION_ROWS(sampling),
  };
  cli_parse(argc, argv, kUsage, options, sizeof(options) / sizeof(options[0]), &model_path);
  sampling.params.has_seed = sampling.seed_given ? 1 : 0;

  engine_error error = ENGINE_ERROR_INIT;
  int32_t status = engine_sampler_create(&sampling.params, &c.sampler, &error);
  if (status != ENGINE_OK) return cli_report("wrong sampling options", status, &error);
  engine_model *model = NULL;
  engine_model_info info;
  int code = generation_open_model(model_path, 0, &model, &info);
  if (code == CLI_OK) {
    c.model = model;
    c.n_vocab = (uint64_t)info.n_vocab;
    if (system) add_turn(&c, "system", system, strlen(system));
    c.n_kept_turns = c.n_turns;
    code = check_template(&c);
  }
  if (code == CLI_OK) {
    status = engine_session_create(model, &params, &c.session, &error);
    if (status != ENGINE_OK) code = cli_report("cannot start a session", status, &error);
  }
  if (code == CLI_OK) {
    engine_session_stats stats = ENGINE_SESSION_STATS_INIT;
    engine_session_stats_get(c.session, &stats);
    c.n_ctx = stats.n_ctx;
    install_handler();
    code = talk(&c);
  }
  drop_turns(&c, 0);
  free(c.turns);
  free(c.held.ids);
  generation_result_free(&c.last_result);
  engine_session_destroy(c.session);
  engine_sampler_destroy(c.sampler);
  engine_model_close(model);
  return code;
}
