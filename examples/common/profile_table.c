/* Adds up the lines of a profile over the layers and prints them. */
#include "profile_table.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "session_options.h"

static void append(profile_row **rows, uint32_t *n, const engine_profile_entry *entry) {
  *rows = cli_resize(*rows, (*n + 1) * sizeof(**rows));
  (*rows)[*n].entry = *entry;
  (*rows)[*n].n_steps = 1;
  (*rows)[*n].last_layer = entry->layer;
  ++*n;
}

/* blk.7.attn_q.weight -> attn_q.weight */
static const char *tensor_stem(const char *tensor) {
  if (strncmp(tensor, "blk.", 4) != 0) return tensor;
  const char *dot = strchr(tensor + 4, '.');
  return dot ? dot + 1 : tensor;
}

static profile_row *same_operator(profile_table *table, const engine_profile_entry *entry) {
  for (uint32_t i = 0; i < table->n_rows; ++i) {
    const engine_profile_entry *row = &table->rows[i].entry;
    if (row->fusions == entry->fusions && (row->layer < 0) == (entry->layer < 0) &&
        strcmp(row->op, entry->op) == 0 && strcmp(row->kernel, entry->kernel) == 0 &&
        strcmp(tensor_stem(row->tensor), tensor_stem(entry->tensor)) == 0) {
      return &table->rows[i];
    }
  }
  return NULL;
}

profile_table profile_table_read(const engine_session *session) {
  profile_table table;
  engine_profile_entry entry = ENGINE_PROFILE_ENTRY_INIT;
  memset(&table, 0, sizeof(table));
  for (uint32_t i = 0; engine_session_profile_at(session, i, &entry) == ENGINE_OK; ++i) {
    if (entry.prefill) continue;
    if (strcmp(entry.op, "call") == 0) {
      table.n_tokens = entry.calls;
      table.call_ns = entry.total_ns;
      table.call_median_ns = entry.median_ns;
      continue;
    }
    table.steps_ns += entry.total_ns;
    append(&table.layer_rows, &table.n_layer_rows, &entry);
    profile_row *row = same_operator(&table, &entry);
    if (!row) {
      append(&table.rows, &table.n_rows, &entry);
      continue;
    }
    row->entry.calls += entry.calls;
    row->entry.total_ns += entry.total_ns;
    row->entry.median_ns += entry.median_ns;
    row->entry.p95_ns += entry.p95_ns;
    row->entry.bytes += entry.bytes;
    row->last_layer = entry.layer;
    ++row->n_steps;
  }
  return table;
}

void profile_table_free(profile_table *table) {
  free(table->rows);
  free(table->layer_rows);
  memset(table, 0, sizeof(*table));
}

double profile_table_accounted(const profile_table *table) {
  return table->call_ns ? 100.0 * (double)table->steps_ns / (double)table->call_ns : 0.0;
}

static double share(const profile_table *table, uint64_t ns) {
  return table->call_ns ? 100.0 * (double)ns / (double)table->call_ns : 0.0;
}

static double gb_s(const engine_profile_entry *e) {
  return e->total_ns ? (double)e->bytes / (double)e->total_ns : 0.0;
}

static void print_row(const profile_table *table, const profile_row *row, int by_layer) {
  const engine_profile_entry *e = &row->entry;
  char where[32], tensor[128];
  if (e->layer < 0) {
    strcpy(where, "-");
  } else if (by_layer || row->n_steps == 1) {
    snprintf(where, sizeof(where), "%" PRId32, e->layer);
  } else {
    snprintf(where, sizeof(where), "%" PRId32 "-%" PRId32 " (%u)", e->layer, row->last_layer,
             row->n_steps);
  }
  snprintf(tensor, sizeof(tensor), "%s", by_layer ? e->tensor : tensor_stem(e->tensor));
  printf("%-11s %-34s %-9s %8" PRIu64 " %10.1f %10.1f %12" PRIu64 " %7.2f %6.1f  %s%s%s\n", where,
         e->op, session_fusion_text(e->fusions).text, e->calls, 1e-3 * (double)e->median_ns,
         1e-3 * (double)e->p95_ns, table->n_tokens ? e->bytes / table->n_tokens : 0, gb_s(e),
         share(table, e->total_ns), e->kernel, tensor[0] ? "  " : "", tensor);
}

static void print_rows(const profile_table *table, const profile_row *rows, uint32_t n,
                       int by_layer) {
  printf("%-11s %-34s %-9s %8s %10s %10s %12s %7s %6s  %s\n", "layers", "operations", "fusions",
         "calls", "median us", "p95 us", "bytes/token", "GB/s", "share", "kernel  tensor");
  for (uint32_t i = 0; i < n; ++i) print_row(table, &rows[i], by_layer);
}

void profile_table_print(const profile_table *table, int with_layers) {
  printf("\n%" PRIu64 " tokens of %.1f us (median). Operators, added over their layers:\n",
         table->n_tokens, 1e-3 * (double)table->call_median_ns);
  print_rows(table, table->rows, table->n_rows, 0);
  printf("%-11s %-34s %-9s %8s %10s %10s %12s %7s %6.1f\n", "", "between", "", "", "", "", "", "",
         100.0 - profile_table_accounted(table));
  printf("operators account for %.1f %% of the time\n", profile_table_accounted(table));
  if (!with_layers) return;
  puts("\nThe same by layer:");
  print_rows(table, table->layer_rows, table->n_layer_rows, 1);
}

static void print_json_rows(const profile_table *table, const profile_row *rows, uint32_t n) {
  putchar('[');
  for (uint32_t i = 0; i < n; ++i) {
    const engine_profile_entry *e = &rows[i].entry;
    printf("%s{\"op\": ", i ? ", " : "");
    cli_print_json_text(e->op, strlen(e->op));
    printf(", \"kernel\": ");
    cli_print_json_text(e->kernel, strlen(e->kernel));
    printf(", \"tensor\": ");
    cli_print_json_text(e->tensor, strlen(e->tensor));
    printf(", \"fusions\": \"%s\", \"layer\": %" PRId32 ", \"last_layer\": %" PRId32
           ", \"steps\": %u, \"calls\": %" PRIu64 ", \"total_ns\": %" PRIu64,
           session_fusion_text(e->fusions).text, e->layer, rows[i].last_layer, rows[i].n_steps,
           e->calls, e->total_ns);
    printf(", \"median_ns\": %" PRIu64 ", \"p95_ns\": %" PRIu64 ", \"bytes\": %" PRIu64
           ", \"gb_s\": %.4f, \"share\": %.3f}",
           e->median_ns, e->p95_ns, e->bytes, gb_s(e), share(table, e->total_ns));
  }
  putchar(']');
}

void profile_table_print_json(const profile_table *table, int with_layers) {
  printf("{\"tokens\": %" PRIu64 ", \"call_ns\": %" PRIu64 ", \"call_median_ns\": %" PRIu64
         ", \"accounted\": %.3f, \"between\": %.3f, \"operators\": ",
         table->n_tokens, table->call_ns, table->call_median_ns, profile_table_accounted(table),
         100.0 - profile_table_accounted(table));
  print_json_rows(table, table->rows, table->n_rows);
  if (with_layers) {
    printf(", \"layers\": ");
    print_json_rows(table, table->layer_rows, table->n_layer_rows);
  }
  putchar('}');
}
