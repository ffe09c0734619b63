// olmoe: a mixture of experts; q and k are normed as whole vectors, expert weights are not made to sum to 1.
#include "lib/model/arch.h"

namespace engine {

const ArchSpec kArchOlmoe = {
    .name = "olmoe",
    .qk_norm = QkNorm::kWhole,
    .moe = MoeWeights::kSoftmax,
};

}  // namespace engine
