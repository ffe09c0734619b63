/* The part of a plan's page that shows steps and fusions; layers that do the same are shown once. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "plan_page.h"

/* ---- text that grows ------------------------------------------------------------------------------ */

typedef struct line_text {
  char *text;
  size_t n;
} line_text;

static void add(line_text *line, const char *text) {
  const size_t n = strlen(text);
  line->text = cli_resize(line->text, line->n + n + 1);
  memcpy(line->text + line->n, text, n + 1);
  line->n += n;
}

static void add_joined(line_text *line, const cJSON *list, const char *field, const char *between) {
  const cJSON *item = NULL;
  const char *before = "";
  cJSON_ArrayForEach(item, list) {
    add(line, before);
    add(line, field ? plan_text(item, field) : item->valuestring);
    before = between;
  }
}

/* Kernels in order, each once; "4 of matmul_..." is not wanted: the operations stand next to them. */
static void add_kernels(line_text *line, const cJSON *parts) {
  const cJSON *part = NULL;
  const char *before = "";
  for (part = parts->child; part; part = part->next) {
    int seen = 0;
    for (const cJSON *p = parts->child; p != part; p = p->next) {
      seen = seen || strcmp(plan_text(p, "kernel"), plan_text(part, "kernel")) == 0;
    }
    if (seen) continue;
    add(line, before);
    add(line, plan_text(part, "kernel"));
    before = " ";
  }
}

static void add_hooks(line_text *line, const cJSON *parts) {
  static const char *const kFields[2] = {"hooks_before", "hooks_after"};
  const cJSON *part = NULL, *site = NULL;
  const char *before = "  hooks: ";
  cJSON_ArrayForEach(part, parts) {
    for (int i = 0; i < 2; ++i) {
      cJSON_ArrayForEach(site, cJSON_GetObjectItemCaseSensitive(part, kFields[i])) {
        add(line, before);
        add(line, site->valuestring);
        before = ", ";
      }
    }
  }
}

/* A step as a line: what is in it decides whether two layers are of the same kind. */
static char *step_line(const cJSON *step) {
  const cJSON *parts = cJSON_GetObjectItemCaseSensitive(step, "fused_from");
  line_text ops = {NULL, 0}, values = {NULL, 0}, line = {NULL, 0};
  char columns[512];
  add_joined(&ops, parts, "op", "+");
  const cJSON *last = cJSON_GetArrayItem(parts, cJSON_GetArraySize(parts) - 1);
  add_joined(&values, cJSON_GetObjectItemCaseSensitive(parts->child, "inputs"), NULL, ",");
  add(&values, " -> ");
  const cJSON *part = NULL;
  int n_stored = 0;
  cJSON_ArrayForEach(part, parts) {
    if (!cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(part, "stored"))) continue;
    if (n_stored++) add(&values, ",");
    add_joined(&values, cJSON_GetObjectItemCaseSensitive(part, "outputs"), NULL, ",");
  }
  if (!n_stored) add(&values, strcmp(plan_text(last, "op"), "kv_store") == 0 ? "KV" : "(check)");
  line_text fusions = {NULL, 0};
  add(&fusions, "");
  add_joined(&fusions, cJSON_GetObjectItemCaseSensitive(step, "fusions"), NULL, "+");
  snprintf(columns, sizeof(columns), "%-34s %-38s %-6s %-6s ", ops.text, values.text,
           plan_text(step, "split"), fusions.n ? fusions.text : "-");
  add(&line, columns);
  add_kernels(&line, parts);
  add_hooks(&line, parts);
  free(ops.text);
  free(values.text);
  free(fusions.text);
  return line.text;
}

/* ---- kinds of layers ------------------------------------------------------------------------------ */

typedef struct layer_kinds {
  char **lines; /* [n_layers]: all steps of a layer, a line each */
  int *kind;    /* [n_layers] */
  int n_layers, n_kinds, largest;
} layer_kinds;

static char *section_lines(const cJSON *steps) {
  line_text all = {NULL, 0};
  const cJSON *step = NULL;
  add(&all, "");
  cJSON_ArrayForEach(step, steps) {
    char *line = step_line(step);
    char time[24];
    snprintf(time, sizeof(time), "%4lld  ", (long long)plan_number(step, "time"));
    add(&all, time);
    add(&all, line);
    add(&all, "\n");
    free(line);
  }
  return all.text;
}

static layer_kinds find_kinds(const cJSON *layers) {
  layer_kinds k;
  memset(&k, 0, sizeof(k));
  k.n_layers = cJSON_GetArraySize(layers);
  k.lines = cli_allocate((uint64_t)k.n_layers * sizeof(char *));
  k.kind = cli_allocate((uint64_t)k.n_layers * sizeof(int));
  int *count = cli_allocate((uint64_t)(k.n_layers + 1) * sizeof(int));
  const cJSON *layer = layers->child;
  for (int l = 0; l < k.n_layers; ++l, layer = layer->next) {
    k.lines[l] = section_lines(cJSON_GetObjectItemCaseSensitive(layer, "steps"));
    k.kind[l] = k.n_kinds;
    for (int other = 0; other < l && k.kind[l] == k.n_kinds; ++other) {
      if (strcmp(k.lines[l], k.lines[other]) == 0) k.kind[l] = k.kind[other];
    }
    if (k.kind[l] == k.n_kinds) count[k.n_kinds++] = 0;
    if (++count[k.kind[l]] > count[k.largest]) k.largest = k.kind[l];
  }
  free(count);
  return k;
}

static void free_kinds(layer_kinds *k) {
  for (int l = 0; l < k->n_layers; ++l) free(k->lines[l]);
  free(k->lines);
  free(k->kind);
}

static int has_line(const char *lines, const char *line, size_t n) {
  for (const char *p = lines; *p; p = strchr(p, '\n') + 1) {
    const size_t length = strcspn(p, "\n");
    /* without the time: a step more before it moves it, and changes nothing */
    if (length == n && memcmp(p + 6, line + 6, n - 6) == 0) return 1;
  }
  return 0;
}

/* All lines, or those that `usual` does not have. */
static void print_lines(const char *lines, const char *usual) {
  for (const char *p = lines; *p; p = strchr(p, '\n') + 1) {
    const size_t n = strcspn(p, "\n");
    if (!usual || !has_line(usual, p, n)) printf(" %.*s\n", (int)n, p);
  }
}

void plan_print_form(const cJSON *plan, const char *form_name) {
  const cJSON *form = cJSON_GetObjectItemCaseSensitive(plan, form_name);
  const cJSON *final_section = cJSON_GetObjectItemCaseSensitive(form, "final");
  layer_kinds k = find_kinds(cJSON_GetObjectItemCaseSensitive(form, "layers"));
  const long long n_tokens = (long long)plan_number(form, "n_tokens");
  printf("\nSTEPS, %s: calls of %s%lld token%s\n", form_name, n_tokens > 1 ? "up to " : "",
         n_tokens, n_tokens > 1 ? "s" : "");
  printf(" %4s  %-34s %-38s %-6s %-6s %s\n", "time", "operations", "values", "split", "fused",
         "kernels");
  char *lines = section_lines(cJSON_GetObjectItemCaseSensitive(form, "preamble"));
  print_lines(lines, NULL);
  free(lines);
  const char *usual = NULL;
  unsigned char *flags = cli_allocate((uint64_t)k.n_layers + 1);
  for (int i = -1; i < k.n_kinds; ++i) {
    const int kind = i < 0 ? k.largest : i;
    if (i == k.largest || k.n_layers == 0) continue;
    int first = -1, n = 0;
    for (int l = 0; l < k.n_layers; ++l) {
      flags[l] = k.kind[l] == kind;
      if (flags[l] && first < 0) first = l;
      n += flags[l];
    }
    const char *what = i >= 0 ? ", where it is not as above:" : (n > 1 ? ", all alike:" : ":");
    printf(" layer%s %s%s\n", n == 1 ? "" : "s", plan_layers_text(flags, k.n_layers).text, what);
    print_lines(k.lines[first], usual);
    if (i < 0) usual = k.lines[first];
  }
  puts(" after the layers:");
  lines = section_lines(cJSON_GetObjectItemCaseSensitive(final_section, "steps"));
  print_lines(lines, NULL);
  free(lines);
  free(flags);
  free_kinds(&k);
}

/* ---- fusions -------------------------------------------------------------------------------------- */

static const cJSON *fusion_at(const cJSON *layer, int index) {
  return cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(layer, "fusions"), index);
}

void plan_print_fusions(const cJSON *plan, const char *form_name) {
  const cJSON *form = cJSON_GetObjectItemCaseSensitive(plan, form_name);
  const cJSON *layers = cJSON_GetObjectItemCaseSensitive(form, "layers");
  const int n_layers = cJSON_GetArraySize(layers);
  const int n = cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(layers->child, "fusions"));
  unsigned char *flags = cli_allocate((uint64_t)n_layers + 1),
                *done = cli_allocate((uint64_t)n_layers + 1);
  printf("\nFUSIONS by layer (%s)\n", form_name);
  for (int f = 0; f < n; ++f) {
    memset(done, 0, (size_t)n_layers);
    const cJSON *layer = layers->child;
    for (int l = 0; l < n_layers; ++l, layer = layer->next) {
      if (done[l]) continue;
      const cJSON *mine = fusion_at(layer, f), *other = layer;
      const int on = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(mine, "on"));
      memset(flags, 0, (size_t)n_layers);
      for (int m = l; m < n_layers; ++m, other = other->next) {
        const cJSON *theirs = fusion_at(other, f);
        flags[m] = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(theirs, "on")) == on &&
                   strcmp(plan_text(theirs, "reason"), plan_text(mine, "reason")) == 0;
        done[m] = done[m] || flags[m];
      }
      printf("  %s %-3s layers %s", plan_text(mine, "id"), on ? "on" : "off",
             plan_layers_text(flags, n_layers).text);
      const char *reason = plan_text(mine, "reason");
      printf("%s%s\n", reason[0] ? ": " : "", reason);
    }
  }
  free(flags);
  free(done);
}
