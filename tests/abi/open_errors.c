/* Opening what is no model: by path, descriptor and memory; the error says what and where, nothing leaks. */
#define _POSIX_C_SOURCE 200809L

#include <fcntl.h>
#include <unistd.h>

#include "abi_check.h"
#include "abi_toy.h"
#include "engine.h"

static int n_released = 0;
static void release(void *user, const void *data, uint64_t length) {
  (void)data;
  (void)length;
  n_released += user == &n_released;
}

/* Opens and closes; the status, with a complete error when it is none. */
static int32_t try_open(const engine_model_params *params, engine_error *error) {
  const engine_error empty = ENGINE_ERROR_INIT;
  engine_model *model = (engine_model *)1;
  *error = empty;
  const int32_t status = engine_model_open(params, &model, error);
  CHECK(error->code == status);
  CHECK((status == ENGINE_OK) == (model != NULL));
  if (status != ENGINE_OK) CHECK(error->message[0] != '\0');
  engine_model_close(model);
  return status;
}

static void write_file(const char *path, const void *bytes, uint64_t n) {
  FILE *file = fopen(path, "wb");
  CHECK(file != NULL);
  if (!file) return;
  CHECK(fwrite(bytes, 1, n, file) == n);
  fclose(file);
}

/* Names with a rule first, then those that are refused. */
static void check_pretokenizers(void) {
  int32_t supported = 1, before = 1, n_refused = 0;
  const char *name;
  uint32_t n = 0;
  for (; (name = engine_pretokenizer_at(n, &supported)) != NULL; n++) {
    CHECK(name[0] != '\0');
    CHECK(supported == 0 || (supported == 1 && before == 1));
    n_refused += !supported;
    before = supported;
  }
  CHECK(n > 80 && n_refused > 0 && n_refused < 10);
  CHECK(strcmp(engine_pretokenizer_at(0, NULL), "default") == 0);
}

static void check_paths(const char *folder, const toy_file *toy) {
  engine_error error;
  engine_model_params params = ENGINE_MODEL_PARAMS_INIT;
  char path[512];
  snprintf(path, sizeof(path), "%s/none.gguf", folder);
  params.path = path;
  CHECK_STATUS(try_open(&params, &error), ENGINE_FILE_OPEN);
  params.path = "";
  CHECK_STATUS(try_open(&params, &error), ENGINE_ARGUMENT);
  params.path = folder;
  CHECK_STATUS(try_open(&params, &error), ENGINE_FILE_OPEN);
  params.path = "/dev/null";
  CHECK_STATUS(try_open(&params, &error), ENGINE_FILE_OPEN);

  params.path = path;
  write_file(path, "", 0);
  CHECK_STATUS(try_open(&params, &error), ENGINE_FILE_FORMAT);
  write_file(path, "GGUF", 4);
  CHECK_STATUS(try_open(&params, &error), ENGINE_FILE_FORMAT);
  write_file(path, "this is not a model file, only words in a row", 45);
  CHECK_STATUS(try_open(&params, &error), ENGINE_FILE_FORMAT);
  CHECK(error.offset == 0);
  write_file(path, toy->bytes, toy->n_bytes - 5000);
  CHECK_STATUS(try_open(&params, &error), ENGINE_FILE_FORMAT);
  CHECK(error.name[0] != '\0'); /* the tensor that is cut */
  write_file(path, toy->bytes, toy->n_bytes);
  CHECK_STATUS(try_open(&params, &error), ENGINE_OK);
  params.flags = ENGINE_OPEN_METADATA_ONLY;
  CHECK_STATUS(try_open(&params, &error), ENGINE_OK);
  unlink(path);
}

static void check_descriptors(const char *folder, const toy_file *toy) {
  engine_error error;
  engine_model_params params = ENGINE_MODEL_PARAMS_INIT;
  char path[512];
  uint8_t *shifted = malloc(toy->n_bytes + 4096 + 100);
  params.fd = 9999;
  CHECK_STATUS(try_open(&params, &error), ENGINE_FILE_OPEN);
  if (!shifted) return;
  memset(shifted, 0x55, toy->n_bytes + 4096 + 100);
  memcpy(shifted + 4096, toy->bytes, toy->n_bytes);
  snprintf(path, sizeof(path), "%s/inside.bin", folder);
  write_file(path, shifted, toy->n_bytes + 4096 + 100);
  free(shifted);
  params.fd = open(path, O_RDONLY);
  CHECK(params.fd >= 0);
  CHECK_STATUS(try_open(&params, &error), ENGINE_FILE_FORMAT); /* the first bytes are no model */
  params.offset = 4096;
  params.length = toy->n_bytes;
  CHECK_STATUS(try_open(&params, &error), ENGINE_OK);
  CHECK(fcntl(params.fd, F_GETFD) >= 0); /* still ours */
  params.length = 0; /* to the end of the file: bytes after the last tensor are allowed */
  CHECK_STATUS(try_open(&params, &error), ENGINE_OK);
  params.length = toy->n_bytes + 1000000;
  CHECK(try_open(&params, &error) != ENGINE_OK);
  params.offset = UINT64_MAX - 10;
  params.length = 100;
  CHECK(try_open(&params, &error) != ENGINE_OK);
  close(params.fd);
  unlink(path);
}

static void check_memory(const toy_file *toy) {
  static const uint8_t kGarbage[64] = {1, 2, 3};
  engine_error error;
  engine_model_params params = ENGINE_MODEL_PARAMS_INIT;
  params.release_data = release;
  params.release_user = &n_released;
  params.data = kGarbage;
  params.length = 0;
  CHECK_STATUS(try_open(&params, &error), ENGINE_FILE_FORMAT);
  CHECK(n_released == 1);
  params.length = sizeof(kGarbage);
  CHECK_STATUS(try_open(&params, &error), ENGINE_FILE_FORMAT);
  CHECK(n_released == 2 && error.offset == 0);
  params.path = "two sources";
  CHECK_STATUS(try_open(&params, &error), ENGINE_ARGUMENT);
  CHECK(n_released == 3);
  params.path = NULL;
  params.data = toy->bytes;
  params.length = toy->n_bytes;
  CHECK_STATUS(try_open(&params, &error), ENGINE_OK);
  CHECK(n_released == 4);

  /* Every cut of the head of a good file: an error, and no read past the end (the sanitizer run looks). */
  params.release_data = NULL;
  for (uint64_t length = 0; length < 3000; length += 7) {
    uint8_t *cut = malloc(length ? length : 1);
    if (!cut) break;
    memcpy(cut, toy->bytes, length);
    params.data = cut;
    params.length = length;
    CHECK(try_open(&params, &error) != ENGINE_OK);
    free(cut);
  }
}

/* Well-formed files that are no usable model. */
static void check_contents(const toy_file *toy) {
  engine_error error;
  engine_model_params params = ENGINE_MODEL_PARAMS_INIT;
  toy_file vocabulary = toy_build(0, 1), no_vocabulary = toy_build(1, 0), changed = toy_build(1, 1);
  params.data = vocabulary.bytes;
  params.length = vocabulary.n_bytes;
  CHECK_STATUS(try_open(&params, &error), ENGINE_MODEL_TENSOR);
  CHECK(strcmp(error.name, "token_embd.weight") == 0);
  params.flags = ENGINE_OPEN_VOCAB_ONLY;
  CHECK_STATUS(try_open(&params, &error), ENGINE_OK);
  engine_model *model = NULL;
  engine_session *session = NULL;
  CHECK_STATUS(engine_model_open(&params, &model, &error), ENGINE_OK);
  CHECK_STATUS(engine_session_create(model, NULL, &session, &error), ENGINE_STATE);
  engine_model_close(model);

  params.flags = 0;
  params.data = no_vocabulary.bytes;
  params.length = no_vocabulary.n_bytes;
  CHECK_STATUS(engine_model_open(&params, &model, &error), ENGINE_OK);
  int32_t ids[4] = {1, 2, 3, 4};
  uint64_t n = 0;
  float logits[TOY_VOCAB];
  CHECK_STATUS(engine_tokenize(model, "a", 1, 0, 0, ids, 4, &n, NULL, &error), ENGINE_STATE);
  CHECK_STATUS(engine_session_create(model, NULL, &session, &error), ENGINE_OK);
  CHECK_STATUS(engine_session_decode(session, ids, 4, logits, &error), ENGINE_OK);
  engine_session_destroy(session);
  engine_model_close(model);

  /* an architecture that nobody has, of the same length */
  params.data = changed.bytes;
  params.length = changed.n_bytes;
  for (uint64_t i = 0; i + 5 < 200; ++i) {
    if (memcmp(changed.bytes + i, "llama", 5) == 0) {
      memcpy(changed.bytes + i, "lhama", 5);
      break;
    }
  }
  CHECK_STATUS(try_open(&params, &error), ENGINE_MODEL_ARCHITECTURE);
  CHECK(strstr(error.message, "lhama") != NULL);
  memcpy(changed.bytes, toy->bytes, toy->n_bytes);
  changed.bytes[4] = 9; /* version */
  CHECK_STATUS(try_open(&params, &error), ENGINE_FILE_UNSUPPORTED);
  free(vocabulary.bytes);
  free(no_vocabulary.bytes);
  free(changed.bytes);
}

int main(void) {
  char folder[] = "/tmp/engine_abi_XXXXXX";
  if (!mkdtemp(folder)) return 1;
  toy_file toy = toy_build(1, 1);
  check_pretokenizers();
  check_paths(folder, &toy);
  check_descriptors(folder, &toy);
  check_memory(&toy);
  check_contents(&toy);
  free(toy.bytes);
  rmdir(folder);
  return abi_done();
}
