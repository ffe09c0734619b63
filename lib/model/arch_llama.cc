// llama: Llama 1-3.x, Mistral 7B and Nemo, TinyLlama, SmolLM and SmolLM2. Biases where present.
#include "lib/model/arch.h"

namespace engine {

const ArchSpec kArchLlama = {
    .name = "llama",
    .pairing = Pairing::kAdjacent,  // the converter reorders q and k rows to adjacent pairs
    .activation = FfnActivation::kSilu,
    .embed_scale = EmbedScale::kOne,
    .qk_norm = false,
    .post_norms = false,
    .rope_freqs = true,  // Llama 3.x frequency factors
    .window_period = 0,
    .local_rope_base = 0,
    .final_softcap = false,
    .wide_scale_blocks = 0,
};

}  // namespace engine
