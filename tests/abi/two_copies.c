/* Two copies of the library in one process, each loaded from its own file, work side by side with equal results. */
#define _GNU_SOURCE

#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

#include "abi_check.h"
#include "abi_toy.h"
#include "engine.h"

enum { N_STEPS = 20 };

typedef struct copy_of_library {
  void *handle;
  int32_t (*model_open)(const engine_model_params *, engine_model **, engine_error *);
  void (*model_close)(engine_model *);
  int32_t (*session_create)(const engine_model *, const engine_session_params *, engine_session **,
                            engine_error *);
  void (*session_destroy)(engine_session *);
  int32_t (*session_decode)(engine_session *, const int32_t *, uint64_t, float *, engine_error *);
  const toy_file *toy;
  float logits[N_STEPS][TOY_VOCAB];
  int failed;
} copy_of_library;

/* ISO C forbids the cast of an object pointer to a function pointer; POSIX makes it work. */
static void load_function(void *handle, const char *name, void *function) {
  void *symbol = dlsym(handle, name);
  CHECK(symbol != NULL);
  memcpy(function, &symbol, sizeof(symbol));
}

static int copy_file(const char *from, const char *to) {
  static char block[1 << 16];
  FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
  size_t n = 0, written = 0;
  int ok = in && out;
  while (ok && (n = fread(block, 1, sizeof(block), in)) > 0) {
    ok = fwrite(block, 1, n, out) == n;
    written += n;
  }
  if (in) fclose(in);
  if (out && fclose(out) != 0) ok = 0;
  return ok && written > 0;
}

static void load(copy_of_library *copy, const char *path) {
  copy->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  CHECK(copy->handle != NULL);
  if (!copy->handle) {
    fprintf(stderr, "%s\n", dlerror());
    return;
  }
  load_function(copy->handle, "engine_model_open", &copy->model_open);
  load_function(copy->handle, "engine_model_close", &copy->model_close);
  load_function(copy->handle, "engine_session_create", &copy->session_create);
  load_function(copy->handle, "engine_session_destroy", &copy->session_destroy);
  load_function(copy->handle, "engine_session_decode", &copy->session_decode);
}

static void *decode(void *argument) {
  copy_of_library *copy = argument;
  engine_error error = ENGINE_ERROR_INIT;
  engine_model_params params = ENGINE_MODEL_PARAMS_INIT;
  engine_session_params session_params = ENGINE_SESSION_PARAMS_INIT;
  engine_model *model = NULL;
  engine_session *session = NULL;
  params.data = copy->toy->bytes;
  params.length = copy->toy->n_bytes;
  session_params.n_threads = 2;
  copy->failed = copy->model_open(&params, &model, &error) != ENGINE_OK;
  if (!copy->failed)
    copy->failed = copy->session_create(model, &session_params, &session, &error) != ENGINE_OK;
  for (int32_t i = 0; i < N_STEPS && !copy->failed; ++i) {
    const int32_t id = 1 + 13 * i;
    copy->failed = copy->session_decode(session, &id, 1, copy->logits[i], &error) != ENGINE_OK;
  }
  if (copy->failed) fprintf(stderr, "%s\n", error.message);
  copy->session_destroy(session);
  copy->model_close(model);
  return NULL;
}

int main(void) {
  static copy_of_library copies[2];
  char folder[] = "/tmp/engine_abi_XXXXXX", paths[2][64];
  Dl_info library;
  uint32_t (*version)(void) = engine_api_version;
  void *address = NULL;
  memcpy(&address, &version, sizeof(address));
  if (!mkdtemp(folder)) return 1;
  CHECK(dladdr(address, &library) != 0);
  toy_file toy = toy_build(1, 1);
  for (int i = 0; i < 2; ++i) {
    snprintf(paths[i], sizeof(paths[i]), "%s/copy_%d.so", folder, i);
    CHECK(copy_file(library.dli_fname, paths[i]));
    load(&copies[i], paths[i]);
    copies[i].toy = &toy;
  }
  if (abi_n_failed == 0) {
    CHECK(copies[0].model_open != copies[1].model_open);
    CHECK(copies[0].model_open != engine_model_open); /* and the one that this program links */
    pthread_t threads[2];
    for (int i = 0; i < 2; ++i) CHECK(pthread_create(&threads[i], NULL, decode, &copies[i]) == 0);
    for (int i = 0; i < 2; ++i) pthread_join(threads[i], NULL);
    CHECK(!copies[0].failed && !copies[1].failed);
    CHECK(memcmp(copies[0].logits, copies[1].logits, sizeof(copies[0].logits)) == 0);
    CHECK(copies[0].logits[0][0] != copies[0].logits[1][0]);
    /* One copy goes away, the other still works. */
    dlclose(copies[0].handle);
    decode(&copies[1]);
    CHECK(!copies[1].failed);
    dlclose(copies[1].handle);
  }
  for (int i = 0; i < 2; ++i) unlink(paths[i]);
  rmdir(folder);
  free(toy.bytes);
  return abi_done();
}
