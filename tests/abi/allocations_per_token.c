/* Gate E: after warm-up a decode allocates nothing but a KV page for every 64 positions, whatever hooks are
 * active; calls of all threads are counted, by interposing malloc. */
#include "abi_session.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || \
    __has_feature(memory_sanitizer)
#define SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#endif

#if defined(SANITIZED) || !defined(__GLIBC__)
int main(void) {
  puts("needs glibc's allocator");
  return 77;
}
#else

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *block, size_t n);
void *__libc_memalign(size_t alignment, size_t n);
int posix_memalign(void **block, size_t alignment, size_t n);
void *aligned_alloc(size_t alignment, size_t n);
void *memalign(size_t alignment, size_t n);

/* The build hides symbols; these must be seen by the library. */
#define INTERPOSE __attribute__((visibility("default")))

static uint64_t n_allocations;
static void count_one(void) { __atomic_fetch_add(&n_allocations, 1, __ATOMIC_RELAXED); }
static uint64_t allocations(void) { return __atomic_load_n(&n_allocations, __ATOMIC_RELAXED); }

INTERPOSE void *malloc(size_t n) {
  count_one();
  return __libc_malloc(n);
}
INTERPOSE void *calloc(size_t n, size_t size) {
  count_one();
  return __libc_calloc(n, size);
}
INTERPOSE void *realloc(void *block, size_t n) {
  count_one();
  return __libc_realloc(block, n);
}
INTERPOSE void *memalign(size_t alignment, size_t n) {
  count_one();
  return __libc_memalign(alignment, n);
}
INTERPOSE void *aligned_alloc(size_t alignment, size_t n) {
  count_one();
  return __libc_memalign(alignment, n);
}
INTERPOSE int posix_memalign(void **block, size_t alignment, size_t n) {
  count_one();
  *block = __libc_memalign(alignment, n);
  return *block ? 0 : 12; /* ENOMEM */
}

enum { N_CTX = 128, WARM_UP = 12, PAGE = 64, CAPTURE_ROWS = 16 };

static float capture[3][CAPTURE_ROWS * TOY_HEADS * N_CTX];
static engine_capture_record records[CAPTURE_ROWS];
static float values[4 * TOY_EMBD];

static int32_t halve(void *user, const engine_hook_event *event, float *rows) {
  ++*(int *)user;
  for (uint64_t i = 0; i < event->n_rows * event->width; ++i) rows[i] *= 0.5f;
  return 0;
}

static void hook(engine_session *session, engine_hook_params params) {
  engine_error error = ENGINE_ERROR_INIT;
  uint64_t id = 0;
  CHECK_STATUS(engine_hook_register(session, &params, &id, &error), ENGINE_OK);
  if (!id) fprintf(stderr, "%s: %s\n", params.site, error.message);
}

static engine_hook_params hook_of(int32_t action, const char *site) {
  engine_hook_params params = ENGINE_HOOK_PARAMS_INIT;
  params.action = action;
  params.site = site;
  return params;
}

static void register_all(engine_session *session, int *n_calls) {
  static const char *const kCaptured[3] = {"resid_post", "attn_pattern", "q_rope"};
  for (int i = 0; i < 3; ++i) {
    engine_hook_params p = hook_of(ENGINE_HOOK_CAPTURE, kCaptured[i]);
    p.capture = capture[i];
    p.capture_records = i == 0 ? records : NULL;
    p.capture_rows = CAPTURE_ROWS;
    p.capture_flags = i == 2 ? ENGINE_CAPTURE_POST : ENGINE_CAPTURE_RING;
    hook(session, p);
  }
  engine_hook_params p = hook_of(ENGINE_HOOK_WRITE, "ffn_act");
  p.callback = halve;
  p.user = n_calls;
  hook(session, p);
  p = hook_of(ENGINE_HOOK_READ, "logits");
  p.callback = halve;
  p.user = n_calls;
  hook(session, p);
  p = hook_of(ENGINE_HOOK_ADD, "attn_out");
  p.values = values;
  p.n_values = TOY_EMBD;
  hook(session, p);
  p.action = ENGINE_HOOK_PROJECT_OUT;
  p.position_select = ENGINE_POSITIONS_EVERY;
  p.position_step = 3;
  hook(session, p);
  p = hook_of(ENGINE_HOOK_LOW_RANK, "ffn_out");
  p.values = values;
  p.n_values = 4 * TOY_EMBD;
  p.rank = 2;
  hook(session, p);
}

/* Decodes up to the context; the worst number of allocations of a call, with and without a new page. */
static void decode_and_count(engine_session *session, uint64_t *n_plain, uint64_t *n_with_page) {
  static float logits[TOY_VOCAB];
  engine_error error = ENGINE_ERROR_INIT;
  int32_t ids[WARM_UP];
  for (int i = 0; i < WARM_UP; ++i) ids[i] = 1 + 7 * i;
  *n_plain = *n_with_page = 0;
  int32_t status = engine_session_decode(session, ids, WARM_UP, logits, &error);
  if (status == ENGINE_OK) status = engine_session_decode(session, ids, 1, logits, &error);
  for (uint64_t p = WARM_UP + 1; p < N_CTX && status == ENGINE_OK;) {
    const uint64_t n =
        p == WARM_UP + 1 || p == PAGE + 1 ? 6 : 1; /* also more than a token at once */
    const uint64_t before = allocations();
    status = engine_session_decode(session, ids, n, logits, &error);
    const uint64_t made = allocations() - before;
    uint64_t *worst = p / PAGE != (p + n - 1) / PAGE || p % PAGE == 0 ? n_with_page : n_plain;
    if (made > *worst) *worst = made;
    p += n;
  }
  CHECK_STATUS(status, ENGINE_OK);
  if (status != ENGINE_OK) fprintf(stderr, "%s\n", error.message);
}

int main(void) {
  toy_file toy = toy_build(1, 1);
  engine_model *model = open_toy_model(&toy);
  for (int i = 0; i < 4 * TOY_EMBD; ++i) values[i] = 0.01f * (float)(i % 7 - 3);
  for (int m = 0; model && m < N_MODES; ++m) {
    for (int with_hooks = 0; with_hooks < 2; ++with_hooks) {
      for (uint32_t n_threads = 1; n_threads <= 3; n_threads += 2) {
        engine_error error = ENGINE_ERROR_INIT;
        engine_session_params params = run_params(kModes[m]);
        uint64_t n_plain = 0, n_with_page = 0;
        int n_calls = 0;
        params.n_ctx = N_CTX;
        params.n_threads = n_threads;
        engine_session *session = create_session(model, &params);
        if (with_hooks) {
          register_all(session, &n_calls);
          CHECK_STATUS(engine_session_profile(session, 1, &error), ENGINE_OK);
        }
        decode_and_count(session, &n_plain, &n_with_page);
        printf("mode %d, %u threads, %s: %llu allocations in a call, %llu with a page\n",
               (int)kModes[m], n_threads, with_hooks ? "hooks" : "no hooks",
               (unsigned long long)n_plain, (unsigned long long)n_with_page);
        if (kModes[m] == ENGINE_MODE_REFERENCE) {
          CHECK(n_plain > 0); /* it allocates: the count works */
        } else {
          CHECK(n_plain == 0 && n_with_page <= 1);
        }
        CHECK((n_calls > 0) == with_hooks);
        engine_session_destroy(session);
      }
    }
  }
  engine_model_close(model);
  free(toy.bytes);
  return abi_done();
}
#endif
