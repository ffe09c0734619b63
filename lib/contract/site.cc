// The table of hook sites.
#include "lib/contract/site.h"

namespace engine {

std::span<const SiteInfo> site_table() {
  static constexpr std::array<SiteInfo, kNumSites> kSites = {{
      {Site::kEmbed, "embed", "", false, true},
      {Site::kResidPre, "resid_pre", "residual-pre-attention", true, true},
      {Site::kAttnNorm, "attn_norm", "", true, true},
      {Site::kQ, "q", "", true, true},
      {Site::kK, "k", "", true, true},
      {Site::kV, "v", "", true, true},
      {Site::kQNorm, "q_norm", "", true, true},
      {Site::kKNorm, "k_norm", "", true, true},
      {Site::kQRope, "q_rope", "", true, true},
      {Site::kKRope, "k_rope", "", true, true},
      {Site::kAttnScores, "attn_scores", "", true, false},
      {Site::kAttnPattern, "attn_pattern", "", true, false},
      {Site::kAttnZ, "attn_z", "", true, true},
      {Site::kAttnOut, "attn_out", "attention-output", true, true},
      {Site::kResidMid, "resid_mid", "", true, true},
      {Site::kFfnNorm, "ffn_norm", "", true, true},
      {Site::kFfnGate, "ffn_gate", "", true, true},
      {Site::kFfnUp, "ffn_up", "", true, true},
      {Site::kFfnAct, "ffn_act", "", true, true},
      {Site::kFfnOut, "ffn_out", "mlp-output", true, true},
      {Site::kResidPost, "resid_post", "residual-post-mlp", true, true},
      {Site::kFinalNorm, "final_norm", "final-norm-output", false, true},
      {Site::kLogitsRaw, "logits_raw", "", false, true},
      {Site::kLogits, "logits", "", false, true},
  }};
  return kSites;
}

const SiteInfo* find_site(std::string_view name) {
  for (const SiteInfo& info : site_table()) {
    if (name == info.name || (info.alias[0] != '\0' && name == info.alias)) return &info;
  }
  return nullptr;
}

}  // namespace engine
