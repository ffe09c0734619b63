// Decodes several sessions at once: rows of all of them go through each weight together.
#ifndef ENGINE_LIB_SESSION_BATCH_H_
#define ENGINE_LIB_SESSION_BATCH_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "lib/base/status.h"
#include "lib/contract/plan.h"
#include "lib/session/session.h"
#include "lib/session/session_call.h"

namespace engine {

struct BatchItem {
  Session* session = nullptr;  // nullptr or twice the same: an error of this item
  std::span<const int32_t> ids;
  LogitRows logits;
  absl::Status status;  // out
};

// The plan of a key, for the program of a session of the batch.
using PlanSource =
    std::function<absl::StatusOr<std::shared_ptr<const Plan>>(const Session&, const PlanKey&)>;

// As Session::decode for each item, with its bits and errors; no item has a part in another one's fate. Sessions of
// one program whose plan keys differ in hooks and context only share launches, on the threads and scratch memory
// of the first of them; those in the reference mode run one after another. `plans` is asked where the hooks of the
// sessions differ. Allocates nothing after the first call of the same sessions but pages.
void decode_batch(std::span<BatchItem> items, const PlanSource& plans);

}  // namespace engine

#endif  // ENGINE_LIB_SESSION_BATCH_H_
