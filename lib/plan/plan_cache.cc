// A list in order of use: at most 64 keys are compared, once per session or change of hooks.
#include "lib/plan/plan_cache.h"

#include <utility>

#include "lib/plan/compile.h"

namespace engine {

// With mutex_ held.
std::shared_ptr<const Plan> PlanCache::find(const PlanKey& key) {
  for (auto it = plans_.begin(); it != plans_.end(); ++it) {
    if (!((*it)->key == key)) continue;
    plans_.splice(plans_.begin(), plans_, it);
    return plans_.front();
  }
  return nullptr;
}

absl::StatusOr<std::shared_ptr<const Plan>> PlanCache::get(const Program& program,
                                                           const PlanKey& key) {
  {
    const std::lock_guard lock(mutex_);
    if (auto plan = find(key)) return plan;
  }
  ENGINE_ASSIGN_OR_RETURN(std::shared_ptr<const Plan> plan, compile(program, key));
  const std::lock_guard lock(mutex_);
  if (auto first = find(key)) return first;  // another thread was faster
  plans_.push_front(plan);
  if (plans_.size() > kMaxCachedPlans) plans_.pop_back();
  return plan;
}

size_t PlanCache::size() const {
  const std::lock_guard lock(mutex_);
  return plans_.size();
}

}  // namespace engine
