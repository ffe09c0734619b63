// qwen3moe: qwen3 with a mixture of experts whose weights are made to sum to 1.
#include "lib/model/arch.h"

namespace engine {

const ArchSpec kArchQwen3Moe = {
    .name = "qwen3moe",
    .qk_norm = QkNorm::kPerHead,
    .moe = MoeWeights::kRenormalised,
};

}  // namespace engine
