// The caller's buffer of one capturing hook, and where the next row goes.
#ifndef ENGINE_LIB_SESSION_HOOK_CAPTURE_H_
#define ENGINE_LIB_SESSION_HOOK_CAPTURE_H_

#include <cstdint>

#include "lib/base/status.h"
#include "lib/session/hooks.h"

namespace engine {

// The cursor is HookStats.rows_captured: row number i goes to i % capacity, so undoing the counters undoes
// the cursor. Rows that an undone call overwrote in a ring stay overwritten.
class CaptureTarget {
 public:
  CaptureTarget() = default;
  // kArgument: no buffer, no rows; or capture fields of a hook that does not capture.
  static absl::StatusOr<CaptureTarget> create(const HookSpec& spec, int64_t width);

  // Where the next row of [width] floats goes, its record written; nullptr: full, counted as dropped.
  float* next(const CaptureRecord& record, HookStats* stats) const;

 private:
  float* rows_ = nullptr;
  CaptureRecord* records_ = nullptr;
  uint64_t capacity_ = 0;
  uint64_t width_ = 0;
  bool ring_ = false;
};

}  // namespace engine

#endif  // ENGINE_LIB_SESSION_HOOK_CAPTURE_H_
