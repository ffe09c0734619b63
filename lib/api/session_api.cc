// engine.h, session: create, decode, truncate, cancel, look.
#include <algorithm>
#include <utility>

#include "lib/api/api_common.h"
#include "lib/base/thread_runner.h"
#include "lib/session/session.h"

using engine::Code;
using engine::api::guard;

struct engine_session {
  engine::Session session;
  engine_session(const engine::Program& program, std::unique_ptr<engine::ThreadRunner> runner,
                 const engine::SessionOptions& options)
      : session(program, std::move(runner), options) {}
};

namespace {

constexpr int64_t kDefaultContext = 4096;
constexpr int64_t kMaxContext = int64_t{1} << 24;
constexpr int64_t kDefaultChunk = 128;
constexpr int64_t kMaxChunk = 65536;
constexpr uint32_t kMaxThreads = 1024;

absl::StatusOr<engine::Target> choose_target(const char* name) {
  const auto targets = engine::cpu_targets();
  if (name == nullptr) return targets.front();
  std::string known;
  for (const engine::Target target : targets) {
    if (engine::target_name(target) == name) return target;
    absl::StrAppend(&known, known.empty() ? "" : ", ", engine::target_name(target));
  }
  return engine::error(Code::kDevice, absl::StrCat("CPU target \"", name,
                                                   "\" is not available here; available: ", known));
}

absl::StatusOr<std::unique_ptr<engine::ThreadRunner>> make_runner(const engine_host& host,
                                                                  uint32_t n_threads) {
  if (n_threads > kMaxThreads) {
    return engine::error(Code::kArgument, absl::StrCat("n_threads is above ", kMaxThreads));
  }
  if (host.parallel_for != nullptr) {
    const uint32_t available = std::max(host.runner_threads, 1u);
    return engine::make_host_runner(host.user, host.parallel_for,
                                    n_threads == 0 ? available : std::min(n_threads, available));
  }
  return engine::make_pool(n_threads == 0 ? engine::default_thread_count() : n_threads);
}

absl::StatusOr<engine::SessionOptions> read_options(const engine_model& model,
                                                    const engine_session_params& params) {
  engine::SessionOptions options;
  const int64_t trained = model.program->n_ctx_train;
  options.n_ctx = params.n_ctx == 0 ? std::min(trained, kDefaultContext) : int64_t{params.n_ctx};
  if (options.n_ctx > kMaxContext) {
    return engine::error(Code::kArgument, absl::StrCat("n_ctx is above ", kMaxContext));
  }
  if (options.n_ctx > trained) {
    model.log.warning(absl::StrCat("n_ctx ", options.n_ctx, " is above the ", trained,
                                   " positions that the model was trained for"));
  }
  options.prefill_chunk = params.prefill_chunk == 0 ? kDefaultChunk : int64_t{params.prefill_chunk};
  options.prefill_chunk = std::min({options.prefill_chunk, options.n_ctx, kMaxChunk});
  if (params.kv_type != ENGINE_KV_F16 && params.kv_type != ENGINE_KV_F32) {
    return engine::error(Code::kArgument, "kv_type is not an ENGINE_KV_ value");
  }
  options.kv_type = params.kv_type == ENGINE_KV_F16 ? engine::KvType::kF16 : engine::KvType::kF32;
  if (params.mode != ENGINE_MODE_DEFAULT && params.mode != ENGINE_MODE_REFERENCE) {
    return engine::error(Code::kArgument, "mode is not an ENGINE_MODE_ value");
  }
  ENGINE_ASSIGN_OR_RETURN(options.target, choose_target(params.target));
  options.memory = model.memory;
  return options;
}

// Host callback behind a session's progress.
void prefill_progress(void* user, uint64_t done, uint64_t total) {
  const auto* host = static_cast<const engine_host*>(user);
  host->progress(host->user, ENGINE_PHASE_PREFILL, done, total);
}

int32_t decode(engine_session* session, const int32_t* ids, uint64_t n_ids, float* logits,
               bool all_rows, engine_error* error) {
  return guard(error, [&]() -> absl::Status {
    if (session == nullptr) return engine::error(Code::kArgument, "the session is NULL");
    if (ids == nullptr) return engine::error(Code::kArgument, "the ids are NULL");
    if (all_rows && logits == nullptr) return engine::error(Code::kArgument, "the logits are NULL");
    return session->session.decode({ids, n_ids}, logits, all_rows);
  });
}

}  // namespace

extern "C" {

int32_t engine_session_create(const engine_model* model, const engine_session_params* params,
                              engine_session** session, engine_error* error) {
  return guard(error, [&]() -> absl::Status {
    if (session == nullptr) return engine::error(Code::kArgument, "the handle pointer is NULL");
    *session = nullptr;
    if (model == nullptr) return engine::error(Code::kArgument, "the model is NULL");
    if (!model->program) return engine::error(Code::kState, "the model was opened without weights");
    engine_session_params p = ENGINE_SESSION_PARAMS_INIT;
    if (params != nullptr) {
      ENGINE_RETURN_IF_ERROR(engine::api::read_struct(params, sizeof(uint32_t), &p));
    }
    ENGINE_ASSIGN_OR_RETURN(engine::SessionOptions options, read_options(*model, p));
    if (model->host.progress != nullptr) {
      options.progress = prefill_progress;
      options.progress_user = const_cast<engine_host*>(&model->host);
    }
    ENGINE_ASSIGN_OR_RETURN(auto runner, make_runner(model->host, p.n_threads));
    *session =
        std::make_unique<engine_session>(*model->program, std::move(runner), options).release();
    return absl::OkStatus();
  });
}

void engine_session_destroy(engine_session* session) { delete session; }

int32_t engine_session_decode(engine_session* session, const int32_t* ids, uint64_t n_ids,
                              float* logits, engine_error* error) {
  return decode(session, ids, n_ids, logits, /*all_rows=*/false, error);
}

int32_t engine_session_decode_all(engine_session* session, const int32_t* ids, uint64_t n_ids,
                                  float* logits, engine_error* error) {
  return decode(session, ids, n_ids, logits, /*all_rows=*/true, error);
}

uint64_t engine_session_position(const engine_session* session) {
  return session == nullptr ? 0 : static_cast<uint64_t>(session->session.position());
}

int32_t engine_session_truncate(engine_session* session, uint64_t n) {
  return guard(nullptr, [&]() -> absl::Status {
    if (session == nullptr) return engine::error(Code::kArgument, "the session is NULL");
    if (n > static_cast<uint64_t>(INT64_MAX))
      return engine::error(Code::kArgument, "n is too large");
    return session->session.truncate(static_cast<int64_t>(n));
  });
}

void engine_session_cancel(engine_session* session) {
  if (session != nullptr) session->session.cancel();
}

int32_t engine_session_stats_get(const engine_session* session, engine_session_stats* stats) {
  return guard(nullptr, [&]() -> absl::Status {
    if (session == nullptr) return engine::error(Code::kArgument, "the session is NULL");
    const engine::Session& s = session->session;
    engine_session_stats value = ENGINE_SESSION_STATS_INIT;
    value.mode = ENGINE_MODE_REFERENCE;
    value.n_threads = s.n_threads();
    value.n_ctx = static_cast<uint32_t>(s.options().n_ctx);
    value.decoded_tokens = s.decoded_tokens();
    value.kv_bytes = s.kv_bytes();
    value.bytes_per_token = s.program().bytes_per_token;
    engine::api::copy_text(engine::target_name(s.options().target), value.target,
                           sizeof(value.target));
    return engine::api::write_struct(value, stats);
  });
}

int32_t engine_session_kernel_at(const engine_session* session, uint32_t index, const char** name,
                                 uint64_t* calls) {
  return guard(nullptr, [&]() -> absl::Status {
    if (session == nullptr || name == nullptr || calls == nullptr) {
      return engine::error(Code::kArgument, "a pointer is NULL");
    }
    const auto counts = session->session.kernel_counts();
    for (size_t i = 0; i < counts.size(); ++i) {
      if (counts[i] == 0 || index-- > 0) continue;
      *name = engine::kernel_rows()[i].name;
      *calls = counts[i];
      return absl::OkStatus();
    }
    return engine::error(Code::kArgument, "the index is past the end");
  });
}

}  // extern "C"
