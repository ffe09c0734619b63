// gemma2: sandwich norms stored as 1+w, both soft-caps, every other layer local, always tied.
#include "lib/model/arch.h"

namespace engine {

const ArchSpec kArchGemma2 = {
    .name = "gemma2",
    .activation = FfnActivation::kGeluTanh,
    .embed_scale = EmbedScale::kSqrtEmbd,
    .post_norms = true,
    .head_tie = HeadTie::kAlways,
    .window = WindowRule::kPeriodic,
    .window_period = 2,
    .window_default = 4096,
    .local_rope = true,
    .attn_softcap = true,
    .attn_softcap_default = 50,
    .final_softcap = true,
    .final_softcap_default = 30,
    .wide_scale_blocks = 46,  // 27B: 1/sqrt(E/H) = 1/12
};

}  // namespace engine
