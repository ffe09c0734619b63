// A model's rules as the kernels' ones.
#ifndef ENGINE_LIB_PLAN_LOWER_RULES_H_
#define ENGINE_LIB_PLAN_LOWER_RULES_H_

#include "lib/contract/op.h"
#include "lib/model/config.h"

namespace engine {

inline Activation activation(FfnActivation act) {
  switch (act) {
    case FfnActivation::kSilu: return Activation::kSilu;
    case FfnActivation::kGeluTanh: return Activation::kGeluTanh;
    case FfnActivation::kSwigluClamped: return Activation::kSwigluClamped;
  }
  return Activation::kSilu;
}

inline MoeRule moe_rule(MoeWeights weights) {
  switch (weights) {
    case MoeWeights::kRenormalised: return MoeRule::kRenormalised;
    case MoeWeights::kSoftmaxOfChosen: return MoeRule::kSoftmaxOfChosen;
    case MoeWeights::kNone:
    case MoeWeights::kSoftmax: break;
  }
  return MoeRule::kSoftmax;
}

}  // namespace engine

#endif  // ENGINE_LIB_PLAN_LOWER_RULES_H_
