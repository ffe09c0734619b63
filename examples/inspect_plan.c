/* inspect_plan: what a session would do and why, as a page or as JSON; verifies and compares stored plans. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cli.h"
#include "common/generation.h"
#include "common/plan_page.h"
#include "common/session_options.h"

static const char kUsage[] =
    "inspect_plan MODEL [options]: the plan that a session with these options would obey\n"
    "\n" SESSION_USAGE
    "  --hooks SPEC      hooks of the session: ACTION@SITE[:LAYER or :FIRST-LAST], commas "
    "between.\n"
    "                    Actions: capture read write add scale set zero interpolate project_out "
    "clamp\n"
    "                    replace low_rank; a wrong SITE lists near names\n"
    "  --json            the plan as canonical JSON instead of the page\n"
    "  --full-hash       with a hash over the whole file\n"
    "  --verify FILE     compile the stored plan anew: the same model, library and machine must "
    "give it\n"
    "                    again. Other options are not looked at\n"
    "  --diff FILE       what differs between the stored plan and this one, a line each\n"
    "\n"
    "Status: 0 = done, verified, or no difference; 1 = failed, not verified (the first difference "
    "is on\n"
    "stderr), or differences; 2 = wrong command line.\n"
    "\n"
    "Example: inspect_plan model.gguf --hooks capture@resid_post:0-3,add@ffn_out:5\n"
    "         inspect_plan model.gguf --json > plan.json && inspect_plan model.gguf --verify "
    "plan.json\n"
    "         inspect_plan model.gguf --diff plan.json --without F4 --threads 1\n";

typedef struct inspect_options {
  const char *model_path;
  const char *hooks;
  const char *verify_path;
  const char *diff_path;
  int32_t json;
  int32_t full_hash;
  session_options session;
} inspect_options;

/* ---- --hooks -------------------------------------------------------------------------------------- */

typedef struct hook_list {
  engine_hook_params *hooks;
  uint64_t n;
  char *text; /* that the sites point into */
} hook_list;

static int32_t action_number(const char *name) {
  static const struct {
    const char *name;
    int32_t action;
  } kActions[] = {
      {"capture", ENGINE_HOOK_CAPTURE},
      {"read", ENGINE_HOOK_READ},
      {"write", ENGINE_HOOK_WRITE},
      {"add", ENGINE_HOOK_ADD},
      {"scale", ENGINE_HOOK_SCALE},
      {"set", ENGINE_HOOK_SET},
      {"zero", ENGINE_HOOK_ZERO},
      {"interpolate", ENGINE_HOOK_INTERPOLATE},
      {"project_out", ENGINE_HOOK_PROJECT_OUT},
      {"clamp", ENGINE_HOOK_CLAMP},
      {"replace", ENGINE_HOOK_REPLACE},
      {"low_rank", ENGINE_HOOK_LOW_RANK},
  };
  for (size_t i = 0; i < sizeof(kActions) / sizeof(kActions[0]); ++i) {
    if (strcmp(kActions[i].name, name) == 0) return kActions[i].action;
  }
  cli_usage_error("unknown action '%s' in --hooks", name);
  return 0;
}

/* "3" or "0-3"; ends the program where it is neither. */
static void read_layers(const char *text, engine_hook_params *hook) {
  char *end = NULL;
  const long first = strtol(text, &end, 10);
  long last = first;
  if (end != text && *end == '-') {
    const char *second = end + 1;
    last = strtol(second, &end, 10);
    if (end == second) last = -1;
  }
  if (end == text || *end || first < 0 || last < first || last >= INT32_MAX) {
    cli_usage_error("'%s' is not a layer or FIRST-LAST in --hooks", text);
  }
  hook->layer_begin = (int32_t)first;
  hook->layer_end = (int32_t)last + 1;
}

static hook_list read_hooks(const char *spec) {
  hook_list list = {NULL, 0, NULL};
  if (!spec) return list;
  list.text = cli_allocate(strlen(spec) + 1);
  strcpy(list.text, spec);
  for (char *item = list.text; item;) {
    const engine_hook_params empty = ENGINE_HOOK_PARAMS_INIT;
    char *comma = strchr(item, ','), *at = NULL, *colon = NULL;
    if (comma) *comma = '\0';
    list.hooks = cli_resize(list.hooks, (list.n + 1) * sizeof(*list.hooks));
    engine_hook_params *hook = &list.hooks[list.n++];
    *hook = empty;
    at = strchr(item, '@');
    if (!at) cli_usage_error("'%s' in --hooks is not ACTION@SITE[:LAYERS]", item);
    *at = '\0';
    hook->action = action_number(item);
    hook->site = at + 1;
    colon = strchr(at + 1, ':');
    if (colon) {
      *colon = '\0';
      read_layers(colon + 1, hook);
    }
    item = comma ? comma + 1 : NULL;
  }
  return list;
}

/* ---- what to do with the plan --------------------------------------------------------------------- */

static int verify(const engine_model *model, const char *path) {
  engine_error error = ENGINE_ERROR_INIT;
  uint64_t n_bytes = 0;
  char *text = cli_read_file(path, &n_bytes);
  if (!text) return CLI_FAILED;
  const int32_t status = engine_plan_verify(model, text, n_bytes, &error);
  free(text);
  if (status != ENGINE_OK) return cli_report("not verified", status, &error);
  puts("verified: hash, memory map, and the same plan here and now");
  return CLI_OK;
}

static int diff(const char *path, const char *plan, uint64_t plan_bytes) {
  engine_error error = ENGINE_ERROR_INIT;
  uint64_t n_stored = 0, n_bytes = 0;
  char *stored = cli_read_file(path, &n_stored), *text = NULL;
  if (!stored) return CLI_FAILED;
  int32_t status = engine_plan_diff(stored, n_stored, plan, plan_bytes, NULL, 0, &n_bytes, &error);
  if (status == ENGINE_BUFFER_TOO_SMALL) {
    text = cli_allocate(n_bytes);
    status = engine_plan_diff(stored, n_stored, plan, plan_bytes, text, n_bytes, &n_bytes, &error);
  }
  free(stored);
  int code = CLI_OK;
  if (status != ENGINE_OK) {
    code = cli_report("cannot compare", status, &error);
  } else if (n_bytes > 0) {
    fwrite(text, 1, n_bytes, stdout);
    if (text[n_bytes - 1] != '\n') putchar('\n');
    code = CLI_FAILED;
  }
  free(text);
  return code;
}

static int make_plan(const engine_model *model, const inspect_options *o, const hook_list *hooks) {
  engine_error error = ENGINE_ERROR_INIT;
  engine_plan *plan = NULL;
  uint64_t n_bytes = 0;
  const int32_t status =
      engine_plan_create(model, &o->session.params, hooks->hooks, hooks->n, &plan, &error);
  if (status != ENGINE_OK) return cli_report("no plan", status, &error);
  char *text = session_plan_text(plan, o->full_hash ? ENGINE_PLAN_FULL_FILE_HASH : 0, &n_bytes);
  engine_plan_destroy(plan);
  int code = text ? CLI_OK : CLI_FAILED;
  if (text && o->diff_path) {
    code = diff(o->diff_path, text, n_bytes);
  } else if (text && o->json) {
    puts(text);
  } else if (text) {
    code = plan_page_print(text, n_bytes);
  }
  free(text);
  return code;
}

int main(int argc, char **argv) {
  inspect_options o = {NULL, NULL, NULL, NULL, 0, 0, SESSION_OPTIONS_INIT};
  const cli_option options[] = {
      SESSION_OPTION_ROWS(o.session),
      {"--hooks", NULL, CLI_TEXT, &o.hooks, NULL},
      {"--json", NULL, CLI_FLAG, &o.json, NULL},
      {"--full-hash", NULL, CLI_FLAG, &o.full_hash, NULL},
      {"--verify", NULL, CLI_TEXT, &o.verify_path, NULL},
      {"--diff", NULL, CLI_TEXT, &o.diff_path, NULL},
  };
  cli_parse(argc, argv, kUsage, options, sizeof(options) / sizeof(options[0]), &o.model_path);
  session_options_read(&o.session);
  if ((o.verify_path != NULL) + (o.diff_path != NULL) + o.json > 1) {
    cli_usage_error("one of --json, --verify and --diff");
  }
  hook_list hooks = read_hooks(o.hooks);
  engine_model *model = NULL;
  engine_model_info info;
  int code = generation_open_model(o.model_path, 0, &model, &info);
  if (code == CLI_OK)
    code = o.verify_path ? verify(model, o.verify_path) : make_plan(model, &o, &hooks);
  engine_model_close(model);
  free(hooks.hooks);
  free(hooks.text);
  return code;
}
