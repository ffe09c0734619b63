/* Layout: sizes, offsets and constants of engine.h against layout.txt; they may only grow at the end.
 *
 *   abi_layout            compare; 0 = equal
 *   abi_layout --print    write the layout of this header to stdout
 *   abi_layout --update   add what has grown to layout.txt; refuses anything else
 */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine.h"

#define MAX_LINES 1024
#define LINE_BYTES 128

typedef struct text_lines {
  char line[MAX_LINES][LINE_BYTES];
  int n;
} text_lines;

static text_lines actual, committed;

static void add_line(const char *group, const char *kind, const char *name, unsigned long a,
                     unsigned long b) {
  if (actual.n == MAX_LINES) abort();
  snprintf(actual.line[actual.n++], LINE_BYTES, "%s %s %s %lu %lu", group, kind, name, a, b);
}

/* field: offset and size. size: of the struct, and of a pointer. constant: value. */
#define STRUCT(type) \
  add_line(#type, "size", "-", (unsigned long)sizeof(type), (unsigned long)sizeof(void *))
#define FIELD(type, member)                                                \
  add_line(#type, "field", #member, (unsigned long)offsetof(type, member), \
           (unsigned long)sizeof(((type *)0)->member))
#define CONSTANT(name) add_line("constant", "value", #name, (unsigned long)(name), 0)

static void describe(void) {
#include "layout_list.inc"
}

static int same_field(const char *a, const char *b) {
  /* the first three words name the thing, the rest is its layout */
  for (int words = 0; *a && *a == *b; ++a, ++b) {
    if (*a == ' ' && ++words == 3) return 1;
  }
  return 0;
}

static const char *find(const text_lines *lines, const char *line) {
  for (int i = 0; i < lines->n; ++i) {
    if (same_field(lines->line[i], line)) return lines->line[i];
  }
  return NULL;
}

static int read_committed(const char *path) {
  FILE *file = fopen(path, "r");
  if (!file) return 0;
  while (committed.n < MAX_LINES && fgets(committed.line[committed.n], LINE_BYTES, file)) {
    char *line = committed.line[committed.n];
    line[strcspn(line, "\n")] = '\0';
    if (*line && *line != '#') ++committed.n;
  }
  fclose(file);
  return 1;
}

/* The end of a struct as layout.txt knows it: 0 for one that it does not know. */
static unsigned long committed_end(const char *type) {
  unsigned long end = 0;
  for (int i = 0; i < committed.n; ++i) {
    char group[LINE_BYTES], kind[LINE_BYTES], name[LINE_BYTES];
    unsigned long a, b;
    if (sscanf(committed.line[i], "%127s %127s %127s %lu %lu", group, kind, name, &a, &b) != 5)
      continue;
    if (strcmp(group, type) == 0 && strcmp(kind, "field") == 0 && a + b > end) end = a + b;
  }
  return end;
}

/* Counts what has changed (wrong) and what has grown (fine, once recorded). */
static void compare(int *n_wrong, int *n_grown) {
  for (int i = 0; i < committed.n; ++i) {
    const char *now = find(&actual, committed.line[i]);
    if (now && strcmp(now, committed.line[i]) == 0) continue;
    unsigned long was_size = 0, is_size = 0;
    if (now && strstr(now, " size - ") && sscanf(strstr(now, " - "), " - %lu", &is_size) == 1 &&
        sscanf(strstr(committed.line[i], " - "), " - %lu", &was_size) == 1 && is_size > was_size) {
      ++*n_grown;
      continue;
    }
    fprintf(stderr, "changed: was \"%s\", is \"%s\"\n", committed.line[i], now ? now : "gone");
    ++*n_wrong;
  }
  for (int i = 0; i < actual.n; ++i) {
    char group[LINE_BYTES], kind[LINE_BYTES], name[LINE_BYTES];
    unsigned long a, b;
    if (find(&committed, actual.line[i])) continue;
    ++*n_grown;
    if (sscanf(actual.line[i], "%127s %127s %127s %lu %lu", group, kind, name, &a, &b) == 5 &&
        strcmp(kind, "field") == 0 && a < committed_end(group)) {
      fprintf(stderr, "not at the end: \"%s\"\n", actual.line[i]);
      ++*n_wrong;
    }
  }
}

static int write_layout(FILE *file) {
  fputs(
      "# Layout of engine.h on 64-bit machines: TYPE field NAME OFFSET SIZE, TYPE size - SIZE "
      "POINTER,\n"
      "# constant value NAME VALUE 0. Written by abi_layout --update. May only grow.\n",
      file);
  for (int i = 0; i < actual.n; ++i) fprintf(file, "%s\n", actual.line[i]);
  return 0;
}

int main(int argc, char **argv) {
  /* run from the root of the source tree, as ctest does */
  const char *const path = "tests/abi/layout.txt";
  if (sizeof(void *) != 8) {
    puts("layout.txt describes 64-bit machines");
    return 77;
  }
  describe();
  if (argc > 1 && strcmp(argv[1], "--print") == 0) return write_layout(stdout);
  const int update = argc > 1 && strcmp(argv[1], "--update") == 0;
  if (!read_committed(path) && !update) {
    fprintf(stderr, "cannot read %s\n", path);
    return 1;
  }
  int n_wrong = 0, n_grown = 0;
  compare(&n_wrong, &n_grown);
  printf("%d lines, %d wrong, %d grown\n", actual.n, n_wrong, n_grown);
  if (n_wrong) return 1;
  if (n_grown && !update) {
    fputs("engine.h has grown: record it with abi_layout --update\n", stderr);
    return 1;
  }
  if (!update) return 0;
  FILE *file = fopen(path, "w");
  if (!file) {
    fprintf(stderr, "cannot write %s\n", path);
    return 1;
  }
  write_layout(file);
  return fclose(file) != 0;
}
