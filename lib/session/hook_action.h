// The declared actions of hooks on one row: f32, every operation rounded as written, no fused
// multiply-add, so that any compiler gives the same bits.
//
// With parts (chosen heads), x and v below are the chosen elements only, in dots too. A dot has 16
// virtual lanes: element i of the row (not of the part) belongs to lane i mod 16, whose products are
// added in increasing i from 0; then lane[i] += lane[i + w] for i < w, with w = 8, 4, 2, 1.
//
//   kAdd          x + s,                s = alpha * v, at registration
//   kScale        x * alpha
//   kSet          v
//   kZero         +0
//   kInterpolate  x + alpha * (v - x)
//   kProjectOut   x - c * v,            c = (alpha * dot(x, v)) / vv, vv = dot(v, v) at registration
//   kClamp        x < low ? low : x, then > high ? high; a NaN stays
//   kReplace      the row of the record with this position and layer, else with this position and
//                 layer -1; else x stays
//   kLowRank      x[i] + sum over r ascending from 0 of A[i][r] * y[r],  y[r] = alpha * dot(B[r], x)
#ifndef ENGINE_LIB_SESSION_HOOK_ACTION_H_
#define ENGINE_LIB_SESSION_HOOK_ACTION_H_

#include <cstdint>
#include <span>
#include <vector>

#include "lib/base/status.h"
#include "lib/session/hook_select.h"
#include "lib/session/hooks.h"

namespace engine {

inline constexpr int64_t kHookLanes = 16;
// As stated above; both arrays are whole rows.
float lane_dot(const float* a, const float* b, std::span<const RowPart> parts);

// An action with all that it needs, immutable.
struct RowAction {
  struct Record {
    int64_t position;
    int32_t layer;
    int64_t row;  // of values
  };

  HookAction action = HookAction::kZero;
  float alpha = 1.0f, low = 0.0f, high = 0.0f;
  float dot_vv = 0.0f;
  int64_t rank = 0;
  std::vector<float> values;    // kAdd: s; kLowRank: A transposed [rank][width], then B
  std::vector<Record> records;  // ascending by position, then layer

  // Takes values and records out of the spec. kArgument when they do not fit rows of `width`.
  static absl::StatusOr<RowAction> create(HookSpec* spec, int64_t width,
                                          std::span<const RowPart> parts,
                                          const SiteSelection& sites,
                                          const PositionSelector& positions, int64_t n_ctx);
  static bool is_declared(HookAction action) { return action >= HookAction::kAdd; }
  // Whether values belong to it, so that it fits one width only.
  static bool has_values(HookAction action);
};

// Changes row x, whose elements are in `parts`. scratch: [action.rank]. False: the row was left alone.
bool apply_action(const RowAction& action, std::span<const RowPart> parts, int64_t width,
                  int64_t position, int32_t layer, float* x, float* scratch);

}  // namespace engine

#endif  // ENGINE_LIB_SESSION_HOOK_ACTION_H_
