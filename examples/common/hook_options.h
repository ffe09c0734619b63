/* What programs with hooks share: sites and modes by name, the layer, the counters as JSON. */
#ifndef ENGINE_EXAMPLES_COMMON_HOOK_OPTIONS_H_
#define ENGINE_EXAMPLES_COMMON_HOOK_OPTIONS_H_

#include <stdint.h>

#include "engine.h"

/* Fills `info` with the site of this name or alias. 0, or CLI_FAILED with the names told on stderr. */
int hook_options_site(const engine_model *model, const char *name, engine_hook_site_info *info);

/* Values per token of a site in a session with n_ctx positions. */
uint64_t hook_options_width(const engine_hook_site_info *site, uint32_t n_ctx);

/* Layers begin <= l < end for one layer of a model, or for all where layer is -1. Outside the layers both are
 * 0. 0, or CLI_FAILED with the reason on stderr. */
int hook_options_layer(const engine_hook_site_info *site, int32_t layer, int32_t n_layer,
                       int32_t *begin, int32_t *end);

#define HOOK_OPTIONS_MODES "default, reference, planned, planned-fused"
/* ENGINE_MODE_* of a name, -1 = none. */
int32_t hook_options_mode(const char *name);

/* The counters of a hook on stdout, as one JSON object. */
void hook_options_print_stats(const engine_hook_stats *stats);

#endif /* ENGINE_EXAMPLES_COMMON_HOOK_OPTIONS_H_ */
