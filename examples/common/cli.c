/* Options, messages, whole files: what every example program needs around the library. */
#define _POSIX_C_SOURCE 200809L

#include "cli.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

const char *cli_program = "engine";

static void print_message(const char *format, va_list arguments) {
  fflush(stdout);
  fprintf(stderr, "%s: ", cli_program);
  vfprintf(stderr, format, arguments);
  fputc('\n', stderr);
}

void cli_message(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  print_message(format, arguments);
  va_end(arguments);
}

void cli_usage_error(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  print_message(format, arguments);
  va_end(arguments);
  fprintf(stderr, "Try '%s --help'.\n", cli_program);
  exit(CLI_USAGE);
}

int cli_report(const char *what, int32_t status, const engine_error *error) {
  fflush(stdout);
  fprintf(stderr, "%s: %s: %s", cli_program, what, engine_status_name(status));
  if (error && error->code == status) {
    if (error->message[0]) fprintf(stderr, ": %s", error->message);
    if (error->name[0]) fprintf(stderr, " [name %s]", error->name);
    if (error->offset != UINT64_MAX) fprintf(stderr, " [file offset %" PRIu64 "]", error->offset);
  }
  fputc('\n', stderr);
  return CLI_FAILED;
}

void *cli_allocate(uint64_t n_bytes) { return cli_resize(NULL, n_bytes); }

void *cli_resize(void *block, uint64_t n_bytes) {
  void *result = n_bytes <= SIZE_MAX ? realloc(block, n_bytes ? (size_t)n_bytes : 1) : NULL;
  if (!result) {
    cli_message("out of memory");
    exit(CLI_FAILED);
  }
  return result;
}

double cli_seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

char *cli_read_file(const char *path, uint64_t *n_bytes) {
  const int is_stdin = strcmp(path, "-") == 0;
  FILE *file = is_stdin ? stdin : fopen(path, "rb");
  if (!file) {
    cli_message("cannot open %s: %s", path, strerror(errno));
    return NULL;
  }
  char *text = cli_allocate(1);
  uint64_t used = 0, capacity = 0;
  for (;;) {
    if (used == capacity) {
      capacity = capacity ? 2 * capacity : 65536;
      text = cli_resize(text, capacity + 1);
    }
    const size_t got = fread(text + used, 1, (size_t)(capacity - used), file);
    if (got == 0) break;
    used += got;
  }
  const int failed = ferror(file);
  const int reason = errno;
  if (!is_stdin) fclose(file);
  if (failed) {
    cli_message("cannot read %s: %s", path, strerror(reason));
    free(text);
    return NULL;
  }
  text[used] = '\0';
  *n_bytes = used;
  return text;
}

int cli_write_file(const char *path, const char *text, uint64_t n_bytes) {
  const int is_stdout = strcmp(path, "-") == 0;
  FILE *file = is_stdout ? stdout : fopen(path, "wb");
  int failed = !file || fwrite(text, 1, n_bytes, file) != n_bytes;
  if (file && (is_stdout ? fflush(file) : fclose(file)) != 0) failed = 1;
  if (failed) cli_message("cannot write %s: %s", path, strerror(errno));
  return failed ? CLI_FAILED : CLI_OK;
}

/* Stores the value of one option; 0 where the text is not a value of its kind. */
static int store_value(const cli_option *option, const char *text) {
  char *end = NULL;
  errno = 0;
  if (option->kind == CLI_TEXT) {
    *(const char **)option->value = text;
    return 1;
  }
  if (option->kind == CLI_REAL) {
    const float value = strtof(text, &end);
    if (end == text || *end || !isfinite(value)) return 0;
    *(float *)option->value = value;
    return 1;
  }
  if (option->kind == CLI_INT) {
    const long long value = strtoll(text, &end, 10);
    if (end == text || *end || errno || value < INT32_MIN || value > INT32_MAX) return 0;
    *(int32_t *)option->value = (int32_t)value;
    return 1;
  }
  if (strchr(text, '-')) return 0; /* strtoull would wrap it */
  const unsigned long long value = strtoull(text, &end, 10);
  if (end == text || *end || errno) return 0;
  if (option->kind == CLI_U64) {
    *(uint64_t *)option->value = value;
    return 1;
  }
  if (value > UINT32_MAX) return 0;
  *(uint32_t *)option->value = (uint32_t)value;
  return 1;
}

static const cli_option *find_option(const cli_option *options, size_t n_options, const char *name,
                                     size_t n_bytes) {
  for (size_t i = 0; i < n_options; ++i) {
    const char *const names[2] = {options[i].name, options[i].alias};
    for (int k = 0; k < 2; ++k) {
      if (names[k] && strlen(names[k]) == n_bytes && memcmp(names[k], name, n_bytes) == 0) {
        return &options[i];
      }
    }
  }
  return NULL;
}

static void parse(int argc, char **argv, const char *usage, const cli_option *options,
                  size_t n_options, const char **model_path, const char **file_path) {
  const char *slash = argc > 0 ? strrchr(argv[0], '/') : NULL;
  if (argc > 0) cli_program = slash ? slash + 1 : argv[0];
  *model_path = NULL;
  for (int i = 1; i < argc; ++i) {
    if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
      fputs(usage, stdout);
      exit(CLI_OK);
    }
  }
  for (int i = 1; i < argc; ++i) {
    const char *argument = argv[i];
    if (argument[0] != '-' || argument[1] == '\0') {
      if (!*model_path) {
        *model_path = argument;
      } else if (file_path && !*file_path) {
        *file_path = argument;
      } else {
        cli_usage_error("%s only; what is '%s'?",
                        file_path ? "one MODEL and one FILE" : "one MODEL", argument);
      }
      continue;
    }
    const char *equals = argument[1] == '-' ? strchr(argument, '=') : NULL;
    const size_t name_bytes = equals ? (size_t)(equals - argument) : strlen(argument);
    const cli_option *option = find_option(options, n_options, argument, name_bytes);
    if (!option) cli_usage_error("unknown option '%s'", argument);
    if (option->was_given) *option->was_given = 1;
    if (option->kind == CLI_FLAG) {
      if (equals) cli_usage_error("%s takes no value", option->name);
      *(int32_t *)option->value = 1;
      continue;
    }
    if (option->kind == CLI_PAIR) {
      if (equals || i + 2 >= argc) cli_usage_error("%s needs two values", option->name);
      ((const char **)option->value)[0] = argv[++i];
      ((const char **)option->value)[1] = argv[++i];
      continue;
    }
    const char *value = equals ? equals + 1 : (i + 1 < argc ? argv[++i] : NULL);
    if (!value) cli_usage_error("%s needs a value", option->name);
    if (!store_value(option, value)) {
      cli_usage_error("'%s' is not a value for %s", value, option->name);
    }
  }
  if (!*model_path) cli_usage_error("which MODEL? Give the path of a GGUF file");
  if (file_path && !*file_path) cli_usage_error("which FILE? Give its path after the model's");
}

void cli_parse(int argc, char **argv, const char *usage, const cli_option *options,
               size_t n_options, const char **model_path) {
  parse(argc, argv, usage, options, n_options, model_path, NULL);
}

void cli_parse_with_file(int argc, char **argv, const char *usage, const cli_option *options,
                         size_t n_options, const char **model_path, const char **file_path) {
  *file_path = NULL;
  parse(argc, argv, usage, options, n_options, model_path, file_path);
}

/* Bytes of the UTF-8 character at p, 0 where there is no valid one. */
static uint64_t character_bytes(const unsigned char *p, uint64_t n_bytes) {
  uint32_t code;
  uint64_t length;
  if (p[0] < 0x80) return 1;
  if (p[0] >= 0xC2 && p[0] <= 0xDF) {
    length = 2;
    code = p[0] & 0x1Fu;
  } else if (p[0] >= 0xE0 && p[0] <= 0xEF) {
    length = 3;
    code = p[0] & 0x0Fu;
  } else if (p[0] >= 0xF0 && p[0] <= 0xF4) {
    length = 4;
    code = p[0] & 0x07u;
  } else {
    return 0;
  }
  if (length > n_bytes) return 0;
  for (uint64_t i = 1; i < length; ++i) {
    if ((p[i] & 0xC0u) != 0x80u) return 0;
    code = code << 6 | (p[i] & 0x3Fu);
  }
  if (length == 3 && (code < 0x800 || (code >= 0xD800 && code <= 0xDFFF))) return 0;
  if (length == 4 && (code < 0x10000 || code > 0x10FFFF)) return 0;
  return length;
}

void cli_print_json_text(const char *text, uint64_t n_bytes) {
  putchar('"');
  for (uint64_t i = 0; i < n_bytes;) {
    const unsigned char *p = (const unsigned char *)text + i;
    const uint64_t length = character_bytes(p, n_bytes - i);
    if (length == 0) {
      fputs("\\ufffd", stdout);
    } else if (*p == '"' || *p == '\\') {
      printf("\\%c", *p);
    } else if (*p == '\n') {
      fputs("\\n", stdout);
    } else if (*p < 0x20 || *p == 0x7F) {
      printf("\\u%04x", *p);
    } else {
      fwrite(p, 1, (size_t)length, stdout);
    }
    i += length ? length : 1;
  }
  putchar('"');
}
