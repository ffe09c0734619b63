/* What every example program needs around the library: options, messages, whole files. */
#ifndef ENGINE_EXAMPLES_COMMON_CLI_H_
#define ENGINE_EXAMPLES_COMMON_CLI_H_

#include <stddef.h>
#include <stdint.h>

#include "engine.h"

/* Exit codes of all examples. */
enum {
  CLI_OK = 0,
  CLI_FAILED = 1,     /* the work could not be done; the reason is on stderr */
  CLI_USAGE = 2,      /* the command line is wrong */
  CLI_INCOHERENT = 3, /* decode_proxy only: it ran, but the text is not what a sound model says */
};

typedef enum cli_kind {
  CLI_FLAG,  /* int32_t, set to 1; takes no value */
  CLI_COUNT, /* uint32_t */
  CLI_INT,   /* int32_t */
  CLI_U64,   /* uint64_t */
  CLI_REAL,  /* float */
  CLI_TEXT,  /* const char * */
  CLI_PAIR,  /* const char *[2]; takes two values */
} cli_kind;

typedef struct cli_option {
  const char *name;  /* "--seed" */
  const char *alias; /* "-s", or NULL */
  cli_kind kind;
  void *value;
  int32_t *was_given; /* set to 1 when the option appears; may be NULL */
} cli_option;

/* The name that messages begin with. */
extern const char *cli_program;

/* Reads options and the one positional argument, MODEL. Ends the program after --help (status 0) and
 * on a wrong command line (status 2). */
void cli_parse(int argc, char **argv, const char *usage, const cli_option *options,
               size_t n_options, const char **model_path);

/* The same with two positional arguments, MODEL and FILE. */
void cli_parse_with_file(int argc, char **argv, const char *usage, const cli_option *options,
                         size_t n_options, const char **model_path, const char **file_path);

/* Prints "PROGRAM: ..." to stderr and ends with status 2. */
void cli_usage_error(const char *format, ...);

/* Prints "PROGRAM: ..." to stderr. */
void cli_message(const char *format, ...);

/* Prints what failed, with the status name, the key or tensor name and the file offset. Returns CLI_FAILED. */
int cli_report(const char *what, int32_t status, const engine_error *error);

/* All bytes of a file, "-" for standard input, plus a NUL that is not counted. NULL: reported. */
char *cli_read_file(const char *path, uint64_t *n_bytes);

/* Writes a whole file, "-" for standard output; 0, or reported and CLI_FAILED. */
int cli_write_file(const char *path, const char *text, uint64_t n_bytes);

/* Memory, or the end of the program with status 1. */
void *cli_allocate(uint64_t n_bytes);
void *cli_resize(void *block, uint64_t n_bytes);

double cli_seconds(void);

/* A JSON string, quotes included; invalid UTF-8 becomes U+FFFD. */
void cli_print_json_text(const char *text, uint64_t n_bytes);

#endif /* ENGINE_EXAMPLES_COMMON_CLI_H_ */
