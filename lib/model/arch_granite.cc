// granite (dense): llama with factors on the embedding, the scores, the residual branches and the logits.
#include "lib/model/arch.h"

namespace engine {

const ArchSpec kArchGranite = {
    .name = "granite",
    .pairing = Pairing::kAdjacent,
    .embed_scale = EmbedScale::kKey,
    .rope_finetuned_key = true,
    .scale_keys = true,
};

}  // namespace engine
