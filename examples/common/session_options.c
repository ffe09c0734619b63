/* Session options from text, and the proof of what a session ran. */
#include "session_options.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint32_t read_fusions(const char *list) {
  uint32_t fusions = 0;
  for (const char *p = list; *p;) {
    if (p[0] != 'F' || p[1] < '1' || p[1] > '0' + SESSION_FUSIONS || (p[2] && p[2] != ',')) {
      cli_usage_error("'%s' is not a list of fusions: F1 to F%d with commas between", list,
                      SESSION_FUSIONS);
    }
    fusions |= 1u << (p[1] - '1');
    p += p[2] ? 3 : 2;
  }
  return fusions;
}

void session_options_read(session_options *options) {
  static const char *const kModes[] = {"", "reference", "planned", "planned-fused"};
  engine_session_params *params = &options->params;
  params->mode = 0;
  for (int32_t mode = ENGINE_MODE_REFERENCE; mode <= ENGINE_MODE_PLANNED_FUSED; ++mode) {
    if (strcmp(options->mode, kModes[mode]) == 0) params->mode = mode;
  }
  if (params->mode == 0) {
    cli_usage_error("unknown mode '%s': there are reference, planned and planned-fused",
                    options->mode);
  }
  static const char *const kKvTypes[] = {"f16", "f32", "q8_0"};
  params->kv_type = -1;
  for (int32_t type = ENGINE_KV_F16; type <= ENGINE_KV_Q8_0; ++type) {
    if (strcmp(options->kv, kKvTypes[type]) == 0) params->kv_type = type;
  }
  if (params->kv_type < 0) {
    cli_usage_error("'%s' is not a value for --kv: f16, f32 or q8_0", options->kv);
  }
  if (strcmp(options->weights, "packed") != 0 && strcmp(options->weights, "stored") != 0) {
    cli_usage_error("'%s' is not a value for --weights: packed or stored", options->weights);
  }
  params->weights =
      strcmp(options->weights, "stored") == 0 ? ENGINE_WEIGHTS_STORED : ENGINE_WEIGHTS_PACKED;
  params->without_fusions = options->without ? read_fusions(options->without) : 0;
}

void session_fusion_counts(const engine_session *session, uint64_t calls[SESSION_FUSIONS]) {
  for (uint32_t i = 0; i < SESSION_FUSIONS; ++i) {
    const char *name = NULL;
    calls[i] = 0;
    engine_session_fusion_at(session, i, &name, &calls[i]);
  }
}

fusion_text session_fusion_text(uint32_t fusions) {
  fusion_text out;
  char *p = out.text;
  for (int i = 0; i < SESSION_FUSIONS; ++i) {
    if (!(fusions >> i & 1)) continue;
    if (p != out.text) *p++ = '+';
    *p++ = 'F';
    *p++ = (char)('1' + i);
  }
  *p = '\0';
  if (p == out.text) strcpy(out.text, "none");
  return out;
}

char *session_plan_text(const engine_plan *plan, uint32_t flags, uint64_t *n_bytes) {
  engine_error error = ENGINE_ERROR_INIT;
  uint64_t capacity = 0;
  int32_t status = engine_plan_json(plan, flags, NULL, 0, &capacity, &error);
  char *text = NULL;
  if (status == ENGINE_BUFFER_TOO_SMALL) {
    text = cli_allocate(capacity + 1);
    status = engine_plan_json(plan, flags, text, capacity, n_bytes, &error);
  }
  if (status == ENGINE_OK) {
    text[*n_bytes] = '\0';
    return text;
  }
  free(text);
  cli_report("cannot write the plan", status, &error);
  return NULL;
}

int session_prove_mode(const engine_session *session, const session_options *options) {
  engine_session_stats stats = ENGINE_SESSION_STATS_INIT;
  uint64_t calls[SESSION_FUSIONS];
  const int32_t status = engine_session_stats_get(session, &stats);
  if (status != ENGINE_OK) return cli_report("cannot read the session's stats", status, NULL);
  if (stats.mode != options->params.mode) {
    cli_message("asked for mode %s, but the session runs mode number %" PRId32, options->mode,
                stats.mode);
    return CLI_FAILED;
  }
  session_fusion_counts(session, calls);
  const uint32_t may_run = stats.mode == ENGINE_MODE_PLANNED_FUSED
                               ? ((1u << SESSION_FUSIONS) - 1) & ~options->params.without_fusions
                               : 0;
  uint64_t n_run = 0;
  for (int i = 0; i < SESSION_FUSIONS; ++i) {
    n_run += calls[i];
    if (calls[i] == 0 || (may_run >> i & 1)) continue;
    cli_message("fusion F%d ran %" PRIu64 " times in mode %s", i + 1, calls[i], options->mode);
    return CLI_FAILED;
  }
  if (n_run == 0 && stats.decoded_tokens > 0 && may_run == (1u << SESSION_FUSIONS) - 1) {
    cli_message("mode %s, but no fusion has run", options->mode);
    return CLI_FAILED;
  }
  return CLI_OK;
}
