// What an architecture must state: a row of data per family, read by config, weights and plan.
#ifndef ENGINE_LIB_MODEL_ARCH_H_
#define ENGINE_LIB_MODEL_ARCH_H_

#include <cstdint>
#include <span>
#include <string_view>

#include "lib/model/config.h"

namespace engine {

enum class EmbedScale : uint8_t { kOne, kSqrtEmbd };

struct ArchSpec {
  std::string_view name;  // general.architecture
  Pairing pairing;
  FfnActivation activation;
  EmbedScale embed_scale;
  bool qk_norm;     // attn_q_norm and attn_k_norm are required, per head
  bool post_norms;  // post_attention_norm and post_ffw_norm are required
  bool rope_freqs;  // the model-wide rope_freqs tensor is honoured when present
  // Sliding window: layer l is local when l % period < period - 1; the period is a key with this default,
  // or an array of booleans. 0 = the family has no window and ignores the key.
  uint32_t window_period;
  double local_rope_base;  // default of rope.freq_base_swa; 0 = local layers rotate as the others
  bool final_softcap;      // final_logit_softcapping is honoured when present
  // Score scale is 1/sqrt(key_length), except for a model of this many blocks, where it is 1/sqrt(E/H).
  int64_t wide_scale_blocks;  // 0 = no exception
};

extern const ArchSpec kArchLlama;   // arch_llama.cc
extern const ArchSpec kArchGemma3;  // arch_gemma3.cc

std::span<const ArchSpec* const> architectures();
const ArchSpec* find_architecture(std::string_view name);  // nullptr when unknown

}  // namespace engine

#endif  // ENGINE_LIB_MODEL_ARCH_H_
