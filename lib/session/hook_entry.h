// One registered hook, as the registry keeps it.
#ifndef ENGINE_LIB_SESSION_HOOK_ENTRY_H_
#define ENGINE_LIB_SESSION_HOOK_ENTRY_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "lib/base/host_memory.h"
#include "lib/session/hook_action.h"
#include "lib/session/hook_capture.h"
#include "lib/session/hook_select.h"
#include "lib/session/hooks.h"

namespace engine {

struct Hook {
  uint64_t id = 0;
  uint64_t scope = 0;
  HookAction kind = HookAction::kCapture;
  int phase = 1;  // 0 captures, 1 writers and readers, 2 captures afterwards
  SiteSelection sites;
  PositionSelector positions;
  PositionSelect select = PositionSelect::kAll;
  WriterSet registration = kNoWriters;  // of writers
  std::vector<RowPart> parts;           // empty = the whole row
  std::vector<int32_t> heads;           // attention sites: the chosen ones
  RowAction action;
  std::vector<float> scratch;  // of the action
  CaptureTarget capture;
  int32_t (*callback)(void*, const HookEvent&, float*) = nullptr;
  void* user = nullptr;
  std::shared_ptr<const void> owned;
  AlignedBuffer staging;  // callbacks: [max_rows][width], one row at the attention sites
  HookStats now, committed;
  bool is_leaving = false;

  // What this hook adds to the writer set of a call.
  WriterSet writer_in(TokenKind kind) const {
    if (select == PositionSelect::kGenerated) {
      return kind == TokenKind::kGenerated && registration != kNoWriters ? kOpaqueWriters
                                                                         : kNoWriters;
    }
    if (select == PositionSelect::kLastOfPrompt) {
      return kind == TokenKind::kPrompt && registration != kNoWriters ? kOpaqueWriters : kNoWriters;
    }
    return registration;
  }
  bool is_callback() const { return kind == HookAction::kRead || kind == HookAction::kWrite; }
};

// kArgument: an unknown action, or fields that belong to another kind of action.
absl::Status check_hook_kind(const HookSpec& spec);

// The same hook for another set: its number, scope and counters too. Not of captures. kMemory.
absl::StatusOr<std::unique_ptr<Hook>> copy_hook(const Hook& from, const HostMemory& memory);

}  // namespace engine

#endif  // ENGINE_LIB_SESSION_HOOK_ENTRY_H_
