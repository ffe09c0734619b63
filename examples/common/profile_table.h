/* The measured profile of a session's single tokens: by operator, or by operator and layer. */
#ifndef ENGINE_EXAMPLES_COMMON_PROFILE_TABLE_H_
#define ENGINE_EXAMPLES_COMMON_PROFILE_TABLE_H_

#include <stdint.h>

#include "engine.h"

/* An operation of one layer, or of all layers that have the same with the same kernel. */
typedef struct profile_row {
  engine_profile_entry entry; /* of the first; sums in calls, total_ns, median_ns, p95_ns, bytes */
  uint32_t n_steps;           /* that were added up */
  int32_t last_layer;
} profile_row;

typedef struct profile_table {
  profile_row *rows; /* by operator, in the order of execution */
  uint32_t n_rows;
  profile_row *layer_rows; /* one for each step */
  uint32_t n_layer_rows;
  uint64_t n_tokens; /* calls of one token */
  uint64_t call_ns;  /* in all of them */
  uint64_t call_median_ns;
  uint64_t steps_ns; /* of which in operators */
} profile_table;

/* What engine_session_profile measured so far; to be freed. */
profile_table profile_table_read(const engine_session *session);
void profile_table_free(profile_table *table);

/* The part of the time that operators account for, in percent. */
double profile_table_accounted(const profile_table *table);

void profile_table_print(const profile_table *table, int with_layers);
/* A JSON object. */
void profile_table_print_json(const profile_table *table, int with_layers);

#endif /* ENGINE_EXAMPLES_COMMON_PROFILE_TABLE_H_ */
