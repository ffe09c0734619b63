/* The page of a plan: model, kernels, hooks, memory, KV, dispatch. Steps and fusions are in plan_layers.c. */
#include "plan_page.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

const char *plan_text(const cJSON *object, const char *field) {
  const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, field);
  return cJSON_IsString(item) ? item->valuestring : "-";
}

int64_t plan_number(const cJSON *object, const char *field) {
  const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, field);
  return cJSON_IsNumber(item) ? (int64_t)item->valuedouble : 0;
}

static long long number(const cJSON *object, const char *field) {
  return (long long)plan_number(object, field);
}

static const cJSON *child(const cJSON *object, const char *field) {
  return cJSON_GetObjectItemCaseSensitive(object, field);
}

layers_text plan_layers_text(const unsigned char *flags, int n_layers) {
  layers_text out;
  size_t n = 0;
  out.text[0] = '\0';
  for (int l = 0; l < n_layers; ++l) {
    if (!flags[l]) continue;
    int last = l;
    while (last + 1 < n_layers && flags[last + 1]) ++last;
    if (n + 32 > sizeof(out.text)) {
      strcpy(out.text + n, ",...");
      break;
    }
    n += (size_t)snprintf(out.text + n, sizeof(out.text) - n, "%s%d", n ? "," : "", l);
    if (last > l) n += (size_t)snprintf(out.text + n, sizeof(out.text) - n, "-%d", last);
    l = last;
  }
  return out;
}

static void print_list(const cJSON *list, const char *between, const char *if_empty) {
  const cJSON *item = NULL;
  const char *before = "";
  if (cJSON_GetArraySize(list) == 0) fputs(if_empty, stdout);
  cJSON_ArrayForEach(item, list) {
    if (cJSON_IsString(item)) {
      printf("%s%s", before, item->valuestring);
    } else {
      printf("%s%lld", before, (long long)item->valuedouble);
    }
    before = between;
  }
}

static void print_head(const cJSON *plan) {
  const cJSON *m = child(plan, "model"), *p = child(plan, "provenance"),
              *limits = child(p, "limits");
  const cJSON *layers = child(m, "layers"), *rope = NULL;
  int n_windows = 0;
  for (const cJSON *l = layers ? layers->child : NULL; l; l = l->next)
    n_windows += number(l, "window") > 0;
  printf(
      "MODEL      %s (%s): %lld layers, width %lld, %lld heads of %lld over %lld key heads, "
      "feed-forward %lld,\n",
      plan_text(m, "name"), plan_text(m, "architecture"), number(m, "n_layer"), number(m, "n_embd"),
      number(m, "n_head"), number(m, "head_dim_k"), number(layers->child, "n_kv_heads"),
      number(layers->child, "n_ff"));
  printf("           vocabulary %lld, trained for %lld positions, %s, %d layers with a window\n",
         number(m, "n_vocab"), number(m, "n_ctx_train"), plan_text(m, "activation"), n_windows);
  cJSON_ArrayForEach(rope, child(m, "ropes")) {
    printf("           rope: base %s, factor %s, %s pairs%s\n", plan_text(rope, "base"),
           plan_text(rope, "factor"), plan_text(m, "rope_pairing"),
           cJSON_IsTrue(child(rope, "divisors")) ? ", with frequency divisors" : "");
  }
  printf("FILE       %lld bytes, hash %s (sampled), %s (whole)\n", number(m, "file_bytes"),
         plan_text(m, "file_hash_sampled"), plan_text(m, "file_hash_full"));
  printf("           tensor table %s, tokenizer %s\n", plan_text(m, "tensor_table_hash"),
         plan_text(m, "tokenizer_hash"));
  printf("PLAN       mode %s, target %s, %lld threads, context %lld, chunks of %lld, KV %s\n",
         plan_text(p, "mode"), plan_text(child(plan, "dispatch"), "target"),
         number(limits, "n_threads"), number(limits, "n_ctx"), number(limits, "prefill_chunk"),
         plan_text(child(plan, "kv"), "type"));
  printf("           fusions allowed: ");
  print_list(child(limits, "fusions"), " ", "none");
  const char *pattern = plan_text(limits, "kernel_pattern");
  printf("; kernels: %s\n", pattern[0] ? pattern : "free choice");
  printf("HASH       %s (%s)\n", plan_text(plan, "hash"), plan_text(plan, "schema"));
  printf("MADE BY    %s, compiler %s, kernel rows %s\n", plan_text(p, "engine_version"),
         plan_text(p, "compiler"), plan_text(p, "build_id"));
}

/* ---- kernels -------------------------------------------------------------------------------------- */

/* blk.7.attn_q.weight -> attn_q.weight, and 7; -1 outside the layers. */
static const char *stem_of(const char *name, int *layer) {
  char *end = NULL;
  *layer = -1;
  if (strncmp(name, "blk.", 4) != 0) return name;
  const long n = strtol(name + 4, &end, 10);
  if (*end != '.') return name;
  *layer = (int)n;
  return end + 1;
}

static int same_choice(const cJSON *a, const cJSON *b) {
  static const char *const kFields[] = {"dtype",     "layout", "op",       "kernel",
                                        "runner_up", "reason", "residency"};
  int layer = 0;
  if (strcmp(stem_of(plan_text(a, "name"), &layer), stem_of(plan_text(b, "name"), &layer)) != 0)
    return 0;
  for (size_t i = 0; i < sizeof(kFields) / sizeof(kFields[0]); ++i) {
    if (strcmp(plan_text(a, kFields[i]), plan_text(b, kFields[i])) != 0) return 0;
  }
  return cJSON_Compare(child(a, "shape"), child(b, "shape"), 1);
}

static void print_tensors(const cJSON *plan, int n_layers) {
  const cJSON *tensors = child(plan, "tensors"), *t = NULL;
  const int n = cJSON_GetArraySize(tensors);
  unsigned char *done = cli_allocate((uint64_t)n + 1),
                *flags = cli_allocate((uint64_t)n_layers + 1);
  const char **reasons = cli_allocate((uint64_t)(n + 1) * sizeof(char *));
  int n_reasons = 0, i = 0;
  memset(done, 0, (size_t)n);
  printf("\nKERNELS of the %d tensors (equal layers together)\n", n);
  printf("  %-28s %-20s %-14s %-7s %-7s %12s  %-9s %-30s %-30s %s\n", "tensor", "layers", "shape",
         "format", "layout", "bytes", "op", "kernel", "next best", "why");
  cJSON_ArrayForEach(t, tensors) {
    if (done[i++]) continue;
    int layer = -1, j = i - 1, why = 0;
    long long bytes = 0;
    char shape[32];
    memset(flags, 0, (size_t)n_layers);
    for (const cJSON *other = t; other; other = other->next, ++j) {
      if (done[j] || !same_choice(t, other)) continue;
      done[j] = 1;
      bytes += number(other, "bytes");
      stem_of(plan_text(other, "name"), &layer);
      if (layer >= 0 && layer < n_layers) flags[layer] = 1;
    }
    while (why < n_reasons && strcmp(reasons[why], plan_text(t, "reason")) != 0) ++why;
    if (why == n_reasons) reasons[n_reasons++] = plan_text(t, "reason");
    const cJSON *dims = child(t, "shape");
    snprintf(shape, sizeof(shape), "%lldx%lld", (long long)cJSON_GetArrayItem(dims, 0)->valuedouble,
             (long long)cJSON_GetArrayItem(dims, 1)->valuedouble);
    const char *stem = stem_of(plan_text(t, "name"), &layer);
    printf("  %-28s %-20s %-14s %-7s %-7s %12lld  %-9s %-30s %-30s [%d]\n", stem,
           layer < 0 ? "-" : plan_layers_text(flags, n_layers).text, shape, plan_text(t, "dtype"),
           plan_text(t, "layout"), bytes, plan_text(t, "op"), plan_text(t, "kernel"),
           plan_text(t, "runner_up"), why + 1);
  }
  for (i = 0; i < n_reasons; ++i) printf("  [%d] %s\n", i + 1, reasons[i]);
  free(done);
  free(flags);
  free(reasons);
}

/* ---- hooks, memory, KV, dispatch ------------------------------------------------------------------ */

static void print_hooks(const cJSON *plan) {
  const cJSON *hook = NULL, *hooks = child(plan, "hooks");
  if (cJSON_GetArraySize(hooks) == 0) {
    puts("\nHOOKS      none");
    return;
  }
  puts("\nHOOKS");
  cJSON_ArrayForEach(hook, hooks) {
    printf("  %-12s layers ", plan_text(hook, "site"));
    print_list(child(hook, "layers"), ",", "-");
    printf(": %s, value %s of %lld", plan_text(hook, "route"), plan_text(hook, "tensor"),
           number(hook, "width"));
    if (number(hook, "n_heads")) printf(" (%lld heads)", number(hook, "n_heads"));
    if (cJSON_GetArraySize(child(hook, "fusions"))) {
      fputs(", without ", stdout);
      print_list(child(hook, "fusions"), " ", "");
    }
    const char *reason = plan_text(hook, "reason");
    printf("%s%s\n", reason[0] ? ". " : "", reason);
  }
}

static void print_arena(const cJSON *plan, const char *form) {
  const cJSON *arena = child(child(plan, form), "arena"), *regions = child(arena, "regions"),
              *r = NULL, *s = NULL;
  int64_t sum = 0;
  cJSON_ArrayForEach(r, regions) sum += plan_number(r, "bytes");
  printf(
      "\nMEMORY, %s: %lld bytes for values of %lld (sharing), aligned to %lld, scratch %lld a "
      "thread\n",
      form, number(arena, "bytes"), (long long)sum, number(arena, "alignment"),
      number(arena, "thread_scratch_bytes"));
  if (cJSON_GetArraySize(regions) > 0) {
    printf("  %10s %10s  %-9s %-20s %s\n", "offset", "bytes", "live", "value", "shares with");
  }
  cJSON_ArrayForEach(r, regions) {
    char live[40];
    const char *before = "";
    snprintf(live, sizeof(live), "%lld..%lld", number(r, "first_step"), number(r, "last_step"));
    printf("  %10lld %10lld  %-9s %-20s ", number(r, "offset"), number(r, "bytes"), live,
           plan_text(r, "name"));
    cJSON_ArrayForEach(s, child(r, "shares_with")) {
      printf("%s%s", before, plan_text(s, "region"));
      before = ", ";
    }
    putchar('\n');
  }
  int n_proofs = 0;
  cJSON_ArrayForEach(r, regions) {
    cJSON_ArrayForEach(s, child(r, "shares_with")) {
      const cJSON *seen = regions->child; /* each pair once: the other one came before */
      while (seen != r && strcmp(plan_text(seen, "name"), plan_text(s, "region")) != 0)
        seen = seen->next;
      if (seen != r) continue;
      printf("%s%s\n", n_proofs++ ? "    " : "  why it may share:\n    ", plan_text(s, "proof"));
    }
  }
  fputs("  values that fusions leave out: ", stdout);
  print_list(child(arena, "eliminated"), ", ", "none");
  putchar('\n');
}

static void print_kv(const cJSON *plan) {
  const cJSON *kv = child(plan, "kv"), *layers = child(kv, "layers");
  const long long n_ctx = number(child(child(plan, "provenance"), "limits"), "n_ctx");
  printf(
      "\nKV         %s, %lld bytes a position, pages of %lld positions and %lld bytes; %lld bytes "
      "for %lld positions\n",
      plan_text(kv, "type"), number(kv, "bytes_per_position"), number(kv, "page_positions"),
      number(kv, "page_bytes"), number(kv, "bytes_per_position") * n_ctx, n_ctx);
  printf("           %s\n", plan_text(kv, "layout"));
  for (const cJSON *l = layers ? layers->child : NULL; l && l != layers->child->next; l = l->next) {
    printf(
        "           layer 0: %lld heads, K of %lld at byte %lld, V of %lld at byte %lld; the next "
        "layers follow\n",
        number(l, "n_kv_heads"), number(l, "head_dim_k"), number(l, "k_offset_bytes"),
        number(l, "head_dim_v"), number(l, "v_offset_bytes"));
  }
}

static void print_dispatch(const cJSON *plan) {
  static const char *const kForms[2] = {"decode", "prefill"};
  const cJSON *dispatch = child(plan, "dispatch"), *k = NULL, *split = NULL;
  printf("\nDISPATCH   target %s, needs ", plan_text(dispatch, "target"));
  print_list(child(dispatch, "features"), " ", "nothing");
  printf("\n  %-36s %10s %10s\n", "kernel", "per token", "per chunk");
  cJSON_ArrayForEach(k, child(dispatch, "kernels")) {
    printf("  %-36s %10lld %10lld\n", plan_text(k, "kernel"), number(k, "per_token"),
           number(k, "per_chunk"));
  }
  for (int f = 0; f < 2; ++f) {
    printf("  launches, %s:", kForms[f]);
    cJSON_ArrayForEach(split, child(child(dispatch, "thread_split"), kForms[f])) {
      printf(" %s %lld", split->string, (long long)split->valuedouble);
    }
    putchar('\n');
  }
}

int plan_page_print(const char *json, uint64_t n_bytes) {
  static const char *const kSections[] = {"model",      "tensors", "kv",      "dispatch",
                                          "provenance", "decode",  "prefill", "hooks"};
  cJSON *plan = cJSON_ParseWithLength(json, n_bytes);
  int whole = plan && strcmp(plan_text(plan, "schema"), "engine.plan/1") == 0;
  for (size_t i = 0; whole && i < sizeof(kSections) / sizeof(kSections[0]); ++i)
    whole = child(plan, kSections[i]) != NULL;
  const cJSON *layers = whole ? child(child(plan, "decode"), "layers") : NULL;
  if (!whole || cJSON_GetArraySize(layers) == 0 ||
      cJSON_GetArraySize(child(child(plan, "model"), "layers")) == 0) {
    cli_message("this is no plan of the schema engine.plan/1");
    cJSON_Delete(plan);
    return CLI_FAILED;
  }
  print_head(plan);
  print_tensors(plan, cJSON_GetArraySize(layers));
  print_hooks(plan);
  plan_print_fusions(plan, "decode");
  plan_print_form(plan, "decode");
  plan_print_form(plan, "prefill");
  print_arena(plan, "decode");
  print_arena(plan, "prefill");
  print_kv(plan);
  print_dispatch(plan);
  cJSON_Delete(plan);
  return CLI_OK;
}
