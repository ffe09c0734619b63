// phi3: Phi-3, 3.5 and 4. Fused qkv and gate/up tensors, part of a head rotates, longrope by its tensors.
#include "lib/model/arch.h"

namespace engine {

const ArchSpec kArchPhi3 = {
    .name = "phi3",
    .rope_factors = true,
    // The 4k models slide over 2047 keys in every layer, as they were trained; llama.cpp ignores the key.
    .window = WindowRule::kAll,
};

}  // namespace engine
