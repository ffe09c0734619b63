// engine.h, hooks: sites, register, remove, scopes, counters, kinds of tokens.
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/api/hook_params.h"
#include "lib/api/session_handle.h"
#include "lib/plan/site_route.h"

using engine::Code;
using engine::api::guard;
using engine::api::session_of;

namespace {

// The session of a handle, which must not be in a call: kState from a callback.
absl::StatusOr<engine::Session*> idle_session(engine_session* handle) {
  ENGINE_ASSIGN_OR_RETURN(engine::Session * session, session_of(handle));
  if (session->in_call()) return engine::error(Code::kState, "called from a hook callback");
  return session;
}

absl::Status replan(engine_session* handle, const engine::Hooks& hooks) {
  std::vector<engine::SiteMask> layers;
  engine::SiteMask global = 0;
  hooks.masks(&layers, &global);
  return engine::api::replan(handle, std::move(layers), global);
}

// Takes a new hook back unless it is kept, also when an exception passes.
class Registration {
 public:
  Registration(engine::Hooks* hooks, uint64_t id) : hooks_(hooks), id_(id) {}
  ~Registration() {
    if (hooks_ != nullptr) (void)hooks_->remove(id_);
  }
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;
  void keep() { hooks_ = nullptr; }

 private:
  engine::Hooks* hooks_;
  const uint64_t id_;
};

// Ends a removal that has begun, also when an exception passes; hooks stay unless it was completed.
class Removal {
 public:
  explicit Removal(engine::Hooks* hooks) : hooks_(hooks) {}
  ~Removal() { hooks_->end_removal(is_done_); }
  Removal(const Removal&) = delete;
  Removal& operator=(const Removal&) = delete;
  void complete() { is_done_ = true; }

 private:
  engine::Hooks* const hooks_;
  bool is_done_ = false;
};

absl::Status finish_removal(engine_session* handle, engine::Hooks* hooks) {
  Removal removal(hooks);
  ENGINE_RETURN_IF_ERROR(replan(handle, *hooks));
  removal.complete();
  return absl::OkStatus();
}

// Width, heads and layers of a site in a model.
void describe_site(const engine::Program& program, const engine::SiteInfo& site,
                   engine_hook_site_info* info) {
  const auto index = static_cast<size_t>(site.site);
  const auto add = [&](const engine::SiteShape& shape) {
    if (!shape.present()) return;
    if (info->n_layers++ > 0) return;
    info->width = static_cast<uint32_t>(shape.width);
    info->n_heads = static_cast<uint32_t>(shape.n_heads);
  };
  if (!site.per_layer) add(program.global_sites[index]);
  if (site.per_layer) {
    for (const engine::SiteShapes& shapes : program.layer_sites) add(shapes[index]);
  }
}

}  // namespace

extern "C" {

int32_t engine_hook_site_at(const engine_model* model, uint32_t index,
                            engine_hook_site_info* info) {
  return guard(nullptr, [&]() -> absl::Status {
    if (model == nullptr) return engine::error(Code::kArgument, "the model is NULL");
    if (!model->program) return engine::error(Code::kState, "the model was opened without weights");
    if (index >= engine::site_table().size()) {
      return engine::error(Code::kArgument, "the index is past the end");
    }
    const engine::SiteInfo& site = engine::site_table()[index];
    engine_hook_site_info value = ENGINE_HOOK_SITE_INFO_INIT;
    value.site = static_cast<int32_t>(site.site);
    value.per_layer = site.per_layer ? 1 : 0;
    value.writable = site.writable ? 1 : 0;
    describe_site(*model->program, site, &value);
    engine::api::copy_text(site.name, value.name, sizeof(value.name));
    engine::api::copy_text(site.alias, value.alias, sizeof(value.alias));
    ENGINE_ASSIGN_OR_RETURN(const auto routes, engine::default_routes(*model->program));
    const auto route = routes[static_cast<size_t>(site.site)].kind;
    if (route != engine::SiteRoute::Kind::kAbsent) {
      engine::api::copy_text(engine::site_route_name(route), value.route, sizeof(value.route));
    }
    return engine::api::write_struct(value, info);
  });
}

int32_t engine_hook_register(engine_session* session, const engine_hook_params* params,
                             uint64_t* hook, engine_error* error) {
  return guard(error, [&]() -> absl::Status {
    if (hook == nullptr) return engine::error(Code::kArgument, "the hook pointer is NULL");
    *hook = 0;
    ENGINE_ASSIGN_OR_RETURN(engine::Session * s, idle_session(session));
    ENGINE_ASSIGN_OR_RETURN(engine::HookSpec spec, engine::api::read_hook(params));
    ENGINE_ASSIGN_OR_RETURN(const uint64_t id, s->hooks().add(std::move(spec)));
    Registration registration(&s->hooks(), id);
    ENGINE_RETURN_IF_ERROR(replan(session, s->hooks()));
    registration.keep();
    *hook = id;
    return absl::OkStatus();
  });
}

int32_t engine_hook_remove(engine_session* session, uint64_t hook, engine_error* error) {
  return guard(error, [&]() -> absl::Status {
    ENGINE_ASSIGN_OR_RETURN(engine::Session * s, idle_session(session));
    ENGINE_RETURN_IF_ERROR(s->hooks().begin_remove(hook));
    return finish_removal(session, &s->hooks());
  });
}

int32_t engine_hook_scope_open(engine_session* session, uint64_t* scope, engine_error* error) {
  return guard(error, [&]() -> absl::Status {
    if (scope == nullptr) return engine::error(Code::kArgument, "the scope pointer is NULL");
    *scope = 0;
    ENGINE_ASSIGN_OR_RETURN(engine::Session * s, idle_session(session));
    *scope = s->hooks().open_scope();
    return absl::OkStatus();
  });
}

int32_t engine_hook_scope_close(engine_session* session, uint64_t scope, engine_error* error) {
  return guard(error, [&]() -> absl::Status {
    ENGINE_ASSIGN_OR_RETURN(engine::Session * s, idle_session(session));
    ENGINE_RETURN_IF_ERROR(s->hooks().begin_close_scope(scope));
    return finish_removal(session, &s->hooks());
  });
}

int32_t engine_hook_stats_get(const engine_session* session, uint64_t hook,
                              engine_hook_stats* stats) {
  return guard(nullptr, [&]() -> absl::Status {
    ENGINE_ASSIGN_OR_RETURN(const engine::Session* s, session_of(session));
    ENGINE_ASSIGN_OR_RETURN(const engine::HookStats counted, s->hooks().stats(hook));
    engine_hook_stats value = ENGINE_HOOK_STATS_INIT;
    value.calls = counted.calls;
    value.positions = counted.positions;
    value.prefill_positions = counted.prefill_positions;
    value.decode_positions = counted.decode_positions;
    value.writes = counted.writes;
    value.rows_captured = counted.rows_captured;
    value.rows_dropped = counted.rows_dropped;
    return engine::api::write_struct(value, stats);
  });
}

int32_t engine_session_tokens_are(engine_session* session, int32_t kind) {
  return guard(nullptr, [&]() -> absl::Status {
    ENGINE_ASSIGN_OR_RETURN(engine::Session * s, idle_session(session));
    if (kind < ENGINE_TOKENS_AUTO || kind > ENGINE_TOKENS_GENERATED) {
      return engine::error(Code::kArgument, "kind is not an ENGINE_TOKENS_ value");
    }
    s->tokens_are(static_cast<engine::TokenKind>(kind));
    return absl::OkStatus();
  });
}

}  // extern "C"
