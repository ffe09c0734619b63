// The dimensions and rules of one opened model, as plain numbers.
#ifndef ENGINE_LIB_MODEL_CONFIG_H_
#define ENGINE_LIB_MODEL_CONFIG_H_

#include <cstdint>
#include <string>
#include <vector>

namespace engine {

enum class FfnActivation : uint8_t { kSilu, kGeluTanh };
enum class Pairing : uint8_t { kAdjacent, kHalves };  // which dims of a head rotate together

// What may differ from layer to layer.
struct LayerConfig {
  int64_t n_kv_heads = 0;  // G
  int64_t n_ff = 0;        // F
  int64_t window = 0;      // keys that a query sees, itself included; 0 = all
  int32_t rope = 0;        // index into ModelConfig::ropes; -1 = this layer does not rotate
};

// One rotation rule: angle of pair i at position p is p * base^(-2i/n_rot) / (divisor[i] * factor).
struct RopeConfig {
  double base = 10000.0;
  double factor = 1.0;        // linear scaling
  bool use_divisors = false;  // the model-wide rope_freqs tensor
  float mscale = 1.0f;        // multiplies cos and sin
};

struct ModelConfig {
  std::string architecture;
  std::string name;
  int64_t n_embd = 0;      // E
  int64_t n_layer = 0;     // L
  int64_t n_head = 0;      // H
  int64_t head_dim_k = 0;  // D of queries and keys
  int64_t head_dim_v = 0;
  int64_t n_rot = 0;    // dims of a head that rotate, even
  int64_t n_vocab = 0;  // rows of the embedding
  int64_t n_ctx_train = 0;
  float norm_eps = 0.0f;
  float embed_scale = 1.0f;
  float score_scale = 0.0f;
  float attn_softcap = 0.0f;   // 0 = none
  float final_softcap = 0.0f;  // 0 = none
  FfnActivation activation = FfnActivation::kSilu;
  Pairing pairing = Pairing::kHalves;
  bool qk_norm = false;     // RMS norm per head before rotation
  bool post_norms = false;  // sandwich block: the branch output is normed before its add
  std::vector<RopeConfig> ropes;
  std::vector<LayerConfig> layers;
};

}  // namespace engine

#endif  // ENGINE_LIB_MODEL_CONFIG_H_
