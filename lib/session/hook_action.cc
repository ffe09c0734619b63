// Loops over the chosen parts of a row, plain enough for the compiler to vectorise.
#include "lib/session/hook_action.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"

namespace engine {
namespace {

absl::Status bad(std::string_view message) { return error(Code::kArgument, message); }

template <class F>
void each(std::span<const RowPart> parts, F&& change) {
  for (const RowPart part : parts) {
    for (int64_t i = part.begin; i < part.end; ++i) change(i);
  }
}

void copy_parts(std::span<const RowPart> parts, const float* from, float* x) {
  for (const RowPart part : parts) {
    std::memcpy(x + part.begin, from + part.begin,
                static_cast<size_t>(part.end - part.begin) * sizeof(float));
  }
}

void add_low_rank(const RowAction& action, std::span<const RowPart> parts, int64_t width, float* x,
                  float* y) {
  const float* a = action.values.data();
  const float* b = a + action.rank * width;
  for (int64_t r = 0; r < action.rank; ++r) {
    y[r] = action.alpha * lane_dot(b + r * width, x, parts);
  }
  constexpr int64_t kBlock = 64;
  for (const RowPart part : parts) {
    for (int64_t begin = part.begin; begin < part.end; begin += kBlock) {
      const int64_t n = std::min(kBlock, part.end - begin);
      float sums[kBlock] = {};
      for (int64_t r = 0; r < action.rank; ++r) {
        const float* column = a + r * width + begin;
        const float factor = y[r];
        for (int64_t i = 0; i < n; ++i) sums[i] += column[i] * factor;
      }
      for (int64_t i = 0; i < n; ++i) x[begin + i] += sums[i];
    }
  }
}

const RowAction::Record* find_record(const RowAction& action, int64_t position, int32_t layer) {
  for (const int32_t wanted : {layer, -1}) {
    const auto it =
        std::lower_bound(action.records.begin(), action.records.end(), std::pair(position, wanted),
                         [](const RowAction::Record& r, const auto& key) {
                           return std::pair(r.position, r.layer) < key;
                         });
    if (it != action.records.end() && it->position == position && it->layer == wanted) return &*it;
  }
  return nullptr;
}

absl::Status take_records(const HookSpec& spec, const SiteSelection& sites,
                          const PositionSelector& positions, int64_t n_ctx, RowAction* out) {
  bool can_match = false;
  for (size_t i = 0; i < spec.records.size(); ++i) {
    const CaptureRecord& r = spec.records[i];
    if (r.position < 0 || r.position >= n_ctx) {
      return bad(
          absl::StrCat("records[", i, "]: position ", r.position, " is outside 0 .. ", n_ctx - 1));
    }
    const bool hits_layer =
        r.layer == -1 || std::binary_search(sites.layers.begin(), sites.layers.end(), r.layer);
    can_match = can_match || (hits_layer && positions.can_match(r.position));
    out->records.push_back({r.position, r.layer, static_cast<int64_t>(i)});
  }
  if (!can_match) return bad("no record has a position and a layer that the hook selects");
  std::sort(out->records.begin(), out->records.end(), [](const auto& a, const auto& b) {
    return std::tie(a.position, a.layer, a.row) < std::tie(b.position, b.layer, b.row);
  });
  for (size_t i = 1; i < out->records.size(); ++i) {
    const RowAction::Record& a = out->records[i - 1];
    const RowAction::Record& b = out->records[i];
    if (a.position == b.position && a.layer == b.layer) {
      return bad(absl::StrCat("records[", a.row, "] and records[", b.row,
                              "] have the same position and layer"));
    }
  }
  return absl::OkStatus();
}

// values to be expected; -1: more than fit into memory.
int64_t n_values_of(const HookSpec& spec, int64_t width) {
  switch (spec.action) {
    case HookAction::kReplace: {
      const auto n = static_cast<int64_t>(spec.records.size());
      return n > std::numeric_limits<int64_t>::max() / width ? -1 : n * width;
    }
    case HookAction::kLowRank:
      return spec.rank > std::numeric_limits<int64_t>::max() / 2 / width ? -1
                                                                         : 2 * width * spec.rank;
    default: return RowAction::has_values(spec.action) ? width : 0;
  }
}

}  // namespace

float lane_dot(const float* a, const float* b, std::span<const RowPart> parts) {
  float lanes[kHookLanes] = {};
  for (const RowPart part : parts) {
    int64_t i = part.begin;
    for (; i < part.end && i % kHookLanes != 0; ++i) lanes[i % kHookLanes] += a[i] * b[i];
    for (; i + kHookLanes <= part.end; i += kHookLanes) {
      for (int64_t l = 0; l < kHookLanes; ++l) lanes[l] += a[i + l] * b[i + l];
    }
    for (; i < part.end; ++i) lanes[i % kHookLanes] += a[i] * b[i];
  }
  for (int64_t w = kHookLanes / 2; w > 0; w /= 2) {
    for (int64_t i = 0; i < w; ++i) lanes[i] += lanes[i + w];
  }
  return lanes[0];
}

bool RowAction::has_values(HookAction action) {
  switch (action) {
    case HookAction::kAdd:
    case HookAction::kSet:
    case HookAction::kInterpolate:
    case HookAction::kProjectOut:
    case HookAction::kReplace:
    case HookAction::kLowRank: return true;
    default: return false;
  }
}

absl::StatusOr<RowAction> RowAction::create(HookSpec* spec, int64_t width,
                                            std::span<const RowPart> parts,
                                            const SiteSelection& sites,
                                            const PositionSelector& positions, int64_t n_ctx) {
  RowAction out;
  out.action = spec->action;
  out.alpha = spec->alpha;
  out.low = spec->low;
  out.high = spec->high;
  const bool low_rank = spec->action == HookAction::kLowRank;
  if (low_rank != (spec->rank > 0)) {
    return bad(low_rank ? "rank must be positive" : "rank belongs to HOOK_LOW_RANK");
  }
  if ((spec->action == HookAction::kReplace) == spec->records.empty()) {
    return bad(spec->records.empty() ? "HOOK_REPLACE needs records"
                                     : "records belong to HOOK_REPLACE");
  }
  if (spec->action == HookAction::kClamp && !(spec->low <= spec->high)) {
    return bad("low must not be above high");
  }
  const int64_t n_values = n_values_of(*spec, width);
  if (n_values != static_cast<int64_t>(spec->values.size())) {
    return bad(absl::StrCat(spec->values.size(), " values were given, ", n_values,
                            " are needed (rows have ", width, " values)"));
  }
  if (!spec->records.empty()) {
    ENGINE_RETURN_IF_ERROR(take_records(*spec, sites, positions, n_ctx, &out));
  }
  out.values = std::move(spec->values);
  if (spec->action == HookAction::kAdd) {
    for (float& v : out.values) v *= spec->alpha;
  }
  if (spec->action == HookAction::kProjectOut) {
    out.dot_vv = lane_dot(out.values.data(), out.values.data(), parts);
    if (!(out.dot_vv > 0.0f) || !std::isfinite(out.dot_vv)) {
      return bad("HOOK_PROJECT_OUT: v . v is zero or not finite");
    }
  }
  if (low_rank) {
    out.rank = spec->rank;
    std::vector<float> columns(static_cast<size_t>(width * out.rank));
    for (int64_t i = 0; i < width; ++i) {
      for (int64_t r = 0; r < out.rank; ++r) {
        columns[static_cast<size_t>(r * width + i)] =
            out.values[static_cast<size_t>(i * out.rank + r)];
      }
    }
    std::copy(columns.begin(), columns.end(), out.values.begin());
  }
  return out;
}

bool apply_action(const RowAction& action, std::span<const RowPart> parts, int64_t width,
                  int64_t position, int32_t layer, float* x, float* scratch) {
  const float* v = action.values.data();
  const float alpha = action.alpha;
  switch (action.action) {
    case HookAction::kAdd: each(parts, [=](int64_t i) { x[i] += v[i]; }); return true;
    case HookAction::kScale: each(parts, [=](int64_t i) { x[i] *= alpha; }); return true;
    case HookAction::kSet: copy_parts(parts, v, x); return true;
    case HookAction::kZero: each(parts, [=](int64_t i) { x[i] = 0.0f; }); return true;
    case HookAction::kInterpolate:
      each(parts, [=](int64_t i) { x[i] += alpha * (v[i] - x[i]); });
      return true;
    case HookAction::kProjectOut: {
      const float c = (alpha * lane_dot(x, v, parts)) / action.dot_vv;
      each(parts, [=](int64_t i) { x[i] -= c * v[i]; });
      return true;
    }
    case HookAction::kClamp: {
      const float low = action.low, high = action.high;
      each(parts, [=](int64_t i) {
        const float raised = x[i] < low ? low : x[i];
        x[i] = raised > high ? high : raised;
      });
      return true;
    }
    case HookAction::kReplace: {
      const RowAction::Record* record = find_record(action, position, layer);
      if (record != nullptr) copy_parts(parts, v + record->row * width, x);
      return record != nullptr;
    }
    case HookAction::kLowRank: add_low_rank(action, parts, width, x, scratch); return true;
    case HookAction::kCapture:
    case HookAction::kRead:
    case HookAction::kWrite: return false;
  }
  return false;
}

}  // namespace engine
