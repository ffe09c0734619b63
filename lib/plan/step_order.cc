// Repeated search for the first step that waits for nothing: sections have tens of steps.
#include "lib/plan/step_order.h"

#include <algorithm>
#include <utility>

namespace engine {

absl::StatusOr<std::vector<PlanStep>> order_steps(const SectionFlow& flow,
                                                  std::vector<PlanStep> groups) {
  std::vector<size_t> group_of(flow.steps.size(), groups.size());
  for (size_t g = 0; g < groups.size(); ++g) {
    for (const int32_t i : groups[g].steps) group_of[static_cast<size_t>(i)] = g;
  }
  const size_t n_fused = groups.size();
  for (size_t i = 0; i < flow.steps.size(); ++i) {
    if (group_of[i] < n_fused) continue;
    group_of[i] = groups.size();
    PlanStep single;
    single.steps = {static_cast<int32_t>(i)};
    groups.push_back(std::move(single));
  }
  std::vector<PlanStep> ordered;
  std::vector<bool> done(groups.size(), false);
  const auto is_ready = [&](size_t g) {
    for (const int32_t i : groups[g].steps) {
      for (const int32_t j : flow.steps[static_cast<size_t>(i)].after) {
        const size_t other = group_of[static_cast<size_t>(j)];
        if (other != g && !done[other]) return false;
      }
    }
    return true;
  };
  const auto first = [&](size_t g) {
    return *std::min_element(groups[g].steps.begin(), groups[g].steps.end());
  };
  while (ordered.size() < groups.size()) {
    size_t next = groups.size();
    for (size_t g = 0; g < groups.size(); ++g) {
      if (done[g] || !is_ready(g)) continue;
      if (next == groups.size() || first(g) < first(next)) next = g;
    }
    if (next == groups.size()) return error(Code::kInternal, "fused steps wait for each other");
    done[next] = true;
    ordered.push_back(groups[next]);
  }
  return ordered;
}

}  // namespace engine
