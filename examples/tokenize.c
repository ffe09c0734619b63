/* tokenize: text on stdin to ids on one line, or the other way. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cli.h"
#include "common/generation.h"

static const char kUsage[] =
    "tokenize MODEL [options]: text on stdin to ids on one line, or the other way\n"
    "\n"
    "  --decode        ids on stdin (separated by spaces, commas or new lines) to text\n"
    "  --no-bos        no beginning-of-sequence token in front\n"
    "  --special WHICH which special tokens are recognised in the text: none (default), user\n"
    "                  (user-defined ones) or all (control tokens too). With --decode and all,\n"
    "                  control tokens are written as text, else they give nothing\n"
    "  --pieces        a table for people: id, kind of end, bytes of the token\n"
    "\n"
    "MODEL may be a vocabulary-only file. The text is taken as it is, a last new line included:\n"
    "use printf rather than echo.\n"
    "Status: 0 = done, 1 = failed (the reason is on stderr), 2 = wrong command line.\n"
    "\n"
    "Example: printf 'Hello world' | tokenize model.gguf\n"
    "         printf 'Hello world' | tokenize model.gguf | tokenize model.gguf --decode\n";

static const char *end_mark(int32_t reason) {
  static const char *const kMarks[] = {"", "eos", "eot", "eom", "fim", "end"};
  return reason >= 0 && reason <= ENGINE_END_NAME ? kMarks[reason] : "end";
}

/* One line for a token; bytes that do not print are escaped. */
static int print_piece(const engine_model *model, int32_t id) {
  char small[64];
  char *bytes = small;
  uint64_t n = 0;
  int32_t status = engine_token_bytes(model, id, 1, bytes, sizeof(small), &n);
  if (status == ENGINE_BUFFER_TOO_SMALL) {
    bytes = cli_allocate(n);
    status = engine_token_bytes(model, id, 1, bytes, n, &n);
  }
  if (status != ENGINE_OK) return cli_report("cannot read a token", status, NULL);
  printf("%8" PRId32 "  %-3s  \"", id, end_mark(engine_token_end_reason(model, id)));
  for (uint64_t i = 0; i < n; ++i) {
    const unsigned char c = (unsigned char)bytes[i];
    if (c == '"' || c == '\\') {
      printf("\\%c", c);
    } else if (c < 0x20 || c >= 0x7F) {
      printf("\\x%02X", c);
    } else {
      putchar(c);
    }
  }
  puts("\"");
  if (bytes != small) free(bytes);
  return CLI_OK;
}

static int print_ids(const engine_model *model, const id_list *ids, int pieces) {
  for (uint64_t i = 0; i < ids->n; ++i) {
    if (pieces) {
      const int code = print_piece(model, ids->ids[i]);
      if (code != CLI_OK) return code;
    } else {
      printf("%s%" PRId32, i ? " " : "", ids->ids[i]);
    }
  }
  if (!pieces) putchar('\n');
  return CLI_OK;
}

/* Ids written as decimal numbers; 0 or an exit code. */
static int parse_ids(const char *text, uint64_t n_bytes, id_list *ids) {
  const char *p = text;
  const char *const end = text + n_bytes;
  while (p < end) {
    if (strchr(" ,\t\r\n", *p) && *p) {
      ++p;
      continue;
    }
    char *after = NULL;
    errno = 0;
    const long value = strtol(p, &after, 10);
    if (after == p || errno || value < INT32_MIN || value > INT32_MAX ||
        (*after && !strchr(" ,\t\r\n", *after))) {
      cli_message("stdin, byte %ld: not an id", (long)(p - text));
      return CLI_FAILED;
    }
    id_list_append(ids, (int32_t)value);
    p = after;
  }
  return CLI_OK;
}

static int decode(const engine_model *model, const id_list *ids, int32_t special) {
  engine_error error = ENGINE_ERROR_INIT;
  uint64_t n_bytes = 0;
  char *text = NULL;
  int32_t status = engine_detokenize(model, ids->ids, ids->n, special, NULL, 0, &n_bytes, &error);
  if (status == ENGINE_BUFFER_TOO_SMALL) {
    text = cli_allocate(n_bytes);
    status = engine_detokenize(model, ids->ids, ids->n, special, text, n_bytes, &n_bytes, &error);
  }
  if (status == ENGINE_OK && n_bytes) fwrite(text, 1, n_bytes, stdout);
  free(text);
  return status == ENGINE_OK ? CLI_OK : cli_report("cannot decode the ids", status, &error);
}

int main(int argc, char **argv) {
  const char *model_path = NULL;
  const char *special_name = "none";
  int32_t is_decode = 0, no_bos = 0, pieces = 0;
  const cli_option options[] = {
      {"--decode", NULL, CLI_FLAG, &is_decode, NULL},
      {"--no-bos", NULL, CLI_FLAG, &no_bos, NULL},
      {"--special", NULL, CLI_TEXT, &special_name, NULL},
      {"--pieces", NULL, CLI_FLAG, &pieces, NULL},
  };
  cli_parse(argc, argv, kUsage, options, sizeof(options) / sizeof(options[0]), &model_path);
  int32_t special = ENGINE_SPECIAL_PLAIN;
  if (strcmp(special_name, "user") == 0) {
    special = ENGINE_SPECIAL_USER_DEFINED;
  } else if (strcmp(special_name, "all") == 0) {
    special = ENGINE_SPECIAL_ALL;
  } else if (strcmp(special_name, "none") != 0) {
    cli_usage_error("'%s' is not a value for --special: none, user or all", special_name);
  }

  engine_model *model = NULL;
  engine_model_info info;
  int code = generation_open_model(model_path, ENGINE_OPEN_VOCAB_ONLY, &model, &info);
  if (code != CLI_OK) return code;
  uint64_t n_bytes = 0;
  id_list ids = {NULL, 0, 0};
  char *text = cli_read_file("-", &n_bytes);
  if (!text) {
    code = CLI_FAILED;
  } else if (is_decode) {
    code = parse_ids(text, n_bytes, &ids);
    if (code == CLI_OK) {
      code =
          pieces ? print_ids(model, &ids, 1) : decode(model, &ids, special == ENGINE_SPECIAL_ALL);
    }
  } else {
    code = generation_tokenize(model, text, n_bytes, no_bos ? ENGINE_BOS_NONE : ENGINE_BOS_DEFAULT,
                               special, &ids);
    if (code == CLI_OK) code = print_ids(model, &ids, pieces);
  }
  free(text);
  free(ids.ids);
  engine_model_close(model);
  return code;
}
