// gemma3 (text): sandwich norms stored as 1+w, q/k norm, five local layers to one global, two rope bases.
#include "lib/model/arch.h"

namespace engine {

const ArchSpec kArchGemma3 = {
    .name = "gemma3",
    .activation = FfnActivation::kGeluTanh,
    .embed_scale = EmbedScale::kSqrtEmbd,
    .qk_norm = QkNorm::kPerHead,
    .post_norms = true,
    .window = WindowRule::kPeriodic,
    .window_period = 6,
    .local_rope = true,
    .local_rope_base = 10000.0,
    .final_softcap = true,
    .wide_scale_blocks = 62,  // 27B: 1/sqrt(E/H) = 1/sqrt(168)
};

}  // namespace engine
