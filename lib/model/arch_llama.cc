// llama: Llama 1-3.x, Mistral 7B and Nemo, Mixtral, TinyLlama, SmolLM and SmolLM2. Biases where present.
#include "lib/model/arch.h"

namespace engine {

const ArchSpec kArchLlama = {
    .name = "llama",
    .pairing = Pairing::kAdjacent,  // the converter reorders q and k rows to adjacent pairs
    .rope_freqs = true,             // Llama 3.x frequency factors
    .rope_factors = true,
    .window = WindowRule::kAll,        // Mistral 7B v0.1, where the file has the key
    .moe = MoeWeights::kRenormalised,  // Mixtral
};

}  // namespace engine
