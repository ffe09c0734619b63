// resolve_kernel for the steps of one program, asked once per kernel key.
#ifndef ENGINE_LIB_PLAN_KERNEL_CHOICE_H_
#define ENGINE_LIB_PLAN_KERNEL_CHOICE_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lib/base/status.h"
#include "lib/contract/kernel.h"
#include "lib/contract/plan.h"
#include "lib/contract/step.h"

namespace engine {

// Serial. `program` must outlive it.
class KernelChoice {
 public:
  KernelChoice(const Program& program, const PlanKey& key);

  // Valid as long as this object. kPlan when no row fits.
  absl::StatusOr<const Resolved*> resolve(const Step& step);
  // Whether the pattern decided for any step so far.
  bool any_forced() const { return any_forced_; }

 private:
  // Whether the head is this weight and reads it packed: then the embedding does too, so that it lies in memory
  // once.
  bool head_packs(int32_t weight);

  const Program& program_;
  Target target_;
  KvType kv_;
  bool packed_;
  std::string pattern_;
  bool any_forced_ = false;
  std::vector<std::pair<KernelKey, std::unique_ptr<Resolved>>> known_;
};

}  // namespace engine

#endif  // ENGINE_LIB_PLAN_KERNEL_CHOICE_H_
