// What an architecture must state: a row of data per family, read by config, weights and plan.
#ifndef ENGINE_LIB_MODEL_ARCH_H_
#define ENGINE_LIB_MODEL_ARCH_H_

#include <cstdint>
#include <span>
#include <string_view>

#include "lib/model/config.h"

namespace engine {

enum class EmbedScale : uint8_t { kOne, kSqrtEmbd, kKey };  // kKey: embedding_scale
enum class QkNorm : uint8_t { kNone, kPerHead, kWhole };    // of each head, or of the whole vector
enum class HeadTie : uint8_t { kWhenAbsent, kAlways };      // kAlways: output.weight is not read
// Which layers slide. kPeriodic: all but every period-th one, which a key or an array can change.
enum class WindowRule : uint8_t { kNone, kAll, kPeriodic };

// The defaults are those of a plain llama-like family, so that a new one states only what it does otherwise.
struct ArchSpec {
  std::string_view name;  // general.architecture
  Pairing pairing = Pairing::kHalves;
  FfnActivation activation = FfnActivation::kSilu;
  EmbedScale embed_scale = EmbedScale::kOne;
  QkNorm qk_norm = QkNorm::kNone;  // attn_q_norm and attn_k_norm are then required
  bool post_norms = false;         // post_attention_norm and post_ffw_norm are required
  HeadTie head_tie = HeadTie::kWhenAbsent;
  std::string_view ffn_norm = "ffn_norm";  // tensor of the norm before the feed-forward

  bool rope_freqs = false;     // the model-wide rope_freqs tensor is honoured when present
  bool rope_factors = false;   // rope_factors_long and _short as well
  bool yarn_truncates = true;  // the ramp of YaRN begins and ends at whole pairs
  int64_t nope_period = 0;     // layers l with (l + 1) % nope_period == 0 do not rotate; 0 = all do
  bool rope_finetuned_key = false;  // rope.scaling.finetuned = false: no layer rotates

  WindowRule window = WindowRule::kNone;  // kNone: attention.sliding_window is ignored
  uint32_t window_period = 0;             // kPeriodic: default of the pattern key
  int64_t window_default = 0;             // of attention.sliding_window; 0 = no layer slides
  bool local_rope = false;                // sliding layers rotate by rope.freq_base_swa, unscaled
  double local_rope_base = 0;             // its default; 0 = rope.freq_base

  bool attn_softcap = false;  // attn_logit_softcapping is honoured
  float attn_softcap_default = 0;
  bool final_softcap = false;  // final_logit_softcapping is honoured
  float final_softcap_default = 0;
  // Score scale is 1/sqrt(key_length), except for a model of this many blocks, where it is 1/sqrt(E/H).
  int64_t wide_scale_blocks = 0;  // 0 = no exception
  bool unit_score_scale = false;  // the score scale is 1
  bool scale_keys = false;        // attention.scale, residual_scale and logit_scale are honoured

  bool local_heads =
      false;  // head sizes of sliding layers have keys of their own, with the suffix _swa
  bool v_norm =
      false;  // values are normed per head, without a weight; attn_v may be absent: the raw keys
  bool shared_kv = false;     // attention.shared_kv_layers is honoured
  bool layer_embeds = false;  // embedding_length_per_layer_input is honoured
  bool layer_scales = false;  // layer_output_scale is honoured

  MoeWeights moe = MoeWeights::kNone;  // how expert weights follow from the router's scores
  bool sinks = false;                  // attn_sinks is required
  bool short_convs =
      false;  // layers without KV heads are short convolutions; shortconv.l_cache is required
  std::string_view output_norm =
      "output_norm";  // tensor of the last norm, unless output_norm itself is there
};

extern const ArchSpec kArchLlama;     // arch_llama.cc
extern const ArchSpec kArchSmolLm3;   // arch_smollm3.cc
extern const ArchSpec kArchQwen2;     // arch_qwen2.cc
extern const ArchSpec kArchQwen3;     // arch_qwen3.cc
extern const ArchSpec kArchGemma2;    // arch_gemma2.cc
extern const ArchSpec kArchGemma3;    // arch_gemma3.cc
extern const ArchSpec kArchGemma4;    // arch_gemma4.cc
extern const ArchSpec kArchPhi3;      // arch_phi3.cc
extern const ArchSpec kArchGranite;   // arch_granite.cc
extern const ArchSpec kArchQwen3Moe;  // arch_qwen3moe.cc
extern const ArchSpec kArchOlmoe;     // arch_olmoe.cc
extern const ArchSpec kArchGptOss;    // arch_gpt_oss.cc

extern const ArchSpec kArchLfm2;  // arch_lfm2.cc

std::span<const ArchSpec* const> architectures();
const ArchSpec* find_architecture(std::string_view name);  // nullptr when unknown

}  // namespace engine

#endif  // ENGINE_LIB_MODEL_ARCH_H_
