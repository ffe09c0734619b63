// lfm2: short convolutions in most layers, attention with q/k norm in those that have KV heads.
#include "lib/model/arch.h"

namespace engine {

const ArchSpec kArchLfm2 = {
    .name = "lfm2",
    .qk_norm = QkNorm::kPerHead,
    .window = WindowRule::kAll,  // where the file has the key
    .short_convs = true,
    .output_norm = "token_embd_norm",  // its historic name
};

}  // namespace engine
