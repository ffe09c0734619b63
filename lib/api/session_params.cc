// Session parameters to a plan's key; the threads of a session.
#include <algorithm>
#include <string>
#include <utility>

#include "lib/api/session_handle.h"
#include "lib/base/thread_runner.h"

namespace engine::api {
namespace {

constexpr int64_t kDefaultContext = 4096;
constexpr int64_t kMaxContext = int64_t{1} << 24;
constexpr int64_t kDefaultChunk = 128;
constexpr int64_t kMaxChunk = 65536;
constexpr uint32_t kMaxThreads = 1024;

absl::StatusOr<Target> choose_target(const char* name) {
  const auto targets = cpu_targets();
  if (name == nullptr) return targets.front();
  std::string known;
  for (const Target target : targets) {
    if (target_name(target) == name) return target;
    absl::StrAppend(&known, known.empty() ? "" : ", ", target_name(target));
  }
  return error(Code::kDevice,
               absl::StrCat("CPU target \"", name, "\" is not available here; available: ", known));
}

absl::StatusOr<Mode> choose_mode(int32_t mode) {
  switch (mode) {
    case ENGINE_MODE_DEFAULT:
    case ENGINE_MODE_PLANNED_FUSED: return Mode::kPlannedFused;
    case ENGINE_MODE_PLANNED: return Mode::kPlanned;
    case ENGINE_MODE_REFERENCE: return Mode::kReference;
    default: return error(Code::kArgument, "mode is not an ENGINE_MODE_ value");
  }
}

}  // namespace

absl::StatusOr<SessionChoice> read_session_params(const engine_model& model,
                                                  const engine_session_params* params) {
  engine_session_params p = ENGINE_SESSION_PARAMS_INIT;
  if (params != nullptr) ENGINE_RETURN_IF_ERROR(read_struct(params, sizeof(uint32_t), &p));
  SessionChoice choice;
  PlanKey& key = choice.key;
  const int64_t trained = model.program->n_ctx_train;
  key.n_ctx = p.n_ctx == 0 ? std::min(trained, kDefaultContext) : int64_t{p.n_ctx};
  if (key.n_ctx > kMaxContext) {
    return error(Code::kArgument, absl::StrCat("n_ctx is above ", kMaxContext));
  }
  if (key.n_ctx > trained) {
    model.log.warning(absl::StrCat("n_ctx ", key.n_ctx, " is above the ", trained,
                                   " positions that the model was trained for"));
  }
  key.prefill_chunk = p.prefill_chunk == 0 ? kDefaultChunk : int64_t{p.prefill_chunk};
  key.prefill_chunk = std::min({key.prefill_chunk, key.n_ctx, kMaxChunk});
  if (p.kv_type < ENGINE_KV_F16 || p.kv_type > ENGINE_KV_Q8_0) {
    return error(Code::kArgument, "kv_type is not an ENGINE_KV_ value");
  }
  key.kv = static_cast<KvType>(p.kv_type);
  ENGINE_ASSIGN_OR_RETURN(key.mode, choose_mode(p.mode));
  ENGINE_ASSIGN_OR_RETURN(key.target, choose_target(p.target));
  if ((p.without_fusions & ~kAllFusions) != 0) {
    return error(Code::kTooNew, "unknown bits in without_fusions");
  }
  key.fusions = kAllFusions & ~p.without_fusions;
  if (p.weights != ENGINE_WEIGHTS_PACKED && p.weights != ENGINE_WEIGHTS_STORED) {
    return error(Code::kArgument, "weights is not an ENGINE_WEIGHTS_ value");
  }
  key.packed = p.weights == ENGINE_WEIGHTS_PACKED;
  if (p.kernels != nullptr) key.kernel_pattern = p.kernels;
  choice.n_threads = p.n_threads;
  choice.sequence = p.sequence;
  return choice;
}

absl::StatusOr<uint32_t> thread_count_of(const engine_model& model, uint32_t n_threads) {
  if (n_threads > kMaxThreads) {
    return error(Code::kArgument, absl::StrCat("n_threads is above ", kMaxThreads));
  }
  if (model.host.parallel_for != nullptr) {
    const uint32_t available = std::max(model.host.runner_threads, 1u);
    return n_threads == 0 ? available : std::min(n_threads, available);
  }
  return n_threads == 0 ? default_thread_count() : n_threads;
}

absl::StatusOr<std::unique_ptr<ThreadRunner>> make_runner(const engine_model& model,
                                                          uint32_t n_threads) {
  ENGINE_ASSIGN_OR_RETURN(const uint32_t n, thread_count_of(model, n_threads));
  const engine_host& host = model.host;
  if (host.parallel_for != nullptr) return make_host_runner(host.user, host.parallel_for, n);
  return make_pool(n);
}

void set_hook_sites(std::vector<SiteMask> layer_sites, SiteMask global_sites, PlanKey* key) {
  key->layer_sites = std::move(layer_sites);
  key->global_sites = global_sites;
  if (std::all_of(key->layer_sites.begin(), key->layer_sites.end(),
                  [](SiteMask mask) { return mask == 0; })) {
    key->layer_sites.clear();  // "no hooks" has one form
  }
}

absl::Status replan(engine_session* handle, std::vector<SiteMask> layer_sites,
                    SiteMask global_sites) {
  PlanKey key = handle->key;
  set_hook_sites(std::move(layer_sites), global_sites, &key);
  if (key == handle->session->plan().key) return absl::OkStatus();
  const engine_model& model = *handle->model;
  ENGINE_ASSIGN_OR_RETURN(auto plan, model.plans.get(*model.program, key));
  return handle->session->bind(std::move(plan));
}

absl::StatusOr<Session*> session_of(engine_session* handle) {
  if (handle == nullptr) return error(Code::kArgument, "the session is NULL");
  return handle->session.get();
}

absl::StatusOr<const Session*> session_of(const engine_session* handle) {
  if (handle == nullptr) return error(Code::kArgument, "the session is NULL");
  return static_cast<const Session*>(handle->session.get());
}

}  // namespace engine::api
