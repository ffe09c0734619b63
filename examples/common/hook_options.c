/* Sites and modes by name, layers, counters: what programs with hooks share. */
#include "hook_options.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli.h"

int hook_options_site(const engine_model *model, const char *name, engine_hook_site_info *info) {
  const engine_hook_site_info empty = ENGINE_HOOK_SITE_INFO_INIT;
  int32_t status = ENGINE_OK;
  for (uint32_t i = 0;; ++i) {
    *info = empty;
    status = engine_hook_site_at(model, i, info);
    if (status != ENGINE_OK) break;
    if (strcmp(info->name, name) != 0 && (!info->alias[0] || strcmp(info->alias, name) != 0)) {
      continue;
    }
    if (info->n_layers > 0) return CLI_OK;
    cli_message("this model has no value %s", info->name);
    return CLI_FAILED;
  }
  if (status != ENGINE_ARGUMENT) return cli_report("cannot list the hook sites", status, NULL);
  char names[1024] = "";
  for (uint32_t i = 0; engine_hook_site_at(model, i, info) == ENGINE_OK; ++i) {
    const size_t used = strlen(names);
    if (info->n_layers == 0) continue;
    snprintf(names + used, sizeof(names) - used, "%s%s", used ? ", " : "", info->name);
  }
  cli_message("there is no site %s; this model has %s", name, names);
  return CLI_FAILED;
}

uint64_t hook_options_width(const engine_hook_site_info *site, uint32_t n_ctx) {
  return site->width ? site->width : (uint64_t)site->n_heads * n_ctx;
}

int hook_options_layer(const engine_hook_site_info *site, int32_t layer, int32_t n_layer,
                       int32_t *begin, int32_t *end) {
  *begin = *end = 0;
  if (!site->per_layer || layer == -1) return CLI_OK;
  if (layer < 0 || layer >= n_layer) {
    cli_message("there is no layer %" PRId32 "; the model has 0 to %" PRId32, layer, n_layer - 1);
    return CLI_FAILED;
  }
  *begin = layer;
  *end = layer + 1;
  return CLI_OK;
}

int32_t hook_options_mode(const char *name) {
  static const char *const kNames[] = {"default", "reference", "planned", "planned-fused"};
  for (int32_t i = 0; i < 4; ++i) {
    if (strcmp(name, kNames[i]) == 0) return i;
  }
  return -1;
}

void hook_options_print_stats(const engine_hook_stats *s) {
  printf("{\"calls\": %" PRIu64 ", \"positions\": %" PRIu64 ", \"prefill_positions\": %" PRIu64
         ", \"decode_positions\": %" PRIu64 ", \"writes\": %" PRIu64 ", \"rows_captured\": %" PRIu64
         ", \"rows_dropped\": %" PRIu64 "}",
         s->calls, s->positions, s->prefill_positions, s->decode_positions, s->writes,
         s->rows_captured, s->rows_dropped);
}
