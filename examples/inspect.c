/* inspect: what a model file holds: header, hyper-parameters, tensors by layer and format, problems, memory. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cli.h"
#include "common/session_options.h"

static const char kUsage[] =
    "inspect MODEL [options]: what is in a model file, and what is wrong with it\n"
    "\n"
    "  --metadata        all metadata, arrays by their first elements\n"
    "  --tensors         every tensor with its place\n" SESSION_USAGE
    "  --json            one JSON object with everything\n"
    "\n"
    "MODEL may be any shard of a split set. The forecast is for a session with the options above "
    "and its\n"
    "whole context in use. Status: 0 = the model can be used, 1 = not opened, or problems were "
    "found,\n"
    "2 = wrong command line.\n"
    "\n"
    "Example: inspect model.gguf --ctx 8192\n"
    "         inspect model.gguf --json > model.json\n";

typedef struct inspect_options {
  const char *model_path;
  int32_t json, metadata, tensors;
  session_options session;
} inspect_options;

enum { MAX_PROBLEMS = 16, PROBLEM_BYTES = 700, MAX_FORMATS = 64, SHOWN = 6 };

typedef struct problem_list {
  char text[MAX_PROBLEMS][PROBLEM_BYTES];
  int n;
} problem_list;

typedef struct format_row {
  char format[16];
  uint64_t tensors, elements, bytes;
} format_row;

/* ---- opening: as much as the file allows ------------------------------------------------------------ */

static void add_problem(problem_list *problems, const char *format, const char *a, const char *b) {
  if (problems->n < MAX_PROBLEMS)
    snprintf(problems->text[problems->n++], PROBLEM_BYTES, format, a, b);
}

/* The whole model, or its metadata with the reason why not more; NULL: reported. */
static engine_model *open_model(const char *path, problem_list *problems) {
  engine_model *model = NULL;
  engine_model_params params = ENGINE_MODEL_PARAMS_INIT;
  engine_error error = ENGINE_ERROR_INIT;
  params.path = path;
  int32_t status = engine_model_open(&params, &model, &error);
  if (status == ENGINE_OK) return model;
  add_problem(problems, "%s: %s", engine_status_name(status), error.message);
  if (status == ENGINE_TOKENIZER) {
    params.flags = ENGINE_OPEN_PRETOKENIZER_FALLBACK;
    if (engine_model_open(&params, &model, &error) == ENGINE_OK) return model;
  }
  params.flags = ENGINE_OPEN_METADATA_ONLY;
  status = engine_model_open(&params, &model, &error);
  if (status != ENGINE_OK) cli_report("cannot open the file", status, &error);
  return model;
}

static void find_problems(const engine_model *model, const engine_model_info *info,
                          problem_list *problems) {
  char number[32];
  if (info->n_unused_tensors > 0) {
    snprintf(number, sizeof(number), "%" PRId32, info->n_unused_tensors);
    add_problem(problems, "%s tensors are not used by architecture %s", number, info->architecture);
  }
  if (info->pretokenizer_fallback)
    add_problem(problems, "the pre-tokenizer is not known: token ids are guesses%s%s", "", "");
  if (info->has_weights && info->has_tokenizer && info->n_vocab > info->n_tokens) {
    snprintf(number, sizeof(number), "%" PRId32, info->n_vocab - info->n_tokens);
    add_problem(problems, "note: the embedding has %s rows more than the vocabulary%s", number, "");
  }
  const char *text = NULL;
  uint64_t n_bytes = 0;
  if (engine_chat_template(model, &text, &n_bytes) == ENGINE_OK && !info->chat_family[0] &&
      info->has_tokenizer) {
    add_problem(problems, "the chat template cannot be rendered%s%s", "", "");
  }
}

/* ---- values ------------------------------------------------------------------------------------------ */

static void print_scalar(int32_t type, const void *data, uint64_t index) {
  const char *p = data;
  uint64_t u = 0;
  int64_t i = 0;
  float f;
  double d;
  switch (type) {
    case ENGINE_VALUE_U8: printf("%u", ((const uint8_t *)data)[index]); break;
    case ENGINE_VALUE_I8: printf("%d", ((const int8_t *)data)[index]); break;
    case ENGINE_VALUE_BOOL: printf("%s", ((const uint8_t *)data)[index] ? "true" : "false"); break;
    case ENGINE_VALUE_U16: memcpy(&u, p + 2 * index, 2), printf("%" PRIu64, u); break;
    case ENGINE_VALUE_U32: memcpy(&u, p + 4 * index, 4), printf("%" PRIu64, u); break;
    case ENGINE_VALUE_U64: memcpy(&u, p + 8 * index, 8), printf("%" PRIu64, u); break;
    case ENGINE_VALUE_I16: {
      int16_t value;
      memcpy(&value, p + 2 * index, 2), printf("%d", value);
      break;
    }
    case ENGINE_VALUE_I32: {
      int32_t value;
      memcpy(&value, p + 4 * index, 4), printf("%" PRId32, value);
      break;
    }
    case ENGINE_VALUE_I64: memcpy(&i, p + 8 * index, 8), printf("%" PRId64, i); break;
    case ENGINE_VALUE_F32:
      memcpy(&f, p + 4 * index, 4);
      if (f - f == 0)
        printf("%.9g", (double)f);
      else
        printf("null");
      break;
    case ENGINE_VALUE_F64:
      memcpy(&d, p + 8 * index, 8);
      if (d - d == 0)
        printf("%.17g", d);
      else
        printf("null");
      break;
    default: printf("null");
  }
}

/* A value as JSON; arrays as their first elements where `whole` is 0. */
static void print_value(const engine_metadata *entry) {
  if (entry->type == ENGINE_VALUE_STRING) {
    cli_print_json_text(entry->data, entry->data_bytes);
    return;
  }
  if (entry->type != ENGINE_VALUE_ARRAY) {
    print_scalar(entry->type, entry->data, 0);
    return;
  }
  printf("[");
  for (uint64_t i = 0; i < entry->count && i < SHOWN; ++i) {
    const char *text = NULL;
    uint64_t n_bytes = 0;
    if (i > 0) printf(", ");
    if (entry->element_type != ENGINE_VALUE_STRING) {
      print_scalar(entry->element_type, entry->data, i);
    } else if (engine_metadata_string(entry, i, &text, &n_bytes) == ENGINE_OK) {
      cli_print_json_text(text, n_bytes);
    }
  }
  printf("]");
}

static void print_metadata(const engine_model *model, int json) {
  const uint64_t n = engine_model_metadata_count(model);
  for (uint64_t i = 0; i < n; ++i) {
    engine_metadata entry = ENGINE_METADATA_INIT;
    if (engine_model_metadata_at(model, i, &entry) != ENGINE_OK) continue;
    if (json) {
      printf("%s\n  {\"key\": ", i ? "," : "");
      cli_print_json_text(entry.key, entry.key_bytes);
      printf(", \"count\": %" PRIu64 ", \"value\": ", entry.count);
      print_value(&entry);
      printf("}");
    } else {
      printf("  %-44.*s ", (int)entry.key_bytes, entry.key);
      if (entry.type == ENGINE_VALUE_STRING && entry.data_bytes > 60) {
        printf("%" PRIu64 " bytes of text", entry.data_bytes);
      } else {
        print_value(&entry);
        if (entry.type == ENGINE_VALUE_ARRAY) printf(" of %" PRIu64, entry.count);
      }
      putchar('\n');
    }
  }
}

/* ---- tensors ----------------------------------------------------------------------------------------- */

static int64_t layer_of(const engine_tensor_info *t) {
  if (t->name_bytes < 5 || memcmp(t->name, "blk.", 4) != 0) return -1;
  int64_t layer = 0;
  uint64_t i = 4;
  for (; i < t->name_bytes && t->name[i] >= '0' && t->name[i] <= '9' && layer < 100000; ++i)
    layer = 10 * layer + (t->name[i] - '0');
  return i > 4 ? layer : -1;
}

static uint64_t elements_of(const engine_tensor_info *t) {
  return t->dims[0] * t->dims[1] * t->dims[2] * t->dims[3];
}

static void add_format(format_row *rows, int *n, const engine_tensor_info *t) {
  char name[16];
  int i = 0;
  if (t->format[0])
    snprintf(name, sizeof(name), "%s", t->format);
  else
    snprintf(name, sizeof(name), "type %" PRIu32, t->type);
  while (i < *n && strcmp(rows[i].format, name) != 0) ++i;
  if (i == MAX_FORMATS) return;
  if (i == *n) {
    memset(&rows[i], 0, sizeof(rows[i]));
    memcpy(rows[i].format, name, sizeof(name));
    ++*n;
  }
  rows[i].tensors += 1;
  rows[i].elements += elements_of(t);
  rows[i].bytes += t->n_bytes;
}

/* Formats of all tensors, or of one layer's (-1: those outside of layers). */
static int formats_of(const engine_model *model, int64_t layer, int all, format_row *rows) {
  int n = 0;
  const uint64_t n_tensors = engine_model_tensor_count(model);
  for (uint64_t i = 0; i < n_tensors; ++i) {
    engine_tensor_info t = ENGINE_TENSOR_INFO_INIT;
    if (engine_model_tensor_at(model, i, &t) != ENGINE_OK) continue;
    if (all || layer_of(&t) == layer) add_format(rows, &n, &t);
  }
  return n;
}

static int64_t last_layer(const engine_model *model) {
  int64_t last = -1;
  const uint64_t n = engine_model_tensor_count(model);
  for (uint64_t i = 0; i < n; ++i) {
    engine_tensor_info t = ENGINE_TENSOR_INFO_INIT;
    if (engine_model_tensor_at(model, i, &t) == ENGINE_OK && layer_of(&t) > last)
      last = layer_of(&t);
  }
  return last;
}

static void print_formats_json(const format_row *rows, int n) {
  printf("[");
  for (int i = 0; i < n; ++i) {
    printf("%s{\"format\": \"%s\", \"tensors\": %" PRIu64 ", \"elements\": %" PRIu64
           ", \"bytes\": %" PRIu64 "}",
           i ? ", " : "", rows[i].format, rows[i].tensors, rows[i].elements, rows[i].bytes);
  }
  printf("]");
}

static void print_layers(const engine_model *model, int json) {
  format_row rows[MAX_FORMATS];
  const int64_t last = last_layer(model);
  for (int64_t layer = -1; layer <= last; ++layer) {
    const int n = formats_of(model, layer, 0, rows);
    if (json) {
      printf("%s\n  {\"layer\": %" PRId64 ", \"formats\": ", layer >= 0 ? "," : "", layer);
      print_formats_json(rows, n);
      printf("}");
      continue;
    }
    uint64_t bytes = 0;
    for (int i = 0; i < n; ++i) bytes += rows[i].bytes;
    if (layer < 0)
      printf("  %-8s", "outside");
    else
      printf("  %-8" PRId64, layer);
    printf("%10.2f MiB ", (double)bytes / (1 << 20));
    for (int i = 0; i < n; ++i) printf(" %s x%" PRIu64, rows[i].format, rows[i].tensors);
    putchar('\n');
  }
}

static void print_tensors(const engine_model *model, int json) {
  const uint64_t n = engine_model_tensor_count(model);
  for (uint64_t i = 0; i < n; ++i) {
    engine_tensor_info t = ENGINE_TENSOR_INFO_INIT;
    if (engine_model_tensor_at(model, i, &t) != ENGINE_OK) continue;
    if (json) {
      printf("%s\n  {\"name\": ", i ? "," : "");
      cli_print_json_text(t.name, t.name_bytes);
      printf(", \"dims\": [");
      for (uint32_t d = 0; d < t.n_dims && d < 4; ++d)
        printf("%s%" PRIu64, d ? ", " : "", t.dims[d]);
      printf("], \"type\": %" PRIu32 ", \"format\": \"%s\", \"offset\": %" PRIu64
             ", \"bytes\": %" PRIu64 "}",
             t.type, t.format, t.file_offset, t.n_bytes);
    } else {
      char shape[96] = "";
      for (uint32_t d = 0; d < t.n_dims && d < 4; ++d) {
        const size_t used = strlen(shape);
        snprintf(shape + used, sizeof(shape) - used, "%s%" PRIu64, d ? " x " : "", t.dims[d]);
      }
      printf("  %-40.*s %-24s %-8s %12" PRIu64 " at %" PRIu64 "\n", (int)t.name_bytes, t.name,
             shape, t.format[0] ? t.format : "unknown", t.n_bytes, t.file_offset);
    }
  }
}

/* ---- the page and the object -------------------------------------------------------------------------- */

typedef struct info_row {
  const char *name;
  int64_t value;
} info_row;

static int info_rows(const engine_model_info *info, info_row *rows) {
  const info_row all[] = {
      {"n_layer", info->n_layer},
      {"n_embd", info->n_embd},
      {"n_head", info->n_head},
      {"n_head_kv", info->n_head_kv},
      {"head_dim_k", info->head_dim_k},
      {"head_dim_v", info->head_dim_v},
      {"n_ff", info->n_ff},
      {"n_vocab", info->n_vocab},
      {"n_tokens", info->n_tokens},
      {"n_ctx_train", info->n_ctx_train},
      {"sliding_window", info->sliding_window},
      {"bos_id", info->bos_id},
      {"eos_id", info->eos_id},
      {"adds_bos", info->adds_bos},
      {"head_is_tied", info->head_is_tied},
  };
  memcpy(rows, all, sizeof(all));
  return (int)(sizeof(all) / sizeof(all[0]));
}

enum { MAX_INFO_ROWS = 32 };

static void print_json(const engine_model *model, const inspect_options *o,
                       const engine_model_info *info, const engine_memory *memory,
                       const problem_list *problems) {
  info_row rows[MAX_INFO_ROWS];
  format_row formats[MAX_FORMATS];
  const int n = info_rows(info, rows);
  printf("{\"schema\": \"engine.inspect/1\",\n\"file\": {\"path\": ");
  cli_print_json_text(o->model_path, strlen(o->model_path));
  printf(", \"bytes\": %" PRIu64 ", \"metadata\": %" PRIu64 ", \"tensors\": %" PRIu64
         ", \"parameters\": %" PRIu64 "},\n\"architecture\": ",
         info->file_bytes, engine_model_metadata_count(model), engine_model_tensor_count(model),
         info->n_params);
  cli_print_json_text(info->architecture, strlen(info->architecture));
  printf(", \"name\": ");
  cli_print_json_text(info->name, strlen(info->name));
  printf(
      ",\n\"tokenizer\": \"%s\", \"pretokenizer\": \"%s\", \"chat_family\": "
      "\"%s\",\n\"hyper_parameters\": {",
      info->tokenizer, info->pretokenizer, info->chat_family);
  for (int i = 0; i < n; ++i)
    printf("%s\"%s\": %" PRId64, i ? ", " : "", rows[i].name, rows[i].value);
  printf("},\n\"formats\": ");
  print_formats_json(formats, formats_of(model, 0, 1, formats));
  printf(",\n\"layers\": [");
  print_layers(model, 1);
  printf("],\n\"tensors\": [");
  print_tensors(model, 1);
  printf("],\n\"metadata\": [");
  print_metadata(model, 1);
  printf("],\n\"memory\": ");
  if (memory) {
    printf("{\"packed_bytes\": %" PRIu64 ", \"packing_bytes\": %" PRIu64
           ", \"stored_bytes\": %" PRIu64 ", \"kv_bytes\": %" PRIu64 ", \"scratch_bytes\": %" PRIu64
           ", \"peak_bytes\": %" PRIu64 ", \"bytes_per_token\": %" PRIu64 "}",
           memory->packed_bytes, memory->packing_bytes, memory->stored_bytes, memory->kv_bytes,
           memory->scratch_bytes, memory->peak_bytes, info->bytes_per_token);
  } else {
    printf("null");
  }
  printf(",\n\"problems\": [");
  for (int i = 0; i < problems->n; ++i) {
    if (i) printf(", ");
    cli_print_json_text(problems->text[i], strlen(problems->text[i]));
  }
  printf("]}\n");
}

static void print_mib(const char *name, uint64_t bytes) {
  printf("  %-22s %10.2f MiB\n", name, (double)bytes / (1 << 20));
}

static void print_page(const engine_model *model, const inspect_options *o,
                       const engine_model_info *info, const engine_memory *memory,
                       const problem_list *problems) {
  info_row rows[MAX_INFO_ROWS];
  format_row formats[MAX_FORMATS];
  const int n = info_rows(info, rows);
  printf("%s\n  %-22s %s, %s\n  %-22s %.2f MiB, %" PRIu64 " metadata entries, %" PRIu64
         " tensors, %.1f M weights\n",
         o->model_path, "model", info->architecture[0] ? info->architecture : "no architecture",
         info->name[0] ? info->name : "no name", "file", (double)info->file_bytes / (1 << 20),
         engine_model_metadata_count(model), engine_model_tensor_count(model),
         (double)info->n_params / 1e6);
  if (info->has_tokenizer)
    printf("  %-22s %s%s%s, chat: %s\n", "tokenizer", info->tokenizer,
           info->pretokenizer[0] ? " / " : "", info->pretokenizer,
           info->chat_family[0] ? info->chat_family : "none");
  if (info->has_weights) {
    printf("\nhyper-parameters\n");
    for (int i = 0; i < n; ++i) printf("  %-22s %10" PRId64 "\n", rows[i].name, rows[i].value);
  }
  printf("\nformats\n");
  const int n_formats = formats_of(model, 0, 1, formats);
  for (int i = 0; i < n_formats; ++i) {
    printf("  %-8s %5" PRIu64 " tensors %12.2f M weights %10.2f MiB\n", formats[i].format,
           formats[i].tensors, (double)formats[i].elements / 1e6,
           (double)formats[i].bytes / (1 << 20));
  }
  printf("\nlayers\n");
  print_layers(model, 0);
  if (o->tensors) {
    printf("\ntensors\n");
    print_tensors(model, 0);
  }
  if (o->metadata) {
    printf("\nmetadata\n");
    print_metadata(model, 0);
  }
  if (memory) {
    printf("\nmemory of a session\n");
    print_mib("packed weights", memory->packed_bytes);
    print_mib("while packing", memory->packing_bytes);
    print_mib("keys and values", memory->kv_bytes);
    print_mib("scratch", memory->scratch_bytes);
    print_mib("peak", memory->peak_bytes);
    print_mib("read from the file", memory->stored_bytes);
    print_mib("read for each token", info->bytes_per_token);
  }
  printf("\nproblems\n");
  for (int i = 0; i < problems->n; ++i) printf("  %s\n", problems->text[i]);
  if (problems->n == 0) printf("  none\n");
}

int main(int argc, char **argv) {
  inspect_options o = {NULL, 0, 0, 0, SESSION_OPTIONS_INIT};
  const cli_option options[] = {
      SESSION_OPTION_ROWS(o.session),
      {"--json", NULL, CLI_FLAG, &o.json, NULL},
      {"--metadata", NULL, CLI_FLAG, &o.metadata, NULL},
      {"--tensors", NULL, CLI_FLAG, &o.tensors, NULL},
  };
  cli_parse(argc, argv, kUsage, options, sizeof(options) / sizeof(options[0]), &o.model_path);
  session_options_read(&o.session);
  static problem_list problems;
  engine_model *model = open_model(o.model_path, &problems);
  if (!model) return CLI_FAILED;
  engine_model_info info = ENGINE_MODEL_INFO_INIT;
  engine_memory memory = ENGINE_MEMORY_INIT;
  engine_error error = ENGINE_ERROR_INIT;
  engine_model_info_get(model, &info);
  int has_memory = 0;
  if (info.has_weights) {
    const int32_t status = engine_memory_forecast(model, &o.session.params, &memory, &error);
    has_memory = status == ENGINE_OK;
    if (!has_memory)
      add_problem(&problems, "no session: %s: %s", engine_status_name(status), error.message);
  }
  const int n_fatal = problems.n;
  find_problems(model, &info, &problems);
  (o.json ? print_json : print_page)(model, &o, &info, has_memory ? &memory : NULL, &problems);
  engine_model_close(model);
  return n_fatal ? CLI_FAILED : CLI_OK;
}
