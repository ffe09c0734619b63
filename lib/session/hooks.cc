// The registry and the firing order. An index by site and layer makes firing free of searches.
#include "lib/session/hooks.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/session/attention_probe.h"
#include "lib/session/hook_entry.h"
#include "lib/session/hook_registration.h"

namespace engine {
namespace {

absl::Status bad(std::string_view message) { return error(Code::kArgument, message); }

}  // namespace

struct Hooks::Impl {
  // What fires at one site of one layer.
  struct Stop {
    std::vector<Hook*> hooks;  // in firing order
    int64_t width = 0;
  };

  const Program& program;
  const int64_t n_ctx, max_rows;
  const int32_t sequence;
  const HostMemory memory;
  std::vector<std::unique_ptr<Hook>> hooks;  // in order of registration
  std::vector<Stop> stops;                   // [site][1 + layer]
  std::vector<uint64_t> scopes;
  uint64_t last_id = 0, last_scope = 0;
  uint64_t leaving_scope = 0;
  CallSpan call;
  int64_t prompt_end = 0;
  // Of the hook that is firing: the selected rows.
  std::vector<int64_t> rows, positions;
  std::vector<int32_t> ids;

  Impl(const Program& p, int64_t context, int64_t most_rows, int32_t seq, HostMemory mem)
      : program(p), n_ctx(context), max_rows(most_rows), sequence(seq), memory(mem) {
    stops.resize(static_cast<size_t>(kNumSites) * (program.layers.size() + 1));
    const auto n_layers = static_cast<int32_t>(program.layers.size());
    for (const SiteInfo& info : site_table()) {
      for (int32_t l = -1; l < n_layers; ++l) {
        stop(info.site, l).width = site_width(site_shape(program, info.site, l), n_ctx);
      }
    }
    rows.resize(static_cast<size_t>(max_rows));
    positions.resize(rows.size());
    ids.resize(rows.size());
  }

  size_t stop_index(Site site, int32_t layer) const {
    return static_cast<size_t>(site) * (program.layers.size() + 1) + static_cast<size_t>(layer + 1);
  }
  Stop& stop(Site site, int32_t layer) { return stops[stop_index(site, layer)]; }

  const Hook* find(uint64_t id) const {
    for (const auto& hook : hooks) {
      if (hook->id == id) return hook.get();
    }
    return nullptr;
  }

  absl::StatusOr<std::unique_ptr<Hook>> make(HookSpec spec);
  absl::Status check_widths(const HookSpec& spec, const SiteSelection& sites);
  void insert(std::unique_ptr<Hook> hook);
  void erase_leaving();

  int64_t select(const Hook& hook, const HookRows& from);
  void count(Hook* hook, int64_t n) const;
  absl::Status fire_rows(Hook* hook, Site site, int32_t layer, int64_t width, int64_t n,
                         float* values, int64_t stride);
  void fire_attention_rows(Hook* hook, Site site, int32_t layer, int64_t n,
                           const AttentionProbe& probe, absl::Status* status);
  absl::Status call_back(Hook* hook, Site site, int32_t layer, int64_t width, int64_t first,
                         int64_t n, float* staged) const;
  CaptureRecord record(Site site, int32_t layer, int64_t i) const {
    return {positions[static_cast<size_t>(i)], sequence, ids[static_cast<size_t>(i)],
            static_cast<int32_t>(site), layer};
  }
};

// One array of values, one capture buffer and one choice of heads fit one shape only.
absl::Status Hooks::Impl::check_widths(const HookSpec& spec, const SiteSelection& sites) {
  if (!RowAction::has_values(spec.action) && spec.action != HookAction::kCapture &&
      spec.heads.empty()) {
    return absl::OkStatus();
  }
  const int32_t first = sites.layers.front();
  for (const int32_t layer : sites.layers) {
    if (stop(sites.site, layer).width != stop(sites.site, first).width ||
        site_shape(program, sites.site, layer).n_heads !=
            site_shape(program, sites.site, first).n_heads) {
      return bad(absl::StrCat("\"", site_info(sites.site).name, "\" has ",
                              stop(sites.site, first).width, " values in layer ", first, " and ",
                              stop(sites.site, layer).width, " in layer ", layer,
                              ": they need a hook each"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Hook>> Hooks::Impl::make(HookSpec spec) {
  auto hook = std::make_unique<Hook>();
  ENGINE_RETURN_IF_ERROR(check_hook_kind(spec));
  ENGINE_ASSIGN_OR_RETURN(hook->sites, resolve_sites(program, spec));
  const Site site = hook->sites.site;
  const bool writes = spec.action != HookAction::kCapture && spec.action != HookAction::kRead;
  if (writes && !site_info(site).writable) {
    return bad(absl::StrCat("\"", site_info(site).name, "\" is not writable"));
  }
  ENGINE_RETURN_IF_ERROR(check_sequences(spec, sequence));
  ENGINE_RETURN_IF_ERROR(check_widths(spec, hook->sites));
  ENGINE_ASSIGN_OR_RETURN(hook->positions, PositionSelector::create(spec, n_ctx));
  const SiteShape& shape = site_shape(program, site, hook->sites.layers.front());
  const int64_t width = stop(site, hook->sites.layers.front()).width;
  ENGINE_ASSIGN_OR_RETURN(hook->parts, resolve_heads(spec, site, shape, width));
  ENGINE_ASSIGN_OR_RETURN(hook->capture, CaptureTarget::create(spec, width));
  if (spec.scope != 0 && std::find(scopes.begin(), scopes.end(), spec.scope) == scopes.end()) {
    return bad(absl::StrCat("there is no open scope ", spec.scope));
  }
  if (is_attention_site(site)) {
    hook->heads = spec.heads;
    if (hook->heads.empty()) {
      hook->heads.resize(static_cast<size_t>(shape.n_heads));
      std::iota(hook->heads.begin(), hook->heads.end(), 0);
    }
  }
  hook->select = spec.select;
  if (writes) {
    hook->registration =
        RowAction::is_declared(spec.action) ? registration_hash(spec, hook->sites) : kOpaqueWriters;
  }
  if (RowAction::is_declared(spec.action)) {
    const RowPart whole{0, width};
    const auto parts =
        hook->parts.empty() ? std::span(&whole, 1) : std::span<const RowPart>(hook->parts);
    ENGINE_ASSIGN_OR_RETURN(
        hook->action, RowAction::create(&spec, width, parts, hook->sites, hook->positions, n_ctx));
    hook->scratch.resize(static_cast<size_t>(hook->action.rank));
  }
  hook->kind = spec.action;
  hook->scope = spec.scope;
  if (spec.action == HookAction::kCapture) hook->phase = spec.capture_post ? 2 : 0;
  hook->callback = spec.callback;
  hook->user = spec.user;
  hook->owned = std::move(spec.owned);
  if (hook->is_callback()) {
    int64_t widest = 0;
    for (const int32_t layer : hook->sites.layers)
      widest = std::max(widest, stop(site, layer).width);
    const int64_t n_floats = (is_attention_site(site) ? 1 : max_rows) * widest;
    ENGINE_ASSIGN_OR_RETURN(
        hook->staging,
        AlignedBuffer::create(memory, static_cast<uint64_t>(n_floats) * sizeof(float)));
  }
  return hook;
}

// All memory first, so that a failure leaves the set as it was.
void Hooks::Impl::insert(std::unique_ptr<Hook> hook) {
  hooks.reserve(hooks.size() + 1);
  for (const int32_t layer : hook->sites.layers) {
    auto& list = stop(hook->sites.site, layer).hooks;
    list.reserve(list.size() + 1);
  }
  for (const int32_t layer : hook->sites.layers) {
    auto& list = stop(hook->sites.site, layer).hooks;
    const auto after = std::find_if(list.begin(), list.end(),
                                    [&](const Hook* other) { return other->phase > hook->phase; });
    list.insert(after, hook.get());
  }
  hooks.push_back(std::move(hook));
}

void Hooks::Impl::erase_leaving() {
  for (Stop& stop : stops) {
    std::erase_if(stop.hooks, [](const Hook* hook) { return hook->is_leaving; });
  }
  std::erase_if(hooks, [](const auto& hook) { return hook->is_leaving; });
}

// Fills rows, positions and ids; returns how many.
int64_t Hooks::Impl::select(const Hook& hook, const HookRows& from) {
  size_t n = 0;
  for (int64_t row = 0; row < from.n_rows; ++row) {
    const int64_t position = from.first_position + row;
    if (!hook.positions.matches(position, call)) continue;
    rows[n] = row;
    positions[n] = position;
    ids[n] = from.ids[row];
    ++n;
  }
  return static_cast<int64_t>(n);
}

void Hooks::Impl::count(Hook* hook, int64_t n) const {
  const auto seen = static_cast<uint64_t>(n);
  ++hook->now.calls;
  hook->now.positions += seen;
  (call.generated() ? hook->now.decode_positions : hook->now.prefill_positions) += seen;
}

absl::Status Hooks::Impl::call_back(Hook* hook, Site site, int32_t layer, int64_t width,
                                    int64_t first, int64_t n, float* staged) const {
  const HookEvent event{site, layer, sequence,           call.generated(),
                        n,    width, ids.data() + first, positions.data() + first};
  const int32_t result = hook->callback(hook->user, event, staged);
  if (result == 0) return absl::OkStatus();
  return error(Code::kHookFailed,
               absl::StrCat("the callback of hook ", hook->id, " returned ", result, " at ",
                            site_info(site).name,
                            layer < 0 ? std::string() : absl::StrCat(" of layer ", layer),
                            ", position ", positions[static_cast<size_t>(first)]));
}

absl::Status Hooks::Impl::fire_rows(Hook* hook, Site site, int32_t layer, int64_t width, int64_t n,
                                    float* values, int64_t stride) {
  const auto row_bytes = static_cast<size_t>(width) * sizeof(float);
  const RowPart whole{0, width};
  const auto parts =
      hook->parts.empty() ? std::span(&whole, 1) : std::span<const RowPart>(hook->parts);
  const auto row_at = [&](int64_t i) { return values + rows[static_cast<size_t>(i)] * stride; };
  if (hook->kind == HookAction::kCapture) {
    for (int64_t i = 0; i < n; ++i) {
      float* to = hook->capture.next(record(site, layer, i), &hook->now);
      if (to != nullptr) std::memcpy(to, row_at(i), row_bytes);
    }
    return absl::OkStatus();
  }
  if (!hook->is_callback()) {
    for (int64_t i = 0; i < n; ++i) {
      const bool written =
          apply_action(hook->action, parts, width, positions[static_cast<size_t>(i)], layer,
                       row_at(i), hook->scratch.data());
      hook->now.writes += written ? 1 : 0;
    }
    return absl::OkStatus();
  }
  float* staged = hook->staging.as<float>();
  for (int64_t i = 0; i < n; ++i) std::memcpy(staged + i * width, row_at(i), row_bytes);
  ENGINE_RETURN_IF_ERROR(call_back(hook, site, layer, width, 0, n, staged));
  if (hook->kind == HookAction::kRead) return absl::OkStatus();
  for (int64_t i = 0; i < n; ++i) {
    for (const RowPart part : parts) {
      std::memcpy(row_at(i) + part.begin, staged + i * width + part.begin,
                  static_cast<size_t>(part.end - part.begin) * sizeof(float));
    }
  }
  hook->now.writes += static_cast<uint64_t>(n);
  return absl::OkStatus();
}

void Hooks::Impl::fire_attention_rows(Hook* hook, Site site, int32_t layer, int64_t n,
                                      const AttentionProbe& probe, absl::Status* status) {
  const int64_t n_heads = site_shape(program, site, layer).n_heads;
  for (int64_t i = 0; i < n && status->ok(); ++i) {
    float* to = hook->is_callback() ? hook->staging.as<float>()
                                    : hook->capture.next(record(site, layer, i), &hook->now);
    if (to == nullptr) continue;
    attention_row(site, probe, rows[static_cast<size_t>(i)], positions[static_cast<size_t>(i)],
                  hook->heads, n_heads, n_ctx, to);
    if (hook->is_callback()) *status = call_back(hook, site, layer, n_heads * n_ctx, i, 1, to);
  }
}

Hooks::Hooks(const Program& program, int64_t n_ctx, int64_t max_rows, int32_t sequence,
             HostMemory memory)
    : impl_(std::make_unique<Impl>(program, n_ctx, max_rows, sequence, memory)) {}
Hooks::~Hooks() = default;

absl::Status Hooks::copy(const Hooks& from, bool with_hooks) {
  impl_->prompt_end = from.impl_->prompt_end;
  impl_->last_id = from.impl_->last_id;
  impl_->last_scope = from.impl_->last_scope;
  if (!with_hooks) return absl::OkStatus();
  impl_->scopes = from.impl_->scopes;
  for (const auto& hook : from.impl_->hooks) {
    if (hook->kind == HookAction::kCapture) continue;
    ENGINE_ASSIGN_OR_RETURN(std::unique_ptr<Hook> copied, copy_hook(*hook, impl_->memory));
    impl_->insert(std::move(copied));
  }
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> Hooks::add(HookSpec spec) {
  ENGINE_ASSIGN_OR_RETURN(std::unique_ptr<Hook> hook, impl_->make(std::move(spec)));
  hook->id = impl_->last_id + 1;
  impl_->insert(std::move(hook));
  return ++impl_->last_id;
}

absl::Status Hooks::begin_remove(uint64_t id) {
  for (const auto& hook : impl_->hooks) {
    if (hook->id != id) continue;
    hook->is_leaving = true;
    return absl::OkStatus();
  }
  return bad(absl::StrCat("there is no hook ", id));
}

uint64_t Hooks::open_scope() {
  impl_->scopes.push_back(impl_->last_scope + 1);
  return ++impl_->last_scope;
}

absl::Status Hooks::begin_close_scope(uint64_t scope) {
  const auto& scopes = impl_->scopes;
  if (std::find(scopes.begin(), scopes.end(), scope) == scopes.end()) {
    return bad(absl::StrCat("there is no open scope ", scope));
  }
  impl_->leaving_scope = scope;
  for (const auto& hook : impl_->hooks) hook->is_leaving = hook->scope == scope;
  return absl::OkStatus();
}

void Hooks::end_removal(bool done) {
  if (done) {
    impl_->erase_leaving();
    std::erase(impl_->scopes, impl_->leaving_scope);
  }
  for (const auto& hook : impl_->hooks) hook->is_leaving = false;
  impl_->leaving_scope = 0;
}

absl::Status Hooks::remove(uint64_t id) {
  ENGINE_RETURN_IF_ERROR(begin_remove(id));
  end_removal(true);
  return absl::OkStatus();
}

absl::Status Hooks::close_scope(uint64_t scope) {
  ENGINE_RETURN_IF_ERROR(begin_close_scope(scope));
  end_removal(true);
  return absl::OkStatus();
}

absl::StatusOr<HookStats> Hooks::stats(uint64_t id) const {
  const Hook* hook = impl_->find(id);
  if (hook == nullptr) return bad(absl::StrCat("there is no hook ", id));
  return hook->committed;
}

bool Hooks::empty() const { return impl_->hooks.empty(); }

void Hooks::masks(std::vector<SiteMask>* layer_masks, SiteMask* global) const {
  layer_masks->assign(impl_->program.layers.size(), 0);
  *global = 0;
  for (const auto& hook : impl_->hooks) {
    if (hook->is_leaving) continue;
    for (const int32_t layer : hook->sites.layers) {
      SiteMask& mask = layer < 0 ? *global : (*layer_masks)[static_cast<size_t>(layer)];
      mask |= site_bit(hook->sites.site);
    }
  }
}

void Hooks::begin_call(TokenKind kind, int64_t first_position, int64_t n_tokens) {
  if (kind == TokenKind::kAuto) {
    kind = n_tokens == 1 && first_position > 0 ? TokenKind::kGenerated : TokenKind::kPrompt;
  }
  impl_->call = {kind, first_position, n_tokens, std::min(impl_->prompt_end, first_position)};
}

void Hooks::commit() {
  const CallSpan& call = impl_->call;
  impl_->prompt_end = call.generated() ? call.prompt_end : call.first_position + call.n_tokens;
  for (const auto& hook : impl_->hooks) hook->committed = hook->now;
}

void Hooks::roll_back() {
  for (const auto& hook : impl_->hooks) hook->now = hook->committed;
}

WriterSet Hooks::writer_set() const { return writer_set(impl_->call.kind); }

WriterSet Hooks::writer_set(TokenKind kind) const {
  WriterSet set = kNoWriters;
  for (const auto& hook : impl_->hooks) {
    const WriterSet writer = hook->writer_in(kind);
    if (writer != kNoWriters) set = add_writer(set, writer);
  }
  return set;
}

int64_t Hooks::prompt_end() const { return impl_->prompt_end; }
void Hooks::set_prompt_end(int64_t position) { impl_->prompt_end = position; }

bool Hooks::wants(Site site, int32_t layer) const {
  return !impl_->stops[impl_->stop_index(site, layer)].hooks.empty();
}

absl::Status Hooks::fire(Site site, int32_t layer, const HookRows& rows, float* values,
                         int64_t stride) {
  if (rows.n_rows > impl_->max_rows) return error(Code::kInternal, "hooks: too many rows");
  const Impl::Stop& stop = impl_->stop(site, layer);
  for (Hook* hook : stop.hooks) {
    const int64_t n = impl_->select(*hook, rows);
    if (n == 0) continue;
    impl_->count(hook, n);
    ENGINE_RETURN_IF_ERROR(impl_->fire_rows(hook, site, layer, stop.width, n, values, stride));
  }
  return absl::OkStatus();
}

absl::Status Hooks::fire_attention(Site site, int32_t layer, const HookRows& rows,
                                   const AttentionProbe& probe) {
  if (rows.n_rows > impl_->max_rows) return error(Code::kInternal, "hooks: too many rows");
  absl::Status status;
  for (Hook* hook : impl_->stop(site, layer).hooks) {
    const int64_t n = impl_->select(*hook, rows);
    if (n == 0) continue;
    impl_->count(hook, n);
    impl_->fire_attention_rows(hook, site, layer, n, probe, &status);
    ENGINE_RETURN_IF_ERROR(status);
  }
  return status;
}

}  // namespace engine
