// qwen2: Qwen 1.5 to 2.5. Biases on q, k and v; pairs are halves of a head.
#include "lib/model/arch.h"

namespace engine {

const ArchSpec kArchQwen2 = {
    .name = "qwen2",
};

}  // namespace engine
