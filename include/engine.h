/* engine.h: the public contract of libengine, and its manual.
 *
 * libengine opens a quantised LLM file (GGUF) and decodes it inside your process.
 *
 * THE MAP, in the order a newcomer needs it
 *   open      engine_model_open, engine_model_info_get, engine_model_metadata_*, engine_model_tensor_at
 *   tokenize  engine_tokenize, engine_detokenize, engine_text_decoder_*, engine_chat_*
 *   session   engine_session_create
 *   decode    engine_session_decode, engine_session_position, engine_session_truncate,
 *             engine_batch_decode, engine_session_decode_speculative, engine_session_submit, engine_completion_*
 *   share     engine_session_fork, engine_model_prefix_cache, engine_session_take_prefix
 *   keep      engine_session_save, engine_session_restore, engine_session_kv_export, engine_session_kv_import
 *   sample    engine_sampler_*
 *   hooks     engine_hook_register, engine_hook_stats_get, engine_hook_site_at, engine_unembed
 *   plan      engine_plan_create, engine_plan_json, engine_plan_verify, engine_plan_diff
 *   look      engine_session_stats_get, engine_session_kernel_at, engine_session_fusion_at,
 *             engine_session_profile_at, engine_model_target_at
 *
 * THE VOCABULARY
 *   shapes     V n_vocab, E n_embd, T positions; every array is dense and row-major.
 *   ownership  What you pass in is borrowed until the call returns, unless it says otherwise. What you get
 *              is copied into your memory, or is const with a stated lifetime.
 *   strings    UTF-8. Inputs given with a length may hold NUL; outputs of unknown length use the two-call
 *              form: capacity in, size out, and ENGINE_BUFFER_TOO_SMALL with the size that is needed.
 *   threads    "any" = from any thread at any time; "serial per X" = one call at a time on the same X.
 *              A model is immutable after opening: all calls that take `const engine_model *` are "any".
 *   errors     Every failing call returns a code > 0 and, where an engine_error is given (may be NULL),
 *              fills it. "same" = the handle is as before the call; "undone" = the same, after work was
 *              rolled back.
 *   structs    Begin with struct_size; fill them with their ENGINE_..._INIT. They grow only at the end, and
 *              zero in a field that you do not know means the behaviour that you know.
 *
 * The library never exits, prints, raises signals, reads the environment, or keeps process-global state.
 *
 * EXAMPLE
 *   engine_model_params mp = ENGINE_MODEL_PARAMS_INIT;
 *   engine_model *model; engine_error err = ENGINE_ERROR_INIT;
 *   mp.path = "model.gguf";
 *   if (engine_model_open(&mp, &model, &err)) { puts(err.message); return 1; }
 */
#ifndef ENGINE_H_
#define ENGINE_H_

#include <stdint.h>

#if defined(_WIN32)
#if defined(ENGINE_BUILD_SHARED)
#define ENGINE_API __declspec(dllexport)
#else
#define ENGINE_API
#endif
#elif defined(__GNUC__)
#define ENGINE_API __attribute__((visibility("default")))
#else
#define ENGINE_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- version and status --------------------------------------------------------------------------- */

/* Major in the upper 16 bits, minor in the lower. Same major = compatible. */
#define ENGINE_API_VERSION 0x00000001u

/* Status codes: 0 is success; families are spaced by tens; numbers are never reused. */
enum {
  ENGINE_OK = 0,
  ENGINE_ARGUMENT = 10,         /* a parameter is out of its stated range */
  ENGINE_TOO_NEW = 11,          /* a struct or flag needs a newer library */
  ENGINE_BUFFER_TOO_SMALL = 12, /* the needed size was written */
  ENGINE_FILE_OPEN = 20,        /* the operating system refused to open, map or read */
  ENGINE_FILE_FORMAT = 21,      /* malformed or hostile content */
  ENGINE_FILE_UNSUPPORTED = 22, /* well-formed, but a version or type this library does not have */
  ENGINE_CORRUPT = 23,          /* a saved state was cut or changed since it was written */
  ENGINE_MODEL_ARCHITECTURE = 30, /* unknown architecture */
  ENGINE_MODEL_KEY = 31,          /* a metadata key is missing, wrongly typed or out of range */
  ENGINE_MODEL_TENSOR = 32,       /* a tensor is missing, or of a wrong type or shape */
  ENGINE_TOKENIZER = 33,          /* the vocabulary cannot be used */
  ENGINE_CHAT_TEMPLATE = 34,      /* the template is absent or not recognised */
  ENGINE_MODEL_MISMATCH = 35,     /* a saved state belongs to another model */
  ENGINE_PLAN = 40,               /* no kernel, or a forced choice that cannot take effect */
  ENGINE_MEMORY = 50,             /* an allocation failed */
  ENGINE_DEVICE = 60,             /* the CPU target or device is not available here */
  ENGINE_DEVICE_LOST = 61,
  ENGINE_STATE = 70, /* not possible in this state of the handle */
  ENGINE_CONTEXT_FULL = 71,
  ENGINE_NONFINITE = 72, /* a NaN or an infinity appeared in the forward pass */
  ENGINE_CANCELLED = 73,
  ENGINE_CANNOT_REWIND = 74,
  ENGINE_KV_MISMATCH = 75, /* a saved state has keys and values of another type */
  ENGINE_HOOK_FAILED = 80,
  ENGINE_INTERNAL = 90 /* a fault of the library; please report it */
};

/* Where a failing call says what went wrong. Caller-owned; NULL wherever it is not wanted. */
typedef struct engine_error {
  uint32_t struct_size; /* in  */
  int32_t code;         /* out: the returned status */
  uint64_t offset;      /* out: file offset in bytes, UINT64_MAX = none */
  char name[128];       /* out: metadata key or tensor name, "" = none */
  char message[512];    /* out: one sentence */
} engine_error;
#define ENGINE_ERROR_INIT                                     \
  {                                                           \
    (uint32_t)sizeof(engine_error), 0, UINT64_MAX, {0}, { 0 } \
  }

/* engine_api_version: the version of the library that is running.
 *
 * Effect   Returns ENGINE_API_VERSION as the library was built; compare its major with the header's.
 * Threads  any
 * Errors   —
 * Since    0.1
 */
ENGINE_API uint32_t engine_api_version(void);

/* engine_version_string: a text for people, such as "engine 0.1.0".
 *
 * Effect   Returns a constant that lives as long as the library.
 * Threads  any
 * Errors   —
 * Since    0.1
 */
ENGINE_API const char *engine_version_string(void);

/* engine_status_name: the name of a status code, such as "FILE_FORMAT".
 *
 *   status   in   a code
 *
 * Effect   Returns a constant that lives as long as the library; "UNKNOWN" for a number not in the list.
 * Threads  any
 * Errors   —
 * Since    0.1
 */
ENGINE_API const char *engine_status_name(int32_t status);

/* ---- host services -------------------------------------------------------------------------------- */

enum { ENGINE_LOG_ERROR = 1, ENGINE_LOG_WARNING = 2, ENGINE_LOG_INFO = 3 };
enum { ENGINE_PHASE_OPEN = 1, ENGINE_PHASE_PREFILL = 2, ENGINE_PHASE_REPACK = 3 };

/* One unit of parallel work; the host calls it once for each index in [0, n_tasks), in any order and from
 * any threads, and returns when all have returned. */
typedef void (*engine_task)(void *task_data, uint32_t index);

/* Services of the host. Every member may be NULL: then the library's own is used (no log, aligned heap,
 * own threads, monotonic clock, no progress). Copied at engine_model_open; `user` must outlive the model.
 * Callbacks may come from any thread that is inside a call of this library, and must not call it back.
 * progress: within a call `done` never falls. PREFILL (a decode of several tokens) counts tokens and comes at least
 * every 100 ms, also when nothing was finished, and at the end of every chunk (mode REFERENCE: only then). */
typedef struct engine_host {
  uint32_t struct_size;
  uint32_t
      runner_threads; /* how many tasks parallel_for runs at once; 0 = 1. Used with parallel_for only */
  void *user;         /* first argument of every callback */
  void (*log)(void *user, int32_t level, const char *text, uint64_t n_bytes);
  void *(*allocate)(void *user, uint64_t n_bytes, uint64_t alignment); /* NULL = out of memory */
  void (*release)(void *user, void *block, uint64_t n_bytes, uint64_t alignment);
  void (*parallel_for)(void *user, uint32_t n_tasks, engine_task task, void *task_data);
  uint64_t (*clock_ns)(void *user);
  void (*progress)(void *user, int32_t phase, uint64_t done, uint64_t total);
} engine_host;
#define ENGINE_HOST_INIT \
  { (uint32_t)sizeof(engine_host), 0, 0, 0, 0, 0, 0, 0, 0 }

/* ---- model: open, close, ask ---------------------------------------------------------------------- */

typedef struct engine_model engine_model; /* immutable weights, vocabulary, metadata */

enum {
  ENGINE_OPEN_VOCAB_ONLY = 1,    /* no weights needed or read: tokenize works, sessions do not */
  ENGINE_OPEN_METADATA_ONLY = 2, /* metadata and tensor table only, unknown types accepted */
  ENGINE_OPEN_PRETOKENIZER_FALLBACK = 4 /* accept an unknown pre-tokenizer; see engine_model_info */
};

/* A source is exactly one of: path; fd (>= 0) with offset and length; data with length; read with length; paths.
 * A path may name any shard of a split set, PREFIX-00002-of-00003.gguf: the whole set is opened. Only path, paths
 * and an fd with an offset that is a multiple of 4 are mapped; data is used in place where it begins at a multiple
 * of 4. All else is copied into memory of the host. */
typedef struct engine_model_params {
  uint32_t struct_size;
  uint32_t flags;   /* ENGINE_OPEN_* */
  const char *path; /* NUL-terminated UTF-8 */
  const void *data; /* the whole file; borrowed until engine_model_close or release_data */
  uint64_t length;  /* bytes of data; of fd, 0 = up to its end */
  uint64_t offset;  /* of fd: first byte of the file inside it */
  /* Called once: at close, or when opening fails after this struct was read. */
  void (*release_data)(void *release_user, const void *data, uint64_t length);
  void *release_user;
  const engine_host *host; /* NULL = the library's own services */
  int32_t fd;              /* -1 = none; duplicated, yours to close */
  uint32_t reserved;
  /* Copies n_bytes from byte `offset` of the file to `out` and returns 0; anything else fails the opening with
   * FILE_OPEN. Called inside engine_model_open only, front to back. Its file has `length` bytes. */
  int32_t (*read)(void *read_user, uint64_t offset, void *out, uint64_t n_bytes);
  void *read_user;
  const char *const *paths; /* all shards of a set, in any order, whatever they are called */
  uint64_t n_paths;
} engine_model_params;
#define ENGINE_MODEL_PARAMS_INIT \
  { (uint32_t)sizeof(engine_model_params), 0, 0, 0, 0, 0, 0, 0, 0, -1, 0, 0, 0, 0, 0 }

/* engine_model_open: map and validate a model file.
 *
 *   params   in   struct      source, flags, host services
 *   model    out  handle      yours to close; NULL on failure
 *   error    out  struct      may be NULL
 *
 * Effect   Weights stay in the mapped file. Nothing is decoded or copied but small vectors and the vocabulary.
 * Threads  any
 * Errors   ARGUMENT, TOO_NEW, FILE_OPEN, FILE_FORMAT, FILE_UNSUPPORTED, MODEL_ARCHITECTURE, MODEL_KEY,
 *          MODEL_TENSOR, TOKENIZER, MEMORY; nothing is leaked
 * Since    0.1
 */
ENGINE_API int32_t engine_model_open(const engine_model_params *params, engine_model **model,
                                     engine_error *error);

/* engine_model_close: release a model.
 *
 *   model    in   handle      NULL is allowed; all its sessions must be destroyed before
 *
 * Effect   Unmaps the file, calls release_data.
 * Threads  serial per model, and no other call on it afterwards
 * Errors   —
 * Since    0.1
 */
ENGINE_API void engine_model_close(engine_model *model);

typedef struct engine_model_info {
  uint32_t struct_size; /* in */
  int32_t n_vocab;      /* ids that logits cover: rows of the embedding */
  int32_t n_tokens;     /* ids that the vocabulary names; n_vocab may be larger (padding) */
  int32_t n_embd;
  int32_t n_layer;
  int32_t n_head;
  int32_t n_head_kv; /* the most of any layer */
  int32_t head_dim_k;
  int32_t head_dim_v;
  int32_t n_ff; /* of the first layer */
  int32_t n_ctx_train;
  int32_t sliding_window; /* 0 = none */
  int32_t bos_id;         /* -1 = none */
  int32_t eos_id;         /* -1 = none */
  int32_t adds_bos;       /* 1 = the model's default is to begin with BOS */
  int32_t head_is_tied;   /* 1 = the head is the embedding */
  int32_t has_weights;    /* 0 after VOCAB_ONLY or METADATA_ONLY */
  int32_t has_tokenizer;
  int32_t pretokenizer_fallback; /* 1 = the file's pre-tokenizer is unknown and `default` is used */
  int32_t n_unused_tensors;      /* tensors in the file that the architecture does not use */
  uint64_t n_params;             /* weights in the file */
  uint64_t file_bytes;
  uint64_t bytes_per_token; /* weight bytes that one decoded token reads */
  char architecture[32];
  char name[96];
  char tokenizer[32];    /* "llama", "gpt2" */
  char pretokenizer[32]; /* in force; "" where the tokenizer has none */
  char chat_family
      [32]; /* what the file's template looks like, "other" for none of the known; "" where it is
                            absent or cannot be rendered */
} engine_model_info;
#define ENGINE_MODEL_INFO_INIT                                                                    \
  {                                                                                               \
    (uint32_t)sizeof(engine_model_info), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, \
        0, 0, 0, {0}, {0}, {0}, {0}, {                                                            \
      0                                                                                           \
    }                                                                                             \
  }

/* engine_model_info_get: dimensions and names of a model.
 *
 *   model    in   handle
 *   info     out  struct      struct_size set by the caller; at most that much is written
 *
 * Effect   Fields that were not read (VOCAB_ONLY, METADATA_ONLY) are 0 or "".
 * Threads  any
 * Errors   ARGUMENT
 * Since    0.1
 */
ENGINE_API int32_t engine_model_info_get(const engine_model *model, engine_model_info *info);

/* Types of metadata values: the numbers of the GGUF specification. */
enum {
  ENGINE_VALUE_U8 = 0,
  ENGINE_VALUE_I8 = 1,
  ENGINE_VALUE_U16 = 2,
  ENGINE_VALUE_I16 = 3,
  ENGINE_VALUE_U32 = 4,
  ENGINE_VALUE_I32 = 5,
  ENGINE_VALUE_F32 = 6,
  ENGINE_VALUE_BOOL = 7,
  ENGINE_VALUE_STRING = 8,
  ENGINE_VALUE_ARRAY = 9,
  ENGINE_VALUE_U64 = 10,
  ENGINE_VALUE_I64 = 11,
  ENGINE_VALUE_F64 = 12
};

/* One metadata entry. Pointers are const and live until engine_model_close. */
typedef struct engine_metadata {
  uint32_t struct_size;
  int32_t type;         /* ENGINE_VALUE_* */
  int32_t element_type; /* of an array, else = type */
  uint32_t reserved;
  const char *key; /* not NUL-terminated: key_bytes long */
  uint64_t key_bytes;
  uint64_t count;      /* elements; 1 for a scalar */
  const void *data;    /* scalar or packed array, little-endian, unaligned; string: its bytes */
  uint64_t data_bytes; /* array of strings: use engine_metadata_string */
} engine_metadata;
#define ENGINE_METADATA_INIT \
  { (uint32_t)sizeof(engine_metadata), 0, 0, 0, 0, 0, 0, 0, 0 }

/* engine_model_metadata_count: how many metadata entries the file has.
 *
 *   model    in   handle
 *
 * Effect   Returns the count; 0 for NULL.
 * Threads  any
 * Errors   —
 * Since    0.1
 */
ENGINE_API uint64_t engine_model_metadata_count(const engine_model *model);

/* engine_model_metadata_at: entry by index, in file order.
 *
 *   model    in   handle
 *   index    in   0 .. count-1
 *   entry    out  struct      struct_size set by the caller
 *
 * Effect   —
 * Threads  any
 * Errors   ARGUMENT
 * Since    0.1
 */
ENGINE_API int32_t engine_model_metadata_at(const engine_model *model, uint64_t index,
                                            engine_metadata *entry);

/* engine_model_metadata_find: entry by key.
 *
 *   model    in   handle
 *   key      in   NUL-terminated
 *   entry    out  struct      struct_size set by the caller
 *
 * Effect   —
 * Threads  any
 * Errors   ARGUMENT (also: no such key)
 * Since    0.1
 */
ENGINE_API int32_t engine_model_metadata_find(const engine_model *model, const char *key,
                                              engine_metadata *entry);

/* engine_metadata_string: one string of an array of strings.
 *
 *   entry    in   struct      from engine_model_metadata_at or _find
 *   index    in   0 .. entry->count-1
 *   text     out  pointer     const, lives until engine_model_close; not NUL-terminated
 *   n_bytes  out  length
 *
 * Effect   Walks the array: O(index).
 * Threads  any
 * Errors   ARGUMENT
 * Since    0.1
 */
ENGINE_API int32_t engine_metadata_string(const engine_metadata *entry, uint64_t index,
                                          const char **text, uint64_t *n_bytes);

typedef struct engine_tensor_info {
  uint32_t struct_size;
  uint32_t n_dims;
  uint64_t dims[4]; /* dims[0] is contiguous; unused = 1 */
  uint64_t n_bytes;
  uint64_t
      file_offset;  /* absolute; in a set: the shards one after the other, each from a page on */
  const char *name; /* name_bytes long, const, lives until engine_model_close */
  uint64_t name_bytes;
  uint32_t type;   /* ggml type id */
  char format[12]; /* "Q4_K"; "" for an unknown type */
} engine_tensor_info;
#define ENGINE_TENSOR_INFO_INIT                                        \
  {                                                                    \
    (uint32_t)sizeof(engine_tensor_info), 0, {0}, 0, 0, 0, 0, 0, { 0 } \
  }

/* engine_model_tensor_count: how many tensors the file has.
 *
 *   model    in   handle
 *
 * Effect   Returns the count; 0 for NULL.
 * Threads  any
 * Errors   —
 * Since    0.1
 */
ENGINE_API uint64_t engine_model_tensor_count(const engine_model *model);

/* engine_model_tensor_at: tensor by index, in file order.
 *
 *   model    in   handle
 *   index    in   0 .. count-1
 *   info     out  struct      struct_size set by the caller
 *
 * Effect   —
 * Threads  any
 * Errors   ARGUMENT
 * Since    0.1
 */
ENGINE_API int32_t engine_model_tensor_at(const engine_model *model, uint64_t index,
                                          engine_tensor_info *info);

/* engine_model_target_at: name of a CPU target that this machine can run, best first.
 *
 *   model    in   handle
 *   index    in   0, 1, ...
 *
 * Effect   Returns a constant ("amx", "avx3_spr", "avx3_dl", "avx3", "avx2", "neon", ..., last "scalar"), NULL past the
 *          end. "amx" stands for a CPU with int8 tiles in a process that may use them, which Linux grants on request:
 *          the first model asks for it (arch_prctl), once for the process.
 *          All give the same logits, bit for bit.
 * Threads  any
 * Errors   —
 * Since    0.1
 */
ENGINE_API const char *engine_model_target_at(const engine_model *model, uint32_t index);

/* engine_pretokenizer_at: a pre-tokenizer name that files use, by index.
 *
 *   index      in   0, 1, ...
 *   supported  out  1 = its rule is known; 0 = it is refused unless ENGINE_OPEN_PRETOKENIZER_FALLBACK is set, as
 *                   is every name that is not listed. May be NULL
 *
 * Effect   Returns a constant, NULL past the end. Supported names come first.
 * Threads  any
 * Errors   —
 * Since    0.1
 */
ENGINE_API const char *engine_pretokenizer_at(uint32_t index, int32_t *supported);

/* ---- text ----------------------------------------------------------------------------------------- */

enum { ENGINE_BOS_DEFAULT = 0, ENGINE_BOS_NONE = 1, ENGINE_BOS_FORCE = 2 };
/* Which special tokens are recognised inside text. Text from users should be PLAIN. */
enum { ENGINE_SPECIAL_PLAIN = 0, ENGINE_SPECIAL_USER_DEFINED = 1, ENGINE_SPECIAL_ALL = 2 };
enum { /* result flags of engine_tokenize */
       ENGINE_TOKENIZE_BOS_ADDED = 1,
       ENGINE_TOKENIZE_EOS_ADDED = 2,
       ENGINE_TOKENIZE_TEXT_HAD_BOS = 4
};

/* engine_tokenize: text to ids.
 *
 *   model     in   handle
 *   text      in   char[n_bytes]    any bytes, also invalid UTF-8 and NUL; a byte that a byte-level vocabulary
 *                                   has no token for (SmolLM2: 0x04 and some more) gives TOKENIZER
 *   n_bytes   in   bytes
 *   bos       in   ENGINE_BOS_*     DEFAULT adds BOS where the model wants one and the text has none yet
 *   special   in   ENGINE_SPECIAL_*
 *   ids       out  int32_t[capacity]
 *   capacity  in   count            0 to ask for the size
 *   n_ids     out  count            written, or needed when BUFFER_TOO_SMALL
 *   flags     out  ENGINE_TOKENIZE_*  may be NULL
 *   error     out  struct           may be NULL
 *
 * Effect   Nothing is written to ids when they do not fit.
 * Threads  any
 * Errors   ARGUMENT, BUFFER_TOO_SMALL, STATE (no vocabulary), TOKENIZER, MEMORY (same)
 * Since    0.1
 */
ENGINE_API int32_t engine_tokenize(const engine_model *model, const char *text, uint64_t n_bytes,
                                   int32_t bos, int32_t special, int32_t *ids, uint64_t capacity,
                                   uint64_t *n_ids, uint32_t *flags, engine_error *error);

/* engine_token_bytes: the raw bytes of one token.
 *
 *   model     in   handle
 *   id        in   0 .. n_vocab-1
 *   special   in   0 = control tokens give nothing, 1 = they give their text
 *   bytes     out  char[capacity]   not NUL-terminated, may be part of a UTF-8 character
 *   capacity  in   bytes            0 to ask for the size
 *   n_bytes   out  bytes            written, or needed when BUFFER_TOO_SMALL
 *
 * Effect   Padding ids beyond the vocabulary give nothing.
 * Threads  any
 * Errors   ARGUMENT, BUFFER_TOO_SMALL, STATE (no vocabulary) (same)
 * Since    0.1
 */
ENGINE_API int32_t engine_token_bytes(const engine_model *model, int32_t id, int32_t special,
                                      char *bytes, uint64_t capacity, uint64_t *n_bytes);

/* engine_detokenize: ids to text.
 *
 *   model     in   handle
 *   ids       in   int32_t[n_ids]
 *   n_ids     in   count
 *   special   in   0 = control tokens give nothing, 1 = they give their text
 *   text      out  char[capacity]   bytes as the tokens hold them; not NUL-terminated
 *   capacity  in   bytes            0 to ask for the size
 *   n_bytes   out  bytes            written, or needed when BUFFER_TOO_SMALL
 *   error     out  struct           may be NULL
 *
 * Effect   The inverse of engine_tokenize: where the vocabulary puts a space before the text, it is removed.
 * Threads  any
 * Errors   ARGUMENT (also an id out of range), BUFFER_TOO_SMALL, STATE (same)
 * Since    0.1
 */
ENGINE_API int32_t engine_detokenize(const engine_model *model, const int32_t *ids, uint64_t n_ids,
                                     int32_t special, char *text, uint64_t capacity,
                                     uint64_t *n_bytes, engine_error *error);

typedef struct engine_text_decoder
    engine_text_decoder; /* turns a stream of ids into whole characters */

/* engine_text_decoder_create: start a stream of text.
 *
 *   model     in   handle      must outlive the decoder
 *   special   in   0 = control tokens give nothing, 1 = they give their text
 *   at_start  in   1 = the stream begins a text (a prefix space is removed), 0 = it continues one
 *   decoder   out  handle      yours to destroy
 *
 * Effect   —
 * Threads  any
 * Errors   ARGUMENT, STATE (no vocabulary), MEMORY
 * Since    0.1
 */
ENGINE_API int32_t engine_text_decoder_create(const engine_model *model, int32_t special,
                                              int32_t at_start, engine_text_decoder **decoder);

/* engine_text_decoder_push: add one token, get the characters that are complete.
 *
 *   decoder   in   handle
 *   id        in   0 .. n_vocab-1
 *   text      out  pointer     const, NUL-terminated valid UTF-8, lives until the next call on the decoder
 *   n_bytes   out  bytes
 *
 * Effect   Bytes of an unfinished character (at most 3) wait for the next token; invalid ones become U+FFFD.
 * Threads  serial per decoder
 * Errors   ARGUMENT, MEMORY (same)
 * Since    0.1
 */
ENGINE_API int32_t engine_text_decoder_push(engine_text_decoder *decoder, int32_t id,
                                            const char **text, uint64_t *n_bytes);

/* engine_text_decoder_flush: end the stream, get the bytes that never became a character.
 *
 *   decoder   in   handle
 *   bytes     out  pointer     const, raw bytes, lives until the next call on the decoder
 *   n_bytes   out  bytes       0 .. 3
 *
 * Effect   The decoder is at the start of a new, continuing stream.
 * Threads  serial per decoder
 * Errors   ARGUMENT
 * Since    0.1
 */
ENGINE_API int32_t engine_text_decoder_flush(engine_text_decoder *decoder, const char **bytes,
                                             uint64_t *n_bytes);

/* engine_text_decoder_destroy: release a decoder.
 *
 *   decoder   in   handle      NULL is allowed
 *
 * Effect   —
 * Threads  serial per decoder
 * Errors   —
 * Since    0.1
 */
ENGINE_API void engine_text_decoder_destroy(engine_text_decoder *decoder);

enum { /* why a token ends the generation */
       ENGINE_END_NONE = 0,
       ENGINE_END_EOS = 1,
       ENGINE_END_EOT = 2,
       ENGINE_END_EOM = 3,
       ENGINE_END_FIM = 4,
       ENGINE_END_NAME = 5 /* guessed from the token's text; no key names it */
};

/* engine_token_end_reason: does this token end a generation, and why.
 *
 *   model    in   handle
 *   id       in   a token
 *
 * Effect   Returns ENGINE_END_*; ENGINE_END_NONE for any other token and for NULL.
 * Threads  any
 * Errors   —
 * Since    0.1
 */
ENGINE_API int32_t engine_token_end_reason(const engine_model *model, int32_t id);

typedef struct engine_chat_message {
  const char *role; /* NUL-terminated: "system", "user", "assistant" */
  const char *content;
  uint64_t content_bytes;
} engine_chat_message;

/* engine_chat_template: the file's own template, as its author wrote it (Jinja).
 *
 *   model    in   handle
 *   text     out  pointer     const, lives until engine_model_close; not NUL-terminated
 *   n_bytes  out  bytes
 *
 * Effect   —
 * Threads  any
 * Errors   ARGUMENT, CHAT_TEMPLATE (the file has none)
 * Since    0.1
 */
ENGINE_API int32_t engine_chat_template(const engine_model *model, const char **text,
                                        uint64_t *n_bytes);

/* engine_chat_tokenize: a conversation to the ids that the model was trained on.
 *
 *   model      in   handle
 *   messages   in   struct[n_messages]
 *   n_messages in   count       1 ..
 *   generate   in   1 = end with the header of an assistant turn, so that decoding answers
 *   ids        out  int32_t[capacity]
 *   capacity   in   count       0 to ask for the size
 *   n_ids      out  count       written, or needed when BUFFER_TOO_SMALL
 *   error      out  struct      may be NULL
 *
 * Effect   Renders the file's template, whatever its family; no Python is needed. Content never becomes a control
 *          token; one BOS where the model wants one.
 * Threads  any
 * Errors   ARGUMENT, BUFFER_TOO_SMALL, STATE (no vocabulary), CHAT_TEMPLATE (absent, of unsupported syntax, or a
 *          role or order that it refuses), MEMORY (same)
 * Since    0.1
 */
ENGINE_API int32_t engine_chat_tokenize(const engine_model *model,
                                        const engine_chat_message *messages, uint64_t n_messages,
                                        int32_t generate, int32_t *ids, uint64_t capacity,
                                        uint64_t *n_ids, engine_error *error);

/* engine_chat_render: the same conversation as text, equal to what the Jinja template gives.
 *
 *   model      in   handle
 *   messages   in   struct[n_messages]
 *   n_messages in   count       1 ..
 *   generate   in   1 = end with the header of an assistant turn
 *   text       out  char[capacity]   not NUL-terminated
 *   capacity   in   bytes       0 to ask for the size
 *   n_bytes    out  bytes       written, or needed when BUFFER_TOO_SMALL
 *   error      out  struct      may be NULL
 *
 * Effect   For looking at; tokenize with engine_chat_tokenize, which keeps content apart from control text.
 * Threads  any
 * Errors   as engine_chat_tokenize
 * Since    0.1
 */
ENGINE_API int32_t engine_chat_render(const engine_model *model,
                                      const engine_chat_message *messages, uint64_t n_messages,
                                      int32_t generate, char *text, uint64_t capacity,
                                      uint64_t *n_bytes, engine_error *error);

/* How a conversation is rendered. Zero and NULL: as engine_chat_tokenize with generate = 0 does it. */
typedef struct engine_chat_params {
  uint32_t struct_size;
  int32_t generate; /* 1 = end with the header of an assistant turn */
  const char
      *template_text; /* a Jinja template to use instead of the file's; template_bytes long */
  uint64_t template_bytes;
  const char *template_name; /* or one of engine_chat_template_at, NUL-terminated */
  const char
      *variables_json; /* further variables of the template, NUL-terminated: a JSON object such as
                                 {"enable_thinking": false, "tools": [...]}; their text is content */
  int64_t
      unix_time; /* seconds since 1970, for templates that print today's date; 0 = none: they print a
                                 fixed date of their own or refuse */
} engine_chat_params;
#define ENGINE_CHAT_PARAMS_INIT \
  { (uint32_t)sizeof(engine_chat_params), 0, 0, 0, 0, 0, 0 }

/* engine_chat_template_at: name of a chat template that the library brings, by index.
 *
 *   index    in   0, 1, ...
 *
 * Effect   Returns a constant ("chatml", "llama3", ...), NULL past the end.
 * Threads  any
 * Errors   —
 * Since    0.1
 */
ENGINE_API const char *engine_chat_template_at(uint32_t index);

/* engine_chat_tokenize_with: engine_chat_tokenize with a template and variables of the caller's choice.
 *
 *   model      in   handle
 *   messages   in   struct[n_messages]
 *   n_messages in   count       1 ..
 *   params     in   struct
 *   ids        out  int32_t[capacity]
 *   capacity   in   count       0 to ask for the size
 *   n_ids      out  count       written, or needed when BUFFER_TOO_SMALL
 *   error      out  struct      may be NULL
 *
 * Effect   Content, roles and variables never become control tokens.
 * Threads  any
 * Errors   as engine_chat_tokenize, and TOO_NEW
 * Since    0.1
 */
ENGINE_API int32_t engine_chat_tokenize_with(const engine_model *model,
                                             const engine_chat_message *messages,
                                             uint64_t n_messages, const engine_chat_params *params,
                                             int32_t *ids, uint64_t capacity, uint64_t *n_ids,
                                             engine_error *error);

/* engine_chat_render_with: the same conversation as text, equal to what Python's jinja2 gives.
 *
 *   model      in   handle
 *   messages   in   struct[n_messages]
 *   n_messages in   count       1 ..
 *   params     in   struct
 *   text       out  char[capacity]   not NUL-terminated
 *   capacity   in   bytes       0 to ask for the size
 *   n_bytes    out  bytes       written, or needed when BUFFER_TOO_SMALL
 *   error      out  struct      may be NULL
 *
 * Effect   For looking at, as engine_chat_render.
 * Threads  any
 * Errors   as engine_chat_tokenize_with
 * Since    0.1
 */
ENGINE_API int32_t engine_chat_render_with(const engine_model *model,
                                           const engine_chat_message *messages, uint64_t n_messages,
                                           const engine_chat_params *params, char *text,
                                           uint64_t capacity, uint64_t *n_bytes,
                                           engine_error *error);

/* ---- session: decode ------------------------------------------------------------------------------ */

typedef struct engine_session engine_session; /* one sequence: its KV cache and scratch memory */

/* How keys and values are stored. Q8_0: in blocks of 32 values of a head with one f16 scale d = max / 127 (at least
 * 2^-14) and 8-bit codes, 0.53 of the memory of F16; what attention reads is d * code, so its logits are its own: they
 * differ from those of F16, and are as equal as those in all modes, thread counts, chunks and targets. */
enum { ENGINE_KV_F16 = 0, ENGINE_KV_F32 = 1, ENGINE_KV_Q8_0 = 2 };
/* All modes give the same logits, bit for bit, and the same hook events. */
enum {
  ENGINE_MODE_DEFAULT = 0,   /* PLANNED_FUSED */
  ENGINE_MODE_REFERENCE = 1, /* decides everything anew at every call: the oracle */
  ENGINE_MODE_PLANNED = 2,   /* obeys a plan, every operation by itself */
  ENGINE_MODE_PLANNED_FUSED =
      3 /* obeys a plan, operations merged where no hook needs what is between */
};
enum {
  ENGINE_WEIGHTS_PACKED =
      0, /* repacked once per model, in the layout that the kernels like best; the pages of
                                the file are given back, so that weights are in memory once */
  ENGINE_WEIGHTS_STORED =
      1 /* read from the file's mapping, which processes share; slower, no packing time */
};
/* Fusions of PLANNED_FUSED, as bits. */
enum {
  ENGINE_FUSION_NORM_QUANTIZE = 1, /* F1: norm and activation quantisation */
  ENGINE_FUSION_ADD_NORM = 2,      /* F2: residual add and norm */
  ENGINE_FUSION_GROUP = 4,         /* F3: q, k, v in one launch; gate and up in one launch */
  ENGINE_FUSION_ROPE = 8,          /* F4: q/k norm and rope inside attention and KV store */
  ENGINE_FUSION_RESIDUAL = 16,     /* F5: projections add into the residual */
  ENGINE_FUSION_GATE_QUANTIZE = 32 /* F6: activation, product, quantisation in the gate/up launch */
};

typedef struct engine_session_params {
  uint32_t struct_size;
  uint32_t n_ctx; /* positions; 0 = the smaller of 4096 and what the model was trained for */
  uint32_t
      n_threads; /* 0 = what affinity and the host's runner allow; 1 = the caller's thread only */
  uint32_t
      prefill_chunk; /* tokens that go through the layers at once; 0 = 128. Never changes a logit */
  int32_t kv_type;   /* ENGINE_KV_* */
  int32_t mode;      /* ENGINE_MODE_* */
  const char *
      target; /* CPU target to force (engine_model_target_at), NULL = best. Never changes a logit */
  const char *
      kernels; /* pattern with * that the names of kernels must match where one that does exists; PLAN
                          when it takes no effect. NULL = free choice. Never changes a logit */
  uint32_t without_fusions; /* ENGINE_FUSION_* not to use. Never changes a logit */
  int32_t sequence;         /* the caller's number of this sequence, for hook events and records */
  int32_t weights;          /* ENGINE_WEIGHTS_*. Never changes a logit */
  uint32_t reserved;
} engine_session_params;
#define ENGINE_SESSION_PARAMS_INIT \
  { (uint32_t)sizeof(engine_session_params), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/* What a session would take, in bytes. */
typedef struct engine_memory {
  uint32_t struct_size; /* in */
  uint32_t reserved;
  uint64_t packed_bytes;  /* packed weights, shared by all sessions of the model */
  uint64_t packing_bytes; /* beside them while they are packed */
  uint64_t
      stored_bytes; /* weights that are read from the file's pages, which the system may drop and read again */
  uint64_t kv_bytes; /* with all n_ctx positions in use */
  uint64_t scratch_bytes;
  uint64_t
      peak_bytes; /* the most that is allocated at one time by one session, packing included; without
                          stored_bytes */
} engine_memory;
#define ENGINE_MEMORY_INIT \
  { (uint32_t)sizeof(engine_memory), 0, 0, 0, 0, 0, 0, 0 }

/* engine_memory_forecast: the memory of a session before it is made.
 *
 *   model    in   handle
 *   params   in   struct      NULL = defaults
 *   memory   out  struct      struct_size set by the caller
 *   error    out  struct      may be NULL
 *
 * Effect   Compiles the plan, or takes it from the model's cache. As if nothing were packed yet. For the modes that
 *          obey a plan; ENGINE_MODE_REFERENCE allocates for every operation and takes more.
 * Threads  any
 * Errors   ARGUMENT, TOO_NEW, STATE (opened without weights), PLAN, DEVICE, MEMORY
 * Since    0.1
 */
ENGINE_API int32_t engine_memory_forecast(const engine_model *model,
                                          const engine_session_params *params,
                                          engine_memory *memory, engine_error *error);

/* engine_session_create: an empty sequence.
 *
 *   model    in   handle      must outlive the session
 *   params   in   struct      NULL = defaults
 *   session  out  handle      yours to destroy; NULL on failure
 *   error    out  struct      may be NULL
 *
 * Effect   Compiles the plan, or takes it from the model's cache; allocates scratch memory; starts n_threads - 1
 *          threads unless the host has a runner. The first session of a model packs its weights (a second per
 *          GB and core; progress in phase REPACK).
 * Threads  any
 * Errors   ARGUMENT, TOO_NEW, STATE (opened without weights), PLAN, DEVICE (target not here), MEMORY
 * Since    0.1
 */
ENGINE_API int32_t engine_session_create(const engine_model *model,
                                         const engine_session_params *params,
                                         engine_session **session, engine_error *error);

/* engine_session_destroy: release a session.
 *
 *   session  in   handle      NULL is allowed
 *
 * Effect   Joins its threads.
 * Threads  serial per session, and no other call on it afterwards
 * Errors   —
 * Since    0.1
 */
ENGINE_API void engine_session_destroy(engine_session *session);

/* engine_session_decode: append tokens and compute logits for the last one.
 *
 *   session  in   handle
 *   ids      in   int32_t[n_ids]   each in [0, n_vocab); borrowed until return
 *   n_ids    in   count            1 .. remaining context
 *   logits   out  float[n_vocab]   unnormalised log-probabilities; caller's memory; NULL = not wanted
 *   error    out  struct           may be NULL
 *
 * Effect   position += n_ids; KV extended; hooks fire in step order.
 * Threads  serial per session, not from a callback. Blocks. Allocates KV pages, one for 64 positions, and nothing
 *          else (mode REFERENCE does).
 * Errors   ARGUMENT (same), CONTEXT_FULL (same), STATE (from a callback) (same), HOOK_FAILED (undone), NONFINITE
 *          (undone), CANCELLED (undone), MEMORY (undone)
 * Since    0.1
 */
ENGINE_API int32_t engine_session_decode(engine_session *session, const int32_t *ids,
                                         uint64_t n_ids, float *logits, engine_error *error);

/* engine_session_decode_all: append tokens and compute logits for every one of them.
 *
 *   session  in   handle
 *   ids      in   int32_t[n_ids]   each in [0, n_vocab); borrowed until return
 *   n_ids    in   count            1 .. remaining context
 *   logits   out  float[n_ids][n_vocab]   row i: after ids[0..i]; caller's memory
 *   error    out  struct           may be NULL
 *
 * Effect   As engine_session_decode; the last row has the same bits.
 * Threads  serial per session. Blocks.
 * Errors   as engine_session_decode
 * Since    0.1
 */
ENGINE_API int32_t engine_session_decode_all(engine_session *session, const int32_t *ids,
                                             uint64_t n_ids, float *logits, engine_error *error);

/* engine_session_position: how many tokens the session holds.
 *
 *   session  in   handle
 *
 * Effect   Returns the count; 0 for NULL.
 * Threads  serial per session
 * Errors   —
 * Since    0.1
 */
ENGINE_API uint64_t engine_session_position(const engine_session *session);

/* engine_session_truncate: forget all tokens from position n on.
 *
 *   session  in   handle
 *   n        in   0 .. position
 *
 * Effect   position = n; what is decoded next gives the bits of a session that never went further. Every n is legal
 *          for every model: windows and convolutions keep the positions that they have left behind, so nothing
 *          returns CANNOT_REWIND today.
 * Threads  serial per session
 * Errors   ARGUMENT (same)
 * Since    0.1
 */
ENGINE_API int32_t engine_session_truncate(engine_session *session, uint64_t n);

/* engine_session_cancel: stop the decode that is running, if one is.
 *
 *   session  in   handle
 *
 * Effect   The running engine_session_decode returns CANCELLED, undone; without one nothing happens and
 *          the next decode is not affected.
 * Threads  any, also from a signal handler
 * Errors   —
 * Since    0.1
 */
ENGINE_API void engine_session_cancel(engine_session *session);

typedef struct engine_session_stats {
  uint32_t struct_size; /* in */
  int32_t mode;         /* the mode that runs */
  uint32_t n_threads;
  uint32_t n_ctx;
  uint64_t decoded_tokens;  /* tokens appended so far, whatever was truncated later */
  uint64_t kv_bytes;        /* of all KV pages that the session holds, shared ones too */
  uint64_t bytes_per_token; /* weight bytes that one decoded token reads */
  char target[16];          /* CPU target in use */
  uint64_t packed_bytes;    /* of all packed weights of the model, shared by its sessions */
  uint64_t kv_own_bytes;    /* of KV pages that nobody else holds */
  uint64_t prefix_bytes;    /* of KV pages in the model's prefix cache */
} engine_session_stats;
#define ENGINE_SESSION_STATS_INIT \
  { (uint32_t)sizeof(engine_session_stats), 0, 0, 0, 0, 0, 0, {0}, 0, 0, 0 }

typedef struct engine_completion engine_completion; /* one decode that was submitted */
enum { ENGINE_SUBMIT_THREAD = 1 };                  /* on a thread of its own */

/* engine_session_submit: engine_session_decode for hosts with an event loop: it returns at once.
 *
 *   session     in   handle      one decode at a time; must outlive the completion
 *   ids         in   int32_t[n_ids]   copied
 *   n_ids       in   count       1 .. remaining context
 *   logits      out  float[n_vocab]   of the last id, once it is done; borrowed until then; NULL = not wanted
 *   flags       in   ENGINE_SUBMIT_*   0 = the work is done inside of poll and wait
 *   completion  out  handle      yours to destroy; NULL on failure
 *   error       out  struct      may be NULL
 *
 * Effect   Until it is done or destroyed, other calls of the session return STATE, but for engine_session_cancel and
 *          the looking ones. Hooks and progress come from the thread that works.
 * Threads  serial per session, not from a callback
 * Errors   ARGUMENT, TOO_NEW, CONTEXT_FULL, STATE (from a callback, or one is under way), MEMORY (same)
 * Since    0.1
 */
ENGINE_API int32_t engine_session_submit(engine_session *session, const int32_t *ids,
                                         uint64_t n_ids, float *logits, uint32_t flags,
                                         engine_completion **completion, engine_error *error);

/* engine_completion_poll: whether it is done; without a thread, works on it first.
 *
 *   completion  in   handle
 *   done        out  1 = done, 0 = not yet
 *
 * Effect   Without a thread: one chunk of tokens goes through the layers (prefill_chunk of the session). With one:
 *          returns at once.
 * Threads  serial per completion
 * Errors   ARGUMENT, MEMORY (not done; may be tried again)
 * Since    0.1
 */
ENGINE_API int32_t engine_completion_poll(engine_completion *completion, int32_t *done);

/* engine_completion_wait: until it is done, then its status.
 *
 *   completion  in   handle
 *   error       out  struct      may be NULL
 *
 * Effect   Returns what engine_session_decode would have returned; asked again, the same.
 * Threads  serial per completion. Blocks.
 * Errors   as engine_session_decode
 * Since    0.1
 */
ENGINE_API int32_t engine_completion_wait(engine_completion *completion, engine_error *error);

/* engine_completion_cancel: end it, if it is not done.
 *
 *   completion  in   handle      NULL is allowed
 *
 * Effect   It is done soon, with CANCELLED, undone; without a thread at the next poll or wait.
 * Threads  any, also from a signal handler
 * Errors   —
 * Since    0.1
 */
ENGINE_API void engine_completion_cancel(engine_completion *completion);

/* engine_completion_destroy: release it.
 *
 *   completion  in   handle      NULL is allowed
 *
 * Effect   What is not done is cancelled, and its thread waited for.
 * Threads  serial per completion, and no other call on it afterwards
 * Errors   —
 * Since    0.1
 */
ENGINE_API void engine_completion_destroy(engine_completion *completion);

typedef struct engine_sampler engine_sampler; /* parameters, history for penalties, random state */

typedef struct engine_speculation_params {
  uint32_t struct_size;
  uint32_t max_draft; /* guessed tokens in a call, at most; 0 = 16; never above prefill_chunk - 1 */
  uint32_t shortest_match; /* tokens that must occur before for a guess; 0 = 3 */
  uint32_t reserved;
  engine_session *
      drafter; /* of a smaller model with the same vocabulary, asked where nothing matches; its tokens
                              are replaced; NULL = none */
  engine_sampler *sampler; /* draws as for plain decodes; NULL = greedy */
} engine_speculation_params;
#define ENGINE_SPECULATION_PARAMS_INIT \
  { (uint32_t)sizeof(engine_speculation_params), 0, 0, 0, 0, 0 }

/* engine_session_decode_speculative: decode a token, and those after it that can be guessed, in one go.
 *
 *   session   in   handle
 *   id        in   0 .. n_vocab - 1   the token chosen last; not appended yet
 *   params    in   struct      NULL = defaults
 *   next      out  int32_t[capacity]   tokens chosen after id, in order; all but the last are appended: that one is
 *                              the id of the next call
 *   capacity  in   count       1 ..
 *   n_next    out  count       at least 1
 *   logits    out  float[capacity][n_vocab]   row i: what next[i] was chosen from; NULL = not wanted
 *   error     out  struct      may be NULL
 *
 * Effect   Tokens, logits and draws are, bit for bit, those of engine_session_decode and engine_sampler_sample in
 *          turns: a guess only saves time when it is what would have been chosen. Guesses are what followed the same
 *          tokens earlier in the session, else the drafter's. A session with hooks is decoded plainly. Guesses get
 *          fewer while they fail.
 * Threads  serial per session, drafter and sampler, not from a callback. Blocks.
 * Errors   as engine_session_decode; ARGUMENT (also: a drafter of another vocabulary), NONFINITE from the sampler
 *          (undone, sampler same)
 * Since    0.1
 */
ENGINE_API int32_t engine_session_decode_speculative(engine_session *session, int32_t id,
                                                     const engine_speculation_params *params,
                                                     int32_t *next, uint64_t capacity,
                                                     uint64_t *n_next, float *logits,
                                                     engine_error *error);

typedef struct engine_speculation_stats {
  uint32_t struct_size; /* in */
  uint32_t reserved;
  uint64_t calls;   /* of engine_session_decode_speculative */
  uint64_t guessed; /* tokens */
  uint64_t right;   /* of them */
} engine_speculation_stats;
#define ENGINE_SPECULATION_STATS_INIT \
  { (uint32_t)sizeof(engine_speculation_stats), 0, 0, 0, 0 }

/* engine_session_speculation_get: how the guesses of a session went.
 *
 *   session  in   handle
 *   stats    out  struct      struct_size set by the caller; at most that much is written
 *
 * Effect   —
 * Threads  serial per session
 * Errors   ARGUMENT
 * Since    0.1
 */
ENGINE_API int32_t engine_session_speculation_get(const engine_session *session,
                                                  engine_speculation_stats *stats);

enum { ENGINE_BATCH_ALL_LOGITS = 1 };

/* One session's part of a batch. All items of a call have the same struct_size. */
typedef struct engine_batch_item {
  uint32_t struct_size;
  int32_t status; /* out: as engine_session_decode would return it */
  engine_session *session;
  const int32_t *ids; /* [n_ids], borrowed until return */
  uint64_t n_ids;
  float *logits; /* [n_vocab] of the last id; [n_ids][n_vocab] with ENGINE_BATCH_ALL_LOGITS; with
                    `wanted` a row for each id that it flags, densely, in order; NULL = none */
  const uint8_t *wanted; /* [n_ids], not 0 = the logits of this id; NULL = the last one's */
  uint32_t flags;        /* ENGINE_BATCH_* */
  uint32_t reserved;
} engine_batch_item;
#define ENGINE_BATCH_ITEM_INIT \
  { (uint32_t)sizeof(engine_batch_item), 0, 0, 0, 0, 0, 0, 0, 0 }

/* engine_batch_decode: engine_session_decode for several sessions at once.
 *
 *   items    in/out  struct[n_items]   sessions in any order, of any models; each status is written
 *   n_items  in      count             1 .. 65536
 *   error    out     struct            may be NULL; of the first item that failed
 *
 * Effect   Each item as if decoded alone: the same bits, hooks, errors, and undone where it fails, whatever happens
 *          to the others. Weights are read once for all sessions of a model whose parameters agree but for n_ctx,
 *          sequence and hooks; their work runs on the threads of the first of them. Mode REFERENCE runs one after
 *          another. No progress callback, no profile.
 * Threads  serial per session of an item, not from a callback. Blocks. Allocates KV pages and, in the first batch of
 *          its first session, memory for logits and for the hooks of all.
 * Errors   of the first item that failed, other items may have succeeded; ARGUMENT for the arguments themselves
 *          (then no item has run)
 * Since    0.1
 */
ENGINE_API int32_t engine_batch_decode(engine_batch_item *items, uint64_t n_items,
                                       engine_error *error);

enum { ENGINE_FORK_WITHOUT_HOOKS = 1 };

/* engine_session_fork: a second session that goes on from here.
 *
 *   session  in   handle
 *   flags    in   ENGINE_FORK_*   0 = with hooks
 *   fork     out  handle      yours to destroy, before or after `session`; NULL on failure
 *   error    out  struct      may be NULL
 *
 * Effect   Same tokens, parameters and numbering of generated tokens; what either decodes next has the bits of a
 *          session that went there alone. KV pages are shared until one of the two writes to them. Hooks are
 *          copied with their numbers, scopes and counters, but for captures, whose memory belongs to whoever
 *          registered them; callbacks are called for both sessions, with the sequence of `session`. The two share
 *          threads, and scratch memory until both are in a call at once, when the later one allocates its own. Where
 *          hooks are left out, the fork has its own scratch memory and plan.
 * Threads  serial per session, not from a callback; afterwards the two are independent
 * Errors   ARGUMENT, TOO_NEW, STATE (from a callback), PLAN, MEMORY (same)
 * Since    0.1
 */
ENGINE_API int32_t engine_session_fork(const engine_session *session, uint32_t flags,
                                       engine_session **fork, engine_error *error);

/* engine_model_prefix_cache: let sessions of a model share what their tokens have in common.
 *
 *   model      in   handle
 *   max_bytes  in   bytes       of KV pages to keep at most; 0 = keep nothing, as in the beginning
 *
 * Effect   Full KV pages (64 positions) of all sessions are kept, shared, not copied; those used least recently
 *          leave first. A page is found again only by the same ids from position 0 on, KV type, and registrations of
 *          writing hooks. Pages under a writing callback, or under a writer that depends on where a prompt ends
 *          while it could fire, are not kept.
 * Threads  any
 * Errors   ARGUMENT, STATE (opened without weights), MEMORY (same)
 * Since    0.1
 */
ENGINE_API int32_t engine_model_prefix_cache(const engine_model *model, uint64_t max_bytes);

/* engine_session_take_prefix: begin a session with what the model's prefix cache has of a prompt.
 *
 *   session  in   handle      empty; its writing hooks registered before
 *   ids      in   int32_t[n_ids]   the prompt
 *   n_ids    in   count       1 .. n_ctx
 *   n_taken  out  count       positions from the cache: a multiple of 64 below n_ids, 0 = none; decode ids + n_taken
 *   error    out  struct      may be NULL
 *
 * Effect   position = n_taken; what is decoded next has the bits of a session that decoded all ids as one prompt.
 *          Hooks do not fire for positions from the cache: an observer that wants them does without this call.
 * Threads  serial per session, not from a callback
 * Errors   ARGUMENT, CONTEXT_FULL, STATE (not empty, or from a callback), MEMORY (same)
 * Since    0.1
 */
ENGINE_API int32_t engine_session_take_prefix(engine_session *session, const int32_t *ids,
                                              uint64_t n_ids, uint64_t *n_taken,
                                              engine_error *error);

/* engine_session_save: a session as bytes, to go on later, also in another process or on another machine.
 *
 *   session   in   handle
 *   data      out  uint8_t[capacity]
 *   capacity  in   bytes       0 to ask for the size
 *   n_bytes   out  bytes       written, or needed when BUFFER_TOO_SMALL; exact
 *   error     out  struct      may be NULL
 *
 * Effect   Holds tokens, keys and values, the numbering of generated tokens, the model's fingerprint and a
 *          checksum; no hooks. The first save of a model reads 1 MiB of its file.
 * Threads  serial per session, not from a callback
 * Errors   ARGUMENT, BUFFER_TOO_SMALL, STATE (from a callback), MEMORY (same)
 * Since    0.1
 */
ENGINE_API int32_t engine_session_save(const engine_session *session, void *data, uint64_t capacity,
                                       uint64_t *n_bytes, engine_error *error);

/* Takes a piece of what is saved; pieces come in order. Not 0 ends the saving. */
typedef int32_t (*engine_write)(void *user, const void *data, uint64_t n_bytes);

/* engine_session_save_to: as engine_session_save, through a callback.
 *
 *   session  in   handle
 *   write    in   callback    called on this thread; must not call functions of the session
 *   user     in   pointer     its first argument
 *   error    out  struct      may be NULL
 *
 * Effect   The pieces together are what engine_session_save writes; the largest is one head of one layer.
 * Threads  serial per session, not from a callback
 * Errors   ARGUMENT, CANCELLED (by the callback), STATE (from a callback), MEMORY (same)
 * Since    0.1
 */
ENGINE_API int32_t engine_session_save_to(const engine_session *session, engine_write write,
                                          void *user, engine_error *error);

/* engine_session_restore: take over what was saved, in place of what the session holds.
 *
 *   session  in   handle      of the same model and KV type; n_ctx must cover the tokens, the rest may differ
 *   data     in   uint8_t[n_bytes]
 *   n_bytes  in   bytes
 *   error    out  struct      may be NULL
 *
 * Effect   What is decoded next has the bits that the saved session would have given. Hooks stay as they are.
 * Threads  serial per session, not from a callback
 * Errors   ARGUMENT, CORRUPT (cut or changed), TOO_NEW (another format version), MODEL_MISMATCH, KV_MISMATCH,
 *          CONTEXT_FULL, STATE (from a callback), MEMORY (same)
 * Since    0.1
 */
ENGINE_API int32_t engine_session_restore(engine_session *session, const void *data,
                                          uint64_t n_bytes, engine_error *error);

/* engine_session_kv_export: keys and values for other tools: the portable snapshot "engine.kv/1".
 *
 *   session   in   handle
 *   data      out  uint8_t[capacity]   "engine.kv/1" and a NUL (12 bytes); u32 m; a JSON manifest of m bytes, padded
 *                                      with spaces so that 16 + m is a multiple of 64; the data
 *   capacity  in   bytes       0 to ask for the size
 *   n_bytes   out  bytes       written, or needed when BUFFER_TOO_SMALL
 *   error     out  struct      may be NULL
 *
 * Effect   Manifest: "schema", "model" (fingerprint), "kv_type" ("f16", "f32", "q8_0"), "dtype" ("float16"; "float32"
 *          for f32, and for q8_0: what attention reads), "n_positions" T, "ids" [T], "prompt_end", "rope_tables"
 *          (which of the model's RoPE tables n_ctx takes), "layers" [{"n_kv_heads" G, "head_dim_k", "head_dim_v",
 *          "k_offset", "v_offset"}]. Keys (after rope) are [G][T][head_dim_k] at k_offset, values [G][T][head_dim_v]
 *          at v_offset, in bytes from the beginning of the data; little-endian.
 * Threads  serial per session, not from a callback
 * Errors   ARGUMENT, BUFFER_TOO_SMALL, STATE (from a callback), MEMORY (same)
 * Since    0.1
 */
ENGINE_API int32_t engine_session_kv_export(const engine_session *session, void *data,
                                            uint64_t capacity, uint64_t *n_bytes,
                                            engine_error *error);

/* engine_session_kv_import: take over a portable snapshot, edited or not, in place of what the session holds.
 *
 *   session  in   handle      of the same model and KV type
 *   data     in   uint8_t[n_bytes]   as engine_session_kv_export writes it; the order of the arrays is free
 *   n_bytes  in   bytes
 *   error    out  struct      may be NULL
 *
 * Effect   Unedited, what is decoded next has the bits of the exported session. Never enters the prefix cache.
 * Threads  serial per session, not from a callback
 * Errors   ARGUMENT, CORRUPT (malformed, or another shape), TOO_NEW (another schema), MODEL_MISMATCH, KV_MISMATCH,
 *          CONTEXT_FULL, NONFINITE, STATE (from a callback), MEMORY (same)
 * Since    0.1
 */
ENGINE_API int32_t engine_session_kv_import(engine_session *session, const void *data,
                                            uint64_t n_bytes, engine_error *error);

/* engine_session_stats_get: what a session is and what it has done.
 *
 *   session  in   handle
 *   stats    out  struct      struct_size set by the caller; at most that much is written
 *
 * Effect   —
 * Threads  serial per session
 * Errors   ARGUMENT
 * Since    0.1
 */
ENGINE_API int32_t engine_session_stats_get(const engine_session *session,
                                            engine_session_stats *stats);

/* engine_session_kernel_at: a kernel that has run in this session, with its count: the proof of what ran.
 *
 *   session  in   handle
 *   index    in   0, 1, ...
 *   name     out  pointer     constant, such as "matmul_q4_1_q8x32__cpu_hwy"
 *   calls    out  count       executions so far, all threads
 *
 * Effect   Rows with zero executions are not listed.
 * Threads  serial per session
 * Errors   ARGUMENT (also: index past the end)
 * Since    0.1
 */
ENGINE_API int32_t engine_session_kernel_at(const engine_session *session, uint32_t index,
                                            const char **name, uint64_t *calls);

/* engine_session_fusion_at: a fusion and how often it has run in this session.
 *
 *   session  in   handle
 *   index    in   0 .. 5       F1 .. F6
 *   name     out  pointer     constant, such as "F1 norm+quantize"
 *   calls    out  count       executions so far; 0 = did not run
 *
 * Effect   —
 * Threads  serial per session
 * Errors   ARGUMENT (also: index past the end)
 * Since    0.1
 */
ENGINE_API int32_t engine_session_fusion_at(const engine_session *session, uint32_t index,
                                            const char **name, uint64_t *calls);

/* One operation of one layer, as measured. Calls of one token and larger ones are kept apart. */
typedef struct engine_profile_entry {
  uint32_t struct_size; /* in */
  int32_t layer;        /* -1 = before or after the layers */
  int32_t prefill;      /* 0 = calls of one token, 1 = of more */
  uint32_t fusions;     /* ENGINE_FUSION_* that the step realises */
  uint64_t calls;
  uint64_t total_ns;
  uint64_t median_ns; /* of the last 512 calls */
  uint64_t p95_ns;
  uint64_t bytes;  /* weight and KV bytes read in all calls */
  char op[64];     /* operations in order, such as "rms_norm+quantize" */
  char tensor[96]; /* first weight, "" = none */
  char kernel[64]; /* kernel of the largest part */
} engine_profile_entry;
#define ENGINE_PROFILE_ENTRY_INIT                                                   \
  {                                                                                 \
    (uint32_t)sizeof(engine_profile_entry), 0, 0, 0, 0, 0, 0, 0, 0, {0}, {0}, { 0 } \
  }

/* engine_session_profile: start or stop measuring every operation.
 *
 *   session  in   handle
 *   enable   in   1 = clear and start, 0 = stop
 *   error    out  struct      may be NULL
 *
 * Effect   Costs two clock reads per operation while it is on.
 * Threads  serial per session
 * Errors   ARGUMENT, MEMORY (same)
 * Since    0.1
 */
ENGINE_API int32_t engine_session_profile(engine_session *session, int32_t enable,
                                          engine_error *error);

/* engine_session_profile_at: one line of the measured profile.
 *
 *   session  in   handle
 *   index    in   0, 1, ...   in the order of execution, calls of one token before larger ones; the last line of
 *                             each kind is the whole call: layer -1, op "call"
 *   entry    out  struct      struct_size set by the caller; at most that much is written
 *
 * Effect   —
 * Threads  serial per session
 * Errors   ARGUMENT (also: index past the end, or never started)
 * Since    0.1
 */
ENGINE_API int32_t engine_session_profile_at(const engine_session *session, uint32_t index,
                                             engine_profile_entry *entry);

/* ---- hooks: read and change named values inside the forward pass ---------------------------------- */

/* A site is a named f32 value, one row per token: engine_hook_site_at lists them. At a site, captures come
 * first, then writers and reading callbacks in the order of registration, then captures with
 * ENGINE_CAPTURE_POST. Positions are absolute, so how a prompt is cut into calls or chunks never changes what
 * fires. Hooks do not change a bit unless they write. final_norm and logits exist, and fire, for the rows
 * whose logits are wanted. The attention sites (attn_scores before softmax, attn_pattern after) have a row of
 * n_ctx values for each head, -infinity and 0 beyond the position; callbacks get them one token at a time. */

typedef struct engine_hook_site_info {
  uint32_t struct_size; /* in */
  int32_t site;         /* number, as in events and records */
  int32_t per_layer;    /* 0 = outside the layers; its layer is -1 */
  int32_t writable;
  uint32_t
      width; /* values per token in the first layer that has it; 0 = heads * n_ctx (attention sites) */
  uint32_t n_heads; /* equal parts that a head selector can choose; 0 = none */
  uint32_t
      n_layers; /* layers that have the site (1 for a global one); 0 = this model has it nowhere */
  uint32_t reserved;
  char name[32];
  char alias[32]; /* "" = none */
  char route
      [16]; /* with default fusions: "materialised", "de-fused" (a layer with an active hook runs without
                     the fusion that removes the value) or "copy-out" (computed beside the kernel) */
} engine_hook_site_info;
#define ENGINE_HOOK_SITE_INFO_INIT                                                \
  {                                                                               \
    (uint32_t)sizeof(engine_hook_site_info), 0, 0, 0, 0, 0, 0, 0, {0}, {0}, { 0 } \
  }

/* engine_hook_site_at: a site by number.
 *
 *   model    in   handle
 *   index    in   0, 1, ...
 *   info     out  struct      struct_size set by the caller; at most that much is written
 *
 * Effect   —
 * Threads  any
 * Errors   ARGUMENT (also: index past the end), STATE (opened without weights)
 * Since    0.1
 */
ENGINE_API int32_t engine_hook_site_at(const engine_model *model, uint32_t index,
                                       engine_hook_site_info *info);

enum {                          /* what a hook does */
       ENGINE_HOOK_CAPTURE = 1, /* copy rows to the caller's buffer */
       ENGINE_HOOK_READ = 2,    /* call back with a copy of the rows */
       ENGINE_HOOK_WRITE = 3,   /* call back; what is in the copy afterwards becomes the value */
       ENGINE_HOOK_ADD = 10,    /* x += alpha * values */
       ENGINE_HOOK_SCALE = 11,  /* x *= alpha */
       ENGINE_HOOK_SET = 12,    /* x = values */
       ENGINE_HOOK_ZERO = 13,   /* x = 0 */
       ENGINE_HOOK_INTERPOLATE = 14, /* x += alpha * (values - x) */
       ENGINE_HOOK_PROJECT_OUT = 15, /* x -= alpha * (x . v) / (v . v) * v, v = values */
       ENGINE_HOOK_CLAMP = 16,       /* x = min(max(x, low), high) */
       ENGINE_HOOK_REPLACE =
           17, /* x = the row of values whose record has this position and layer */
       ENGINE_HOOK_LOW_RANK =
           18 /* x += alpha * A (B x): values = A [width][rank], then B [rank][width] */
};
enum {
  ENGINE_CAPTURE_POST = 1, /* capture after the writers */
  ENGINE_CAPTURE_RING =
      2 /* a full buffer begins anew at its oldest row; else further rows are dropped */
};
enum { /* which positions */
       ENGINE_POSITIONS_ALL = 0,
       ENGINE_POSITIONS_LIST = 1,           /* positions[n_positions] */
       ENGINE_POSITIONS_RANGE = 2,          /* position_begin <= p < position_end */
       ENGINE_POSITIONS_LAST_OF_PROMPT = 3, /* the last token of every prompt */
       ENGINE_POSITIONS_GENERATED = 4,      /* generated token number k since the prompt, from 0,
                                               position_begin <= k < position_end; both 0 = all */
       ENGINE_POSITIONS_EVERY = 5           /* p % position_step == 0 */
};

/* One captured row. */
typedef struct engine_capture_record {
  int64_t position; /* absolute */
  int32_t sequence; /* of the session */
  int32_t token_id;
  int32_t site;
  int32_t layer; /* -1 outside the layers */
} engine_capture_record;

/* What a callback is told. Valid during the call only. */
typedef struct engine_hook_event {
  uint32_t struct_size;
  int32_t site;
  int32_t layer; /* -1 outside the layers */
  int32_t sequence;
  int32_t generated;        /* 1 = tokens were generated, 0 = they belong to a prompt */
  uint32_t n_rows;          /* selected tokens */
  uint64_t width;           /* values per row; with a head selector still all heads */
  const int32_t *token_ids; /* [n_rows] */
  const int64_t *positions; /* [n_rows] absolute, ascending */
} engine_hook_event;

/* Called on the thread that is inside the decode. values: float[n_rows][width], a copy. Not 0 = failed: the
 * decode returns HOOK_FAILED, undone. It must not call functions of the session that it is called from
 * (STATE), but for engine_session_cancel. */
typedef int32_t (*engine_hook_callback)(void *user, const engine_hook_event *event, float *values);

typedef struct engine_hook_params {
  uint32_t struct_size;
  int32_t action;   /* ENGINE_HOOK_* */
  const char *site; /* name or alias */
  /* Selectors. Arrays are copied. What can match nothing is an error, so is an empty array that is not NULL,
     and a position_ field that position_select does not use. */
  const int32_t *layers; /* NULL: layer_begin <= l < layer_end, both 0 = all layers */
  uint64_t n_layers;
  int32_t layer_begin;
  int32_t layer_end;
  const int64_t *positions;
  uint64_t n_positions;
  int64_t position_begin;
  int64_t position_end;
  int64_t position_step;
  const int32_t *
      heads; /* NULL = all; only for sites with heads. Others are left alone by writers and are 0 in
                           captures of the attention sites */
  uint64_t n_heads;
  const int32_t *sequences; /* NULL = all; else one must be the session's */
  uint64_t n_sequences;
  int32_t position_select; /* ENGINE_POSITIONS_* */
  uint32_t capture_flags;  /* ENGINE_CAPTURE_* */
  /* Writers. Copied. */
  const float
      *values; /* [width] of the site; REPLACE [n_records][width]; LOW_RANK 2 * width * rank */
  uint64_t n_values;
  const engine_capture_record
      *records; /* REPLACE: position and layer count; one with layer -1 serves
                                           every layer that has none of its own; no two alike */
  uint64_t n_records;
  float alpha; /* 1 by the initialiser */
  float low;   /* CLAMP */
  float high;
  uint32_t rank; /* LOW_RANK */
  /* Captures: the caller's memory, borrowed until the hook is removed or the session destroyed. */
  float *
      capture; /* [capture_rows][width]; width of the attention sites: heads * n_ctx of the session */
  engine_capture_record *capture_records; /* [capture_rows]; may be NULL */
  uint64_t capture_rows;
  /* Callbacks. */
  engine_hook_callback callback;
  void *user;
  uint64_t scope; /* engine_hook_scope_open; 0 = the session */
} engine_hook_params;
#define ENGINE_HOOK_PARAMS_INIT                                                                    \
  {                                                                                                \
    (uint32_t)sizeof(engine_hook_params), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, \
        0, 0, 1.0f, 0.0f, 0.0f, 0, 0, 0, 0, 0, 0, 0                                                \
  }

/* engine_hook_register: add a hook to a session.
 *
 *   session  in   handle
 *   params   in   struct
 *   hook     out  number      never 0, never used again in this session
 *   error    out  struct      may be NULL; for a wrong name it lists near ones
 *
 * Effect   Recompiles the plan: layers whose fused steps have no such value run that part unfused. Allocates all
 *          that the hook needs, so that decoding does not.
 * Threads  serial per session, not from a callback
 * Errors   ARGUMENT (unknown site, not writable, sizes that do not fit, a selector that matches nothing),
 *          TOO_NEW, STATE (from a callback), PLAN, MEMORY (same)
 * Since    0.1
 */
ENGINE_API int32_t engine_hook_register(engine_session *session, const engine_hook_params *params,
                                        uint64_t *hook, engine_error *error);

/* engine_hook_remove: remove exactly one hook.
 *
 *   session  in   handle
 *   hook     in   number      from engine_hook_register
 *   error    out  struct      may be NULL
 *
 * Effect   Its buffers are the caller's again. Recompiles the plan.
 * Threads  serial per session, not from a callback
 * Errors   ARGUMENT (no such hook), STATE (from a callback), PLAN, MEMORY (same)
 * Since    0.1
 */
ENGINE_API int32_t engine_hook_remove(engine_session *session, uint64_t hook, engine_error *error);

/* engine_hook_scope_open: a group of hooks that goes at once.
 *
 *   session  in   handle
 *   scope    out  number      for engine_hook_params.scope
 *   error    out  struct      may be NULL
 *
 * Effect   —
 * Threads  serial per session, not from a callback
 * Errors   ARGUMENT, STATE (from a callback), MEMORY (same)
 * Since    0.1
 */
ENGINE_API int32_t engine_hook_scope_open(engine_session *session, uint64_t *scope,
                                          engine_error *error);

/* engine_hook_scope_close: remove all hooks of a scope, and no other.
 *
 *   session  in   handle
 *   scope    in   number
 *   error    out  struct      may be NULL
 *
 * Effect   As engine_hook_remove for each.
 * Threads  serial per session, not from a callback
 * Errors   ARGUMENT (no such scope), STATE (from a callback), PLAN, MEMORY (same)
 * Since    0.1
 */
ENGINE_API int32_t engine_hook_scope_close(engine_session *session, uint64_t scope,
                                           engine_error *error);

typedef struct engine_hook_stats {
  uint32_t struct_size; /* in */
  uint32_t reserved;
  uint64_t calls;             /* times that it fired: chunks with a selected token, times layers */
  uint64_t positions;         /* rows seen: selected tokens times layers */
  uint64_t prefill_positions; /* of them prompt tokens */
  uint64_t decode_positions;  /* of them generated tokens */
  uint64_t writes;            /* rows written */
  uint64_t rows_captured;     /* rows put into the buffer; number i is at i % capture_rows */
  uint64_t rows_dropped;      /* for want of room */
} engine_hook_stats;
#define ENGINE_HOOK_STATS_INIT \
  { (uint32_t)sizeof(engine_hook_stats), 0, 0, 0, 0, 0, 0, 0, 0 }

/* engine_hook_stats_get: what a hook has done.
 *
 *   session  in   handle
 *   hook     in   number
 *   stats    out  struct      struct_size set by the caller; at most that much is written
 *
 * Effect   Counters cover completed decodes only: what an undone one did is taken back, but for the rows that
 *          it overwrote in a ring.
 * Threads  serial per session
 * Errors   ARGUMENT (also: no such hook)
 * Since    0.1
 */
ENGINE_API int32_t engine_hook_stats_get(const engine_session *session, uint64_t hook,
                                         engine_hook_stats *stats);

enum { /* what the tokens of a decode call are, for POSITIONS_LAST_OF_PROMPT and _GENERATED */
       ENGINE_TOKENS_AUTO =
           0, /* one id, not the first of the session: generated; else a whole prompt */
       ENGINE_TOKENS_PROMPT = 1,      /* the end of a prompt, or all of it */
       ENGINE_TOKENS_PROMPT_PART = 2, /* part of a prompt that goes on */
       ENGINE_TOKENS_GENERATED = 3
};

/* engine_session_tokens_are: what the next decodes append.
 *
 *   session  in   handle
 *   kind     in   ENGINE_TOKENS_*   in force until changed
 *
 * Effect   Changes which hooks fire, and nothing else.
 * Threads  serial per session, not from a callback
 * Errors   ARGUMENT, STATE (from a callback) (same)
 * Since    0.1
 */
ENGINE_API int32_t engine_session_tokens_are(engine_session *session, int32_t kind);

/* engine_unembed: final norm and head on vectors of the caller, for a logit lens.
 *
 *   session  in   handle      its threads and scratch memory are used; its state stays
 *   rows     in   float[n_rows][n_embd]     such as captured resid_post
 *   n_rows   in   count       1 ..
 *   logits   out  float[n_rows][n_vocab]
 *   error    out  struct      may be NULL
 *
 * Effect   The resid_post of the last layer gives the bits of the logits. Fires no hooks.
 * Threads  serial per session, not from a callback. Blocks.
 * Errors   ARGUMENT, NONFINITE, STATE (from a callback), MEMORY (same)
 * Since    0.1
 */
ENGINE_API int32_t engine_unembed(engine_session *session, const float *rows, uint64_t n_rows,
                                  float *logits, engine_error *error);

/* ---- plan: what was decided, and why -------------------------------------------------------------- */

typedef struct engine_plan engine_plan; /* immutable */

/* engine_plan_create: the plan that a session with these parameters and hooks would obey.
 *
 *   model    in   handle      must outlive the plan
 *   params   in   struct      of the session; NULL = defaults
 *   hooks    in   struct[n_hooks]   only site, layers and their range are read
 *   n_hooks  in   count       0 = none
 *   plan     out  handle      yours to destroy; NULL on failure
 *   error    out  struct      may be NULL
 *
 * Effect   Nothing is allocated for execution.
 * Threads  any
 * Errors   ARGUMENT, TOO_NEW, STATE (opened without weights), PLAN, DEVICE (target not here), MEMORY
 * Since    0.1
 */
ENGINE_API int32_t engine_plan_create(const engine_model *model,
                                      const engine_session_params *params,
                                      const engine_hook_params *hooks, uint64_t n_hooks,
                                      engine_plan **plan, engine_error *error);

/* engine_session_plan: the plan that a session obeys now.
 *
 *   session  in   handle
 *   plan     out  handle      yours to destroy; its model must outlive it, the session need not
 *   error    out  struct      may be NULL
 *
 * Effect   In mode REFERENCE: the decisions that it would come to, without an arena.
 * Threads  serial per session
 * Errors   ARGUMENT, MEMORY
 * Since    0.1
 */
ENGINE_API int32_t engine_session_plan(const engine_session *session, engine_plan **plan,
                                       engine_error *error);

/* engine_plan_destroy: release a plan.
 *
 *   plan     in   handle      NULL is allowed
 *
 * Effect   —
 * Threads  serial per plan
 * Errors   —
 * Since    0.1
 */
ENGINE_API void engine_plan_destroy(engine_plan *plan);

enum { ENGINE_PLAN_FULL_FILE_HASH = 1 /* read the whole file for model.file_hash_full */ };

/* engine_plan_json: a plan as canonical JSON (schema "engine.plan/1").
 *
 *   plan      in   handle
 *   flags     in   ENGINE_PLAN_*
 *   text      out  char[capacity]   UTF-8, not NUL-terminated
 *   capacity  in   bytes       0 to ask for the size
 *   n_bytes   out  bytes       written, or needed when BUFFER_TOO_SMALL
 *   error     out  struct      may be NULL
 *
 * Effect   Keys are sorted; "hash" is XXH3-128 over everything but itself and provenance.time.
 * Threads  any
 * Errors   ARGUMENT, TOO_NEW, BUFFER_TOO_SMALL, MEMORY (same)
 * Since    0.1
 */
ENGINE_API int32_t engine_plan_json(const engine_plan *plan, uint32_t flags, char *text,
                                    uint64_t capacity, uint64_t *n_bytes, engine_error *error);

/* engine_plan_verify: compile a stored plan anew and compare.
 *
 *   model    in   handle
 *   json     in   char[n_bytes]   from engine_plan_json
 *   n_bytes  in   bytes
 *   error    out  struct      may be NULL; says the first difference and its place in the plan
 *
 * Effect   Checks the hash, every memory overlap of the arena, and that this library, model and machine give
 *          the same plan.
 * Threads  any
 * Errors   ARGUMENT (no plan, or damaged), PLAN (differs), TOO_NEW (another schema), MEMORY
 * Since    0.1
 */
ENGINE_API int32_t engine_plan_verify(const engine_model *model, const char *json, uint64_t n_bytes,
                                      engine_error *error);

/* engine_plan_diff: what differs between two stored plans, and why.
 *
 *   a         in   char[a_bytes]    from engine_plan_json
 *   a_bytes   in   bytes
 *   b         in   char[b_bytes]
 *   b_bytes   in   bytes
 *   text      out  char[capacity]   a line per difference; empty = equal
 *   capacity  in   bytes     0 to ask for the size
 *   n_bytes   out  bytes     written, or needed when BUFFER_TOO_SMALL
 *   error     out  struct    may be NULL
 *
 * Effect   —
 * Threads  any
 * Errors   ARGUMENT (no plan), TOO_NEW (another schema), BUFFER_TOO_SMALL, MEMORY
 * Since    0.1
 */
ENGINE_API int32_t engine_plan_diff(const char *a, uint64_t a_bytes, const char *b,
                                    uint64_t b_bytes, char *text, uint64_t capacity,
                                    uint64_t *n_bytes, engine_error *error);

/* ---- sampling ------------------------------------------------------------------------------------- */

/* Applied in this order: penalties, top_k, top_p, min_p, temperature, draw. */
typedef struct engine_sampler_params {
  uint32_t struct_size;
  uint32_t
      has_seed; /* 0 = a seed is drawn from the operating system (engine_sampler_seed tells it) */
  uint64_t seed;
  float temperature;       /* <= 0 = greedy: the largest logit, ties to the lowest id */
  int32_t top_k;           /* keep the k largest; <= 0 = off */
  float top_p;             /* keep the shortest prefix with sum >= top_p; >= 1 = off */
  float min_p;             /* keep p >= min_p * p_max; <= 0 = off */
  float repeat_penalty;    /* z > 0 ? z / r : z * r for each token in the window; 1 or 0 = off */
  float frequency_penalty; /* z -= f * count; 0 = off */
  float presence_penalty;  /* z -= s where count > 0; 0 = off */
  int32_t penalty_last_n;  /* window in accepted tokens; 0 = penalties off, -1 = all */
} engine_sampler_params;
#define ENGINE_SAMPLER_PARAMS_INIT \
  { (uint32_t)sizeof(engine_sampler_params), 0, 0, 0.0f, 0, 1.0f, 0.0f, 1.0f, 0.0f, 0.0f, 64 }

/* engine_sampler_create: a sampler; the initialiser's values are greedy.
 *
 *   params   in   struct      NULL = greedy
 *   sampler  out  handle      yours to destroy
 *   error    out  struct      may be NULL
 *
 * Effect   —
 * Threads  any
 * Errors   ARGUMENT (a NaN, top_p < 0, repeat_penalty < 0, ...), TOO_NEW, MEMORY
 * Since    0.1
 */
ENGINE_API int32_t engine_sampler_create(const engine_sampler_params *params,
                                         engine_sampler **sampler, engine_error *error);

/* engine_sampler_destroy: release a sampler.
 *
 *   sampler  in   handle      NULL is allowed
 *
 * Effect   —
 * Threads  serial per sampler
 * Errors   —
 * Since    0.1
 */
ENGINE_API void engine_sampler_destroy(engine_sampler *sampler);

/* engine_sampler_seed: the seed in use, given or drawn.
 *
 *   sampler  in   handle
 *
 * Effect   Returns the seed; 0 for NULL.
 * Threads  serial per sampler
 * Errors   —
 * Since    0.1
 */
ENGINE_API uint64_t engine_sampler_seed(const engine_sampler *sampler);

/* engine_sampler_accept: tell the penalties about a token (of the prompt, or chosen elsewhere).
 *
 *   sampler  in   handle
 *   id       in   0 ..
 *
 * Effect   Enters the history.
 * Threads  serial per sampler
 * Errors   ARGUMENT, MEMORY (same)
 * Since    0.1
 */
ENGINE_API int32_t engine_sampler_accept(engine_sampler *sampler, int32_t id);

/* engine_sampler_sample: choose the next token and accept it.
 *
 *   sampler  in   handle
 *   logits   in   float[n_vocab]   not changed
 *   n_vocab  in   count
 *   id       out  the token
 *   error    out  struct           may be NULL
 *
 * Effect   One random number per call unless greedy; equal seed, logits and history give equal tokens everywhere.
 * Threads  serial per sampler
 * Errors   ARGUMENT, NONFINITE (a NaN or +infinity among the logits, or no finite one) (same), MEMORY (same)
 * Since    0.1
 */
ENGINE_API int32_t engine_sampler_sample(engine_sampler *sampler, const float *logits,
                                         uint64_t n_vocab, int32_t *id, engine_error *error);

/* engine_sampler_save: a sampler as bytes: parameters, random state, history.
 *
 *   sampler   in   handle
 *   data      out  uint8_t[capacity]
 *   capacity  in   bytes       0 to ask for the size
 *   n_bytes   out  bytes       written, or needed when BUFFER_TOO_SMALL; exact
 *   error     out  struct      may be NULL
 *
 * Effect   —
 * Threads  serial per sampler
 * Errors   ARGUMENT, BUFFER_TOO_SMALL, MEMORY (same)
 * Since    0.1
 */
ENGINE_API int32_t engine_sampler_save(const engine_sampler *sampler, void *data, uint64_t capacity,
                                       uint64_t *n_bytes, engine_error *error);

/* engine_sampler_restore: go on where a saved sampler was.
 *
 *   sampler  in   handle      takes the saved parameters, too
 *   data     in   uint8_t[n_bytes]
 *   n_bytes  in   bytes
 *   error    out  struct      may be NULL
 *
 * Effect   Draws what the saved sampler would have drawn.
 * Threads  serial per sampler
 * Errors   ARGUMENT, CORRUPT (cut or changed), TOO_NEW (another format version), MEMORY (same)
 * Since    0.1
 */
ENGINE_API int32_t engine_sampler_restore(engine_sampler *sampler, const void *data,
                                          uint64_t n_bytes, engine_error *error);

#ifdef __cplusplus
}
#endif
#endif /* ENGINE_H_ */
