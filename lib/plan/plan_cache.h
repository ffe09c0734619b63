// The plans of one model, by key, so that sessions with equal parameters and hooks share one.
#ifndef ENGINE_LIB_PLAN_PLAN_CACHE_H_
#define ENGINE_LIB_PLAN_PLAN_CACHE_H_

#include <cstddef>
#include <list>
#include <memory>
#include <mutex>

#include "lib/base/status.h"
#include "lib/contract/plan.h"
#include "lib/contract/step.h"

namespace engine {

inline constexpr size_t kMaxCachedPlans = 64;

// Any thread. Of one program: a key does not name it.
class PlanCache {
 public:
  // The plan of the key, compiled on first use; the same pointer for equal keys while it is cached. The plan
  // least recently asked for leaves when there are more than kMaxCachedPlans. Errors are those of compile()
  // and are not cached. Compiling holds no lock, so it delays nobody who asks for another plan.
  absl::StatusOr<std::shared_ptr<const Plan>> get(const Program& program, const PlanKey& key);

  size_t size() const;

 private:
  std::shared_ptr<const Plan> find(const PlanKey& key);

  mutable std::mutex mutex_;
  std::list<std::shared_ptr<const Plan>> plans_;  // most recently asked for first
};

}  // namespace engine

#endif  // ENGINE_LIB_PLAN_PLAN_CACHE_H_
