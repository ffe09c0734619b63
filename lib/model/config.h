// The dimensions and rules of one opened model, as plain numbers.
#ifndef ENGINE_LIB_MODEL_CONFIG_H_
#define ENGINE_LIB_MODEL_CONFIG_H_

#include <cstdint>
#include <string>
#include <vector>

namespace engine {

enum class FfnActivation : uint8_t { kSilu, kGeluTanh, kSwigluClamped };
enum class Pairing : uint8_t { kAdjacent, kHalves };  // which dims of a head rotate together
// Weights of the k chosen experts: kSoftmax, values of the softmax over all; kRenormalised, those divided
// by their sum; kSoftmaxOfChosen, softmax over the k scores.
enum class MoeWeights : uint8_t { kNone, kSoftmax, kRenormalised, kSoftmaxOfChosen };

// What may differ from layer to layer.
struct LayerConfig {
  int64_t n_kv_heads = 0;  // G; 0 = a short convolution in place of the attention
  int64_t n_ff = 0;        // F
  int64_t head_dim_k = 0;  // D of queries and keys
  int64_t head_dim_v = 0;
  int32_t kv_source = 0;  // the layer whose keys and values it reads; then it stores none itself
  int64_t window = 0;     // keys that a query sees, itself included; 0 = all
  int32_t rope = 0;       // index into ModelConfig::ropes; -1 = this layer does not rotate
};

enum class RopeScaling : uint8_t { kNone, kLinear, kYarn };
enum class RopeDivisors : uint8_t {
  kNone,
  kFreqs,
  kFactors
};  // rope_freqs; rope_factors_long/_short

// One rotation rule: angle of pair i at position p is p * base^(-2i/n_rot) / divisor[i], changed by the
// scaling (formats/architectures.md 1.4).
struct RopeConfig {
  double base = 10000.0;
  int64_t n_rot = 0;  // dims of a head that rotate, even
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1.0;         // linear and YaRN
  int64_t n_ctx_original = 0;  // YaRN: of its ramp; factors: the long table serves longer contexts
  double beta_fast = 32.0,
         beta_slow = 1.0;      // YaRN: turns within n_ctx_original where the ramp ends
  bool ramp_truncates = true;  // YaRN: those are rounded to whole pairs
  RopeDivisors divisors = RopeDivisors::kNone;
  float mscale = 1.0f;  // multiplies cos and sin
};

struct ModelConfig {
  std::string architecture;
  std::string name;
  int64_t n_embd = 0;      // E
  int64_t n_layer = 0;     // L
  int64_t n_head = 0;      // H
  int64_t head_dim_k = 0;  // of layers that see all keys
  int64_t head_dim_v = 0;
  int64_t n_rot = 0;
  int64_t n_layer_embd = 0;  // P, width of the embedding that each layer has of its own; 0 = none
  int64_t n_vocab = 0;       // rows of the embedding
  int64_t n_ctx_train = 0;
  int64_t n_conv_taps = 0;     // of the short convolutions
  int64_t n_experts = 0;       // X; 0 = dense
  int64_t n_experts_used = 0;  // k
  int64_t n_ff_expert = 0;     // F of one expert
  MoeWeights moe = MoeWeights::kNone;
  float norm_eps = 0.0f;
  float embed_scale = 1.0f;
  float score_scale = 0.0f;
  float residual_scale = 1.0f;  // of a branch, before it is added to the residual
  float logit_scale = 1.0f;     // logits are multiplied by it
  float attn_softcap = 0.0f;    // 0 = none
  float final_softcap = 0.0f;   // 0 = none
  FfnActivation activation = FfnActivation::kSilu;
  Pairing pairing = Pairing::kHalves;
  bool qk_norm = false;     // RMS norm before rotation, per head or of the whole vector
  bool post_norms = false;  // sandwich block: the branch output is normed before its add
  std::vector<RopeConfig> ropes;
  std::vector<LayerConfig> layers;
};

}  // namespace engine

#endif  // ENGINE_LIB_MODEL_CONFIG_H_
