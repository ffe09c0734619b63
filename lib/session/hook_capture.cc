// Buffer and ring cursors.
#include "lib/session/hook_capture.h"

namespace engine {

absl::StatusOr<CaptureTarget> CaptureTarget::create(const HookSpec& spec, int64_t width) {
  CaptureTarget out;
  if (spec.action != HookAction::kCapture) {
    if (spec.capture != nullptr || spec.capture_records != nullptr || spec.capture_rows != 0 ||
        spec.capture_post || spec.capture_ring) {
      return error(Code::kArgument, "capture fields belong to HOOK_CAPTURE");
    }
    return out;
  }
  if (spec.capture == nullptr || spec.capture_rows <= 0) {
    return error(Code::kArgument, "HOOK_CAPTURE needs a buffer of at least one row");
  }
  out.rows_ = spec.capture;
  out.records_ = spec.capture_records;
  out.capacity_ = static_cast<uint64_t>(spec.capture_rows);
  out.width_ = static_cast<uint64_t>(width);
  out.ring_ = spec.capture_ring;
  return out;
}

float* CaptureTarget::next(const CaptureRecord& record, HookStats* stats) const {
  if (!ring_ && stats->rows_captured >= capacity_) {
    ++stats->rows_dropped;
    return nullptr;
  }
  const uint64_t index = stats->rows_captured++ % capacity_;
  if (records_ != nullptr) records_[index] = record;
  return rows_ + index * width_;
}

}  // namespace engine
