// Kinds of hooks, and copies of them.
#include "lib/session/hook_entry.h"

#include "absl/strings/str_cat.h"

namespace engine {
namespace {

absl::Status bad(std::string_view message) { return error(Code::kArgument, message); }

}  // namespace

absl::Status check_hook_kind(const HookSpec& spec) {
  const auto kind = static_cast<int32_t>(spec.action);
  const bool known = (kind >= static_cast<int32_t>(HookAction::kCapture) &&
                      kind <= static_cast<int32_t>(HookAction::kWrite)) ||
                     (kind >= static_cast<int32_t>(HookAction::kAdd) &&
                      kind <= static_cast<int32_t>(HookAction::kLowRank));
  if (!known) return bad(absl::StrCat("action ", kind, " is not an ENGINE_HOOK_ value"));
  const bool calls = spec.action == HookAction::kRead || spec.action == HookAction::kWrite;
  if (calls != (spec.callback != nullptr)) {
    return bad(calls ? "the callback is NULL" : "a callback belongs to HOOK_READ and HOOK_WRITE");
  }
  if (!RowAction::is_declared(spec.action) &&
      (!spec.values.empty() || !spec.records.empty() || spec.rank != 0)) {
    return bad("values, records and rank belong to declared writers");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Hook>> copy_hook(const Hook& from, const HostMemory& memory) {
  auto hook = std::make_unique<Hook>();
  hook->id = from.id;
  hook->scope = from.scope;
  hook->kind = from.kind;
  hook->phase = from.phase;
  hook->sites = from.sites;
  hook->positions = from.positions;
  hook->select = from.select;
  hook->registration = from.registration;
  hook->parts = from.parts;
  hook->heads = from.heads;
  hook->action = from.action;
  hook->scratch = from.scratch;
  hook->callback = from.callback;
  hook->user = from.user;
  hook->owned = from.owned;
  hook->now = hook->committed = from.committed;
  if (hook->is_callback()) {
    ENGINE_ASSIGN_OR_RETURN(hook->staging, AlignedBuffer::create(memory, from.staging.size()));
  }
  return hook;
}

}  // namespace engine
