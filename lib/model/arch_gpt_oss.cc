// gpt-oss: a mixture of experts with a clamped gate, biases everywhere, a sink per head, every other layer local.
#include "lib/model/arch.h"

namespace engine {

const ArchSpec kArchGptOss = {
    .name = "gpt-oss",
    .activation = FfnActivation::kSwigluClamped,
    .ffn_norm = "post_attention_norm",  // the norm before the experts, in spite of its name
    .yarn_truncates = false,  // the released models were trained so; the file has no key for it
    .window = WindowRule::kPeriodic,
    .window_period = 2,
    .window_default = 128,
    .moe = MoeWeights::kSoftmaxOfChosen,
    .sinks = true,
};

}  // namespace engine
