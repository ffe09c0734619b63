/* A plan (schema engine.plan/1) as a page for people. Belongs to inspect_plan; reads with cJSON. */
#ifndef ENGINE_EXAMPLES_COMMON_PLAN_PAGE_H_
#define ENGINE_EXAMPLES_COMMON_PLAN_PAGE_H_

#include <cjson/cJSON.h>
#include <stdint.h>

/* The whole page to stdout. 0, or CLI_FAILED where the text is no plan of that schema: reported. */
int plan_page_print(const char *json, uint64_t n_bytes);

/* ---- for the files of the page -------------------------------------------------------------------- */

/* A field as text: "-" where it is absent or null. Valid as long as the tree. */
const char *plan_text(const cJSON *object, const char *field);
/* A field as a number, 0 where it is absent or null. */
int64_t plan_number(const cJSON *object, const char *field);

/* "0-3,7" of the layers whose flag is set. */
typedef struct layers_text {
  char text[128]; /* what does not fit is "..." */
} layers_text;
layers_text plan_layers_text(const unsigned char *flags, int n_layers);

/* The steps of one form ("decode", "prefill"): outside the layers, then of each kind of layer. */
void plan_print_form(const cJSON *plan, const char *form);
/* Which fusions are on in which layers, and for the others why not. */
void plan_print_fusions(const cJSON *plan, const char *form);

#endif /* ENGINE_EXAMPLES_COMMON_PLAN_PAGE_H_ */
