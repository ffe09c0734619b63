// The angles per position of a rotation rule.
#ifndef ENGINE_LIB_PLAN_ROPE_RULE_H_
#define ENGINE_LIB_PLAN_ROPE_RULE_H_

#include <cstdint>

#include "lib/contract/step.h"
#include "lib/model/config.h"
#include "lib/model/weights.h"

namespace engine {

// rope.n_rot / 2 angles; the divisors that `rope` asks for are among the weights.
RopeRule rope_rule(const RopeConfig& rope, const ModelWeights& weights);

}  // namespace engine

#endif  // ENGINE_LIB_PLAN_ROPE_RULE_H_
