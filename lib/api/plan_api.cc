// engine.h, plan: create, JSON, verify, diff.
#include <algorithm>
#include <ctime>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lib/api/hook_params.h"
#include "lib/api/session_handle.h"
#include "lib/plan/plan_diff.h"
#include "lib/plan/plan_facts.h"
#include "lib/plan/plan_json.h"
#include "lib/plan/plan_verify.h"

using engine::Code;
using engine::api::guard;

struct engine_plan {
  const engine_model* model;
  std::shared_ptr<const engine::Plan> plan;
};

namespace {

absl::Status copy_text_out(const std::string& text, char* to, uint64_t capacity,
                           uint64_t* n_bytes) {
  return engine::api::copy_out(text.data(), text.size(), to, capacity, n_bytes);
}

}  // namespace

extern "C" {

int32_t engine_plan_create(const engine_model* model, const engine_session_params* params,
                           const engine_hook_params* hooks, uint64_t n_hooks, engine_plan** plan,
                           engine_error* error) {
  return guard(error, [&]() -> absl::Status {
    if (plan == nullptr) return engine::error(Code::kArgument, "the handle pointer is NULL");
    *plan = nullptr;
    if (model == nullptr) return engine::error(Code::kArgument, "the model is NULL");
    if (!model->program) return engine::error(Code::kState, "the model was opened without weights");
    if (hooks == nullptr && n_hooks > 0)
      return engine::error(Code::kArgument, "the hooks are NULL");
    ENGINE_ASSIGN_OR_RETURN(auto choice, engine::api::read_session_params(*model, params));
    ENGINE_ASSIGN_OR_RETURN(choice.key.n_threads,
                            engine::api::thread_count_of(*model, choice.n_threads));
    std::vector<engine::SiteMask> layer_sites;
    engine::SiteMask global_sites = 0;
    for (uint64_t i = 0; i < n_hooks; ++i) {
      ENGINE_ASSIGN_OR_RETURN(const engine::HookSpec spec, engine::api::read_hook_site(&hooks[i]));
      ENGINE_RETURN_IF_ERROR(
          engine::select_sites(*model->program, spec, &layer_sites, &global_sites));
    }
    engine::api::set_hook_sites(std::move(layer_sites), global_sites, &choice.key);
    ENGINE_ASSIGN_OR_RETURN(auto compiled, model->plans.get(*model->program, choice.key));
    *plan = new engine_plan{model, std::move(compiled)};
    return absl::OkStatus();
  });
}

int32_t engine_memory_forecast(const engine_model* model, const engine_session_params* params,
                               engine_memory* memory, engine_error* error) {
  return guard(error, [&]() -> absl::Status {
    if (model == nullptr) return engine::error(Code::kArgument, "the model is NULL");
    if (!model->program) return engine::error(Code::kState, "the model was opened without weights");
    ENGINE_ASSIGN_OR_RETURN(auto choice, engine::api::read_session_params(*model, params));
    ENGINE_ASSIGN_OR_RETURN(choice.key.n_threads,
                            engine::api::thread_count_of(*model, choice.n_threads));
    ENGINE_ASSIGN_OR_RETURN(const auto plan, model->plans.get(*model->program, choice.key));
    const auto need = engine::WeightStore::need(*model->program, *plan);
    engine_memory value = ENGINE_MEMORY_INIT;
    value.packed_bytes = need.packed_bytes;
    value.packing_bytes = need.buffer_bytes;
    value.stored_bytes = need.stored_bytes;
    const int64_t n_pages =
        (plan->key.n_ctx + plan->kv.page_positions - 1) / plan->kv.page_positions;
    value.kv_bytes = static_cast<uint64_t>(n_pages * plan->kv.page_bytes);
    value.scratch_bytes =
        static_cast<uint64_t>(std::max(plan->decode.arena.bytes, plan->prefill.arena.bytes));
    value.peak_bytes =
        value.packed_bytes + std::max(value.packing_bytes, value.kv_bytes + value.scratch_bytes);
    return engine::api::write_struct(value, memory);
  });
}

int32_t engine_session_plan(const engine_session* session, engine_plan** plan,
                            engine_error* error) {
  return guard(error, [&]() -> absl::Status {
    if (plan == nullptr) return engine::error(Code::kArgument, "the handle pointer is NULL");
    *plan = nullptr;
    ENGINE_ASSIGN_OR_RETURN(const engine::Session* const s, engine::api::session_of(session));
    *plan = new engine_plan{session->model, s->shared_plan()};
    return absl::OkStatus();
  });
}

void engine_plan_destroy(engine_plan* plan) { delete plan; }

int32_t engine_plan_json(const engine_plan* plan, uint32_t flags, char* text, uint64_t capacity,
                         uint64_t* n_bytes, engine_error* error) {
  return guard(error, [&]() -> absl::Status {
    if (plan == nullptr) return engine::error(Code::kArgument, "the plan is NULL");
    if ((flags & ~uint32_t{ENGINE_PLAN_FULL_FILE_HASH}) != 0) {
      return engine::error(Code::kTooNew, "unknown flag bits are set");
    }
    const engine_model& model = *plan->model;
    const engine::PlanModelFacts facts = engine::plan_model_facts(
        *model.model, model.file.bytes(), (flags & ENGINE_PLAN_FULL_FILE_HASH) != 0);
    const engine::PlanStamp stamp{engine_version_string(),
                                  static_cast<int64_t>(std::time(nullptr))};
    ENGINE_ASSIGN_OR_RETURN(const std::string json,
                            engine::plan_json(*model.program, *plan->plan, facts, stamp));
    return copy_text_out(json, text, capacity, n_bytes);
  });
}

int32_t engine_plan_verify(const engine_model* model, const char* json, uint64_t n_bytes,
                           engine_error* error) {
  return guard(error, [&]() -> absl::Status {
    if (model == nullptr || json == nullptr) {
      return engine::error(Code::kArgument, "a pointer is NULL");
    }
    if (!model->program) return engine::error(Code::kState, "the model was opened without weights");
    return engine::verify_plan({json, n_bytes}, *model->model, *model->program,
                               engine_version_string());
  });
}

int32_t engine_plan_diff(const char* a, uint64_t a_bytes, const char* b, uint64_t b_bytes,
                         char* text, uint64_t capacity, uint64_t* n_bytes, engine_error* error) {
  return guard(error, [&]() -> absl::Status {
    if (a == nullptr || b == nullptr) return engine::error(Code::kArgument, "a pointer is NULL");
    ENGINE_ASSIGN_OR_RETURN(const std::string lines,
                            engine::diff_plans({a, a_bytes}, {b, b_bytes}));
    return copy_text_out(lines, text, capacity, n_bytes);
  });
}

}  // extern "C"
