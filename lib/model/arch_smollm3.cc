// smollm3: llama without rotation in every fourth layer; the file carries no key for it.
#include "lib/model/arch.h"

namespace engine {

const ArchSpec kArchSmolLm3 = {
    .name = "smollm3",
    .pairing = Pairing::kAdjacent,
    .nope_period = 4,
};

}  // namespace engine
