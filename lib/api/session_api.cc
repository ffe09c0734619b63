// engine.h, session: create, decode, truncate, cancel, look.
#include <algorithm>
#include <functional>
#include <utility>

#include "lib/api/session_handle.h"
#include "lib/base/thread_runner.h"

using engine::Code;
using engine::api::guard;
using engine::api::session_of;

namespace {

// Host callback behind a session's progress.
void prefill_progress(void* user, uint64_t done, uint64_t total) {
  const auto* host = static_cast<const engine_host*>(user);
  host->progress(host->user, ENGINE_PHASE_PREFILL, done, total);
}

absl::StatusOr<engine::PackedWeights> pack_weights(const engine_model& model,
                                                   const engine::Plan& plan,
                                                   engine::ThreadRunner* runner) {
  const engine_host& host = model.host;
  const auto progress = [&host](uint64_t done, uint64_t total) {
    if (host.progress != nullptr) host.progress(host.user, ENGINE_PHASE_REPACK, done, total);
  };
  const std::span<const uint8_t> file = model.file.bytes();
  const auto read = [&](const uint8_t* stored, uint64_t n_bytes, uint8_t* out) -> absl::Status {
    const std::less<const uint8_t*> before;
    if (before(stored, file.data()) || !before(stored, file.data() + file.size())) {
      std::memcpy(out, stored, n_bytes);  // a vector that was converted when the model was opened
      return absl::OkStatus();
    }
    return model.file.read(static_cast<uint64_t>(stored - file.data()), {out, n_bytes});
  };
  // Opening touched the file here and there; packed weights are read from their copies.
  if (plan.key.packed && plan.key.mode != engine::Mode::kReference) {
    model.file.advise(engine::Advice::kDontNeed, 0, file.size());
  } else {
    model.file.advise(engine::Advice::kNormal, 0, file.size());  // read ahead: it is streamed now
  }
  return model.store.prepare(*model.program, plan, runner, model.memory, progress, read);
}

int32_t decode(engine_session* session, const int32_t* ids, uint64_t n_ids, float* logits,
               bool all_rows, engine_error* error) {
  return guard(error, [&]() -> absl::Status {
    ENGINE_ASSIGN_OR_RETURN(engine::Session* const s, session_of(session));
    if (ids == nullptr) return engine::error(Code::kArgument, "the ids are NULL");
    if (all_rows && logits == nullptr) return engine::error(Code::kArgument, "the logits are NULL");
    return s->decode({ids, n_ids}, logits, all_rows);
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
    ENGINE_ASSIGN_OR_RETURN(auto choice, engine::api::read_session_params(*model, params));
    ENGINE_ASSIGN_OR_RETURN(auto runner, engine::api::make_runner(*model, choice.n_threads));
    choice.key.n_threads = runner->n_threads();
    ENGINE_ASSIGN_OR_RETURN(auto plan, model->plans.get(*model->program, choice.key));
    ENGINE_ASSIGN_OR_RETURN(auto packed, pack_weights(*model, *plan, runner.get()));
    engine::SessionOptions options;
    options.memory = model->memory;
    options.sequence = choice.sequence;
    options.prefixes = &model->prefixes;
    options.clock = model->host.clock_ns;
    options.clock_user = model->host.user;
    if (model->host.progress != nullptr) {
      options.progress = prefill_progress;
      options.progress_user = const_cast<engine_host*>(&model->host);
    }
    ENGINE_ASSIGN_OR_RETURN(auto made, engine::Session::create(*model->program, packed,
                                                               std::move(runner), plan, options));
    *session = new engine_session{model, std::move(choice.key), std::move(made), {}};
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
  return session == nullptr ? 0 : static_cast<uint64_t>(session->session->position());
}

int32_t engine_session_truncate(engine_session* session, uint64_t n) {
  return guard(nullptr, [&]() -> absl::Status {
    ENGINE_ASSIGN_OR_RETURN(engine::Session* const s, session_of(session));
    if (n > static_cast<uint64_t>(INT64_MAX))
      return engine::error(Code::kArgument, "n is too large");
    return s->truncate(static_cast<int64_t>(n));
  });
}

void engine_session_cancel(engine_session* session) {
  if (session != nullptr) session->session->cancel();
}

int32_t engine_session_stats_get(const engine_session* session, engine_session_stats* stats) {
  return guard(nullptr, [&]() -> absl::Status {
    ENGINE_ASSIGN_OR_RETURN(const engine::Session* const found, session_of(session));
    const engine::Session& s = *found;
    const engine::PlanKey& key = s.plan().key;
    engine_session_stats value = ENGINE_SESSION_STATS_INIT;
    value.mode = static_cast<int32_t>(key.mode);
    value.n_threads = s.n_threads();
    value.n_ctx = static_cast<uint32_t>(key.n_ctx);
    value.decoded_tokens = s.decoded_tokens();
    value.kv_bytes = s.kv().held_bytes();
    value.prefix_bytes = session->model->prefixes.held_bytes();
    value.kv_own_bytes = s.kv().own_bytes();
    value.bytes_per_token = s.program().bytes_per_token;
    value.packed_bytes = session->model->store.packed_bytes();
    engine::api::copy_text(engine::target_name(key.target), value.target, sizeof(value.target));
    return engine::api::write_struct(value, stats);
  });
}

int32_t engine_session_kernel_at(const engine_session* session, uint32_t index, const char** name,
                                 uint64_t* calls) {
  return guard(nullptr, [&]() -> absl::Status {
    if (session == nullptr || name == nullptr || calls == nullptr) {
      return engine::error(Code::kArgument, "a pointer is NULL");
    }
    const auto counts = session->session->kernel_counts();
    for (size_t i = 0; i < counts.size(); ++i) {
      if (counts[i] == 0 || index-- > 0) continue;
      *name = engine::kernel_rows()[i].name;
      *calls = counts[i];
      return absl::OkStatus();
    }
    return engine::error(Code::kArgument, "the index is past the end");
  });
}

int32_t engine_session_fusion_at(const engine_session* session, uint32_t index, const char** name,
                                 uint64_t* calls) {
  return guard(nullptr, [&]() -> absl::Status {
    ENGINE_ASSIGN_OR_RETURN(const engine::Session* const s, session_of(session));
    if (name == nullptr || calls == nullptr) {
      return engine::error(Code::kArgument, "a pointer is NULL");
    }
    const auto counts = s->fusion_counts();
    if (index >= counts.size()) return engine::error(Code::kArgument, "the index is past the end");
    *name = engine::fusion_name(static_cast<int>(index));
    *calls = counts[index];
    return absl::OkStatus();
  });
}

int32_t engine_session_profile(engine_session* session, int32_t enable, engine_error* error) {
  return guard(error, [&]() -> absl::Status {
    ENGINE_ASSIGN_OR_RETURN(engine::Session* const s, session_of(session));
    if (enable != 0 && enable != 1) return engine::error(Code::kArgument, "enable is not 0 or 1");
    if (enable == 1) return s->start_profile();
    s->stop_profile();
    return absl::OkStatus();
  });
}

int32_t engine_session_profile_at(const engine_session* session, uint32_t index,
                                  engine_profile_entry* entry) {
  return guard(nullptr, [&]() -> absl::Status {
    ENGINE_ASSIGN_OR_RETURN(const engine::Session* const s, session_of(session));
    if (s->profile() == nullptr || index >= s->profile()->n_lines()) {
      return engine::error(Code::kArgument, "the index is past the end");
    }
    const engine::ProfileLine line = s->profile()->line(index);
    engine_profile_entry value = ENGINE_PROFILE_ENTRY_INIT;
    value.layer = line.label->layer;
    value.prefill = line.prefill ? 1 : 0;
    value.fusions = line.label->fusions;
    value.calls = line.calls;
    value.total_ns = line.total_ns;
    value.median_ns = line.median_ns;
    value.p95_ns = line.p95_ns;
    value.bytes = line.bytes;
    engine::api::copy_text(line.label->op, value.op, sizeof(value.op));
    engine::api::copy_text(line.label->tensor, value.tensor, sizeof(value.tensor));
    engine::api::copy_text(line.label->kernel, value.kernel, sizeof(value.kernel));
    return engine::api::write_struct(value, entry);
  });
}

int32_t engine_unembed(engine_session* session, const float* rows, uint64_t n_rows, float* logits,
                       engine_error* error) {
  return guard(error, [&]() -> absl::Status {
    ENGINE_ASSIGN_OR_RETURN(engine::Session* const s, session_of(session));
    if (rows == nullptr || logits == nullptr) {
      return engine::error(Code::kArgument, "a pointer is NULL");
    }
    if (n_rows > static_cast<uint64_t>(INT32_MAX)) {
      return engine::error(Code::kArgument, "n_rows is too large");
    }
    return s->unembed(rows, static_cast<int64_t>(n_rows), logits);
  });
}

}  // extern "C"
