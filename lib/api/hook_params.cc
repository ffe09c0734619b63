// Hook parameters at the edge: pointers with counts, numbers that must equal those inside, callbacks.
#include "lib/api/hook_params.h"

#include <cstddef>
#include <limits>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/api/api_common.h"

namespace engine::api {
namespace {

#define ENGINE_SAME_NUMBER(c_name, cc_name) \
  static_assert(static_cast<int32_t>(c_name) == static_cast<int32_t>(cc_name))
ENGINE_SAME_NUMBER(ENGINE_HOOK_CAPTURE, HookAction::kCapture);
ENGINE_SAME_NUMBER(ENGINE_HOOK_READ, HookAction::kRead);
ENGINE_SAME_NUMBER(ENGINE_HOOK_WRITE, HookAction::kWrite);
ENGINE_SAME_NUMBER(ENGINE_HOOK_ADD, HookAction::kAdd);
ENGINE_SAME_NUMBER(ENGINE_HOOK_SCALE, HookAction::kScale);
ENGINE_SAME_NUMBER(ENGINE_HOOK_SET, HookAction::kSet);
ENGINE_SAME_NUMBER(ENGINE_HOOK_ZERO, HookAction::kZero);
ENGINE_SAME_NUMBER(ENGINE_HOOK_INTERPOLATE, HookAction::kInterpolate);
ENGINE_SAME_NUMBER(ENGINE_HOOK_PROJECT_OUT, HookAction::kProjectOut);
ENGINE_SAME_NUMBER(ENGINE_HOOK_CLAMP, HookAction::kClamp);
ENGINE_SAME_NUMBER(ENGINE_HOOK_REPLACE, HookAction::kReplace);
ENGINE_SAME_NUMBER(ENGINE_HOOK_LOW_RANK, HookAction::kLowRank);
ENGINE_SAME_NUMBER(ENGINE_POSITIONS_ALL, PositionSelect::kAll);
ENGINE_SAME_NUMBER(ENGINE_POSITIONS_LIST, PositionSelect::kList);
ENGINE_SAME_NUMBER(ENGINE_POSITIONS_RANGE, PositionSelect::kRange);
ENGINE_SAME_NUMBER(ENGINE_POSITIONS_LAST_OF_PROMPT, PositionSelect::kLastOfPrompt);
ENGINE_SAME_NUMBER(ENGINE_POSITIONS_GENERATED, PositionSelect::kGenerated);
ENGINE_SAME_NUMBER(ENGINE_POSITIONS_EVERY, PositionSelect::kEvery);
ENGINE_SAME_NUMBER(ENGINE_TOKENS_AUTO, TokenKind::kAuto);
ENGINE_SAME_NUMBER(ENGINE_TOKENS_PROMPT, TokenKind::kPrompt);
ENGINE_SAME_NUMBER(ENGINE_TOKENS_PROMPT_PART, TokenKind::kPromptPart);
ENGINE_SAME_NUMBER(ENGINE_TOKENS_GENERATED, TokenKind::kGenerated);
#undef ENGINE_SAME_NUMBER

// Hooks write the caller's records as their own type.
static_assert(sizeof(CaptureRecord) == sizeof(engine_capture_record) &&
              alignof(CaptureRecord) == alignof(engine_capture_record));
static_assert(offsetof(CaptureRecord, position) == offsetof(engine_capture_record, position));
static_assert(offsetof(CaptureRecord, sequence) == offsetof(engine_capture_record, sequence));
static_assert(offsetof(CaptureRecord, token_id) == offsetof(engine_capture_record, token_id));
static_assert(offsetof(CaptureRecord, site) == offsetof(engine_capture_record, site));
static_assert(offsetof(CaptureRecord, layer) == offsetof(engine_capture_record, layer));

constexpr size_t kFirstReleaseBytes = offsetof(engine_hook_params, scope) + sizeof(uint64_t);
constexpr uint64_t kMaxCount = uint64_t{1} << 40;

// A list of the caller's; `may_be_empty`: a pointer with count 0 is as NULL, else it selects nothing.
template <class T>
absl::Status copy_list(std::string_view name, const T* from, uint64_t n, bool may_be_empty,
                       std::vector<T>* to) {
  if (n > kMaxCount) return error(Code::kArgument, absl::StrCat(name, ": the count is too large"));
  if (from == nullptr && n > 0) return error(Code::kArgument, absl::StrCat(name, " is NULL"));
  if (from != nullptr && n == 0 && !may_be_empty) {
    return error(Code::kArgument, absl::StrCat(name, ": the list is empty"));
  }
  if (n > 0) to->assign(from, from + n);
  return absl::OkStatus();
}

struct Callback {
  engine_hook_callback function;
  void* user;
};

int32_t call_back(void* user, const HookEvent& event, float* values) {
  const auto* callback = static_cast<const Callback*>(user);
  engine_hook_event out{};
  out.struct_size = sizeof(out);
  out.site = static_cast<int32_t>(event.site);
  out.layer = event.layer;
  out.sequence = event.sequence;
  out.generated = event.generated ? 1 : 0;
  out.n_rows = static_cast<uint32_t>(event.n_rows);
  out.width = static_cast<uint64_t>(event.width);
  out.token_ids = event.token_ids;
  out.positions = event.positions;
  return callback->function(callback->user, &out, values);
}

absl::Status read_sites(const engine_hook_params* params, engine_hook_params* p, HookSpec* spec) {
  if (params == nullptr) return error(Code::kArgument, "the hook's parameters are NULL");
  ENGINE_RETURN_IF_ERROR(read_struct(params, kFirstReleaseBytes, p));
  if (p->site == nullptr) return error(Code::kArgument, "the hook's site is NULL");
  spec->site = p->site;
  spec->layer_begin = p->layer_begin;
  spec->layer_end = p->layer_end;
  return copy_list("layers", p->layers, p->n_layers, false, &spec->layers);
}

absl::Status read_capture(const engine_hook_params& p, HookSpec* spec) {
  constexpr uint32_t kFlags = ENGINE_CAPTURE_POST | ENGINE_CAPTURE_RING;
  if ((p.capture_flags & ~kFlags) != 0) {
    return error(Code::kTooNew, "capture_flags has bits that this library does not know");
  }
  if (p.capture_rows > kMaxCount) return error(Code::kArgument, "capture_rows is too large");
  spec->capture_post = (p.capture_flags & ENGINE_CAPTURE_POST) != 0;
  spec->capture_ring = (p.capture_flags & ENGINE_CAPTURE_RING) != 0;
  spec->capture = p.capture;
  spec->capture_records = reinterpret_cast<CaptureRecord*>(p.capture_records);
  spec->capture_rows = static_cast<int64_t>(p.capture_rows);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<HookSpec> read_hook_site(const engine_hook_params* params) {
  HookSpec spec;
  engine_hook_params p{};
  ENGINE_RETURN_IF_ERROR(read_sites(params, &p, &spec));
  return spec;
}

absl::StatusOr<HookSpec> read_hook(const engine_hook_params* params) {
  HookSpec spec;
  engine_hook_params p{};
  ENGINE_RETURN_IF_ERROR(read_sites(params, &p, &spec));
  spec.action = static_cast<HookAction>(p.action);
  spec.select = static_cast<PositionSelect>(p.position_select);
  spec.position_begin = p.position_begin;
  spec.position_end = p.position_end;
  spec.position_step = p.position_step;
  spec.alpha = p.alpha;
  spec.low = p.low;
  spec.high = p.high;
  spec.rank = p.rank;
  spec.scope = p.scope;
  ENGINE_RETURN_IF_ERROR(
      copy_list("positions", p.positions, p.n_positions, false, &spec.positions));
  ENGINE_RETURN_IF_ERROR(copy_list("heads", p.heads, p.n_heads, false, &spec.heads));
  ENGINE_RETURN_IF_ERROR(
      copy_list("sequences", p.sequences, p.n_sequences, false, &spec.sequences));
  ENGINE_RETURN_IF_ERROR(copy_list("values", p.values, p.n_values, true, &spec.values));
  std::vector<engine_capture_record> records;
  ENGINE_RETURN_IF_ERROR(copy_list("records", p.records, p.n_records, true, &records));
  for (const engine_capture_record& r : records) {
    spec.records.push_back({r.position, r.sequence, r.token_id, r.site, r.layer});
  }
  ENGINE_RETURN_IF_ERROR(read_capture(p, &spec));
  if (p.callback != nullptr) {
    auto callback = std::make_shared<Callback>(Callback{p.callback, p.user});
    spec.callback = call_back;
    spec.user = callback.get();
    spec.owned = std::move(callback);
  }
  return spec;
}

}  // namespace engine::api
