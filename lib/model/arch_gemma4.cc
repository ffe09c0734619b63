// gemma4 (dense text): norms with plain weights, two head sizes, scores unscaled, values normed, the last layers read
// the keys and values of an earlier one, and each layer has an embedding and an output scale of its own.
#include "lib/model/arch.h"

namespace engine {

const ArchSpec kArchGemma4 = {
    .name = "gemma4",
    .activation = FfnActivation::kGeluTanh,
    .embed_scale = EmbedScale::kSqrtEmbd,
    .qk_norm = QkNorm::kPerHead,
    .post_norms = true,
    .rope_freqs = true,
    .window = WindowRule::kPeriodic,
    .window_period = 6,
    .local_rope = true,
    .local_rope_base = 10000.0,
    .final_softcap = true,
    .unit_score_scale = true,
    .local_heads = true,
    .v_norm = true,
    .shared_kv = true,
    .layer_embeds = true,
    .layer_scales = true,
};

}  // namespace engine
