// qwen3 (dense): q and k are normed per head before the rotation; heads wider than E/H.
#include "lib/model/arch.h"

namespace engine {

const ArchSpec kArchQwen3 = {
    .name = "qwen3",
    .qk_norm = QkNorm::kPerHead,
};

}  // namespace engine
