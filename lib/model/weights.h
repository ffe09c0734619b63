// The tensors of a model by role: views into the file, every mismatch reported at once.
#ifndef ENGINE_LIB_MODEL_WEIGHTS_H_
#define ENGINE_LIB_MODEL_WEIGHTS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/status.h"
#include "lib/file/gguf.h"
#include "lib/model/arch.h"
#include "lib/model/config.h"
#include "lib/quant/format.h"

namespace engine {

// A matrix [rows][cols] as stored, n_experts of them one after the other, or a vector (rows = 1) or table
// of biases converted to f32. data == nullptr: absent.
struct WeightView {
  std::string name;
  Format format = Format::kF32;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t row_bytes = 0;
  int64_t n_experts = 1;
  const uint8_t* data = nullptr;
  bool present() const { return data != nullptr; }
};

struct LayerWeights {
  WeightView attn_norm;  // [E]
  // Of a short convolution, in place of the attention's: [E][E] each, rows of one tensor; [taps][E]; [E][E].
  WeightView conv_b, conv_c, conv_u, conv_taps, conv_out;
  WeightView q, k, v;  // [H*Dk][E], [G*Dk][E], [G*Dv][E]; may be rows of one tensor
  WeightView q_bias, k_bias, v_bias;
  WeightView q_norm, k_norm;  // [Dk], or [H*Dk] and [G*Dk] where the whole vector is normed
  WeightView sinks;           // [H], logits of the softmax's denominator
  WeightView attn_output;     // [E][H*Dv]
  WeightView attn_output_bias;
  WeightView post_attn_norm;                 // [E]
  WeightView ffn_norm;                       // [E]
  WeightView router, router_bias;            // [X][E], [X]; a mixture of experts has them
  WeightView gate, up, down;                 // [F][E], [F][E], [E][F]; with experts X of each
  WeightView gate_bias, up_bias, down_bias;  // [F], [F], [E]; with experts X of each
  WeightView post_ffn_norm;                  // [E]
  WeightView v_ones;                         // [Dv], ones: the weight of a norm that has none
  // Of the layer's own embedding: columns of the table [V][P], rows of the projection [P][E]; [P][E], [E][P], [E].
  WeightView own_embed, own_projection, own_gate, own_output, own_post_norm;
  WeightView output_scale;  // [1]
};

struct ModelWeights {
  WeightView embed;        // [V][E]
  WeightView output_norm;  // [E]
  WeightView head;         // [V][E]; the embedding when head_is_tied
  bool head_is_tied = false;
  WeightView rope_freqs;  // [n_rot / 2], divisors
  WeightView rope_long,
      rope_short;       // [n_rot / 2], divisors for long and short contexts; both or none
  WeightView own_norm;  // [P], of every layer's own embedding
  std::vector<LayerWeights> layers;
  int32_t n_unused_tensors = 0;  // in the file, but not of this architecture

  // Owned copies: vectors as f32, and tensors that end too close to the end of the file's memory to be
  // read 64 bytes past their end, as kernels may.
  std::vector<std::unique_ptr<uint8_t[]>> owned;
};

// `readable_past_end` is how many bytes after file.bytes() may be read safely. Sets config->n_vocab from
// the embedding. Errors (kModelTensor) list every missing or misshapen tensor in one message.
absl::StatusOr<ModelWeights> bind_weights(const Gguf& file, const ArchSpec& arch,
                                          uint64_t readable_past_end, ModelConfig* config);

}  // namespace engine

#endif  // ENGINE_LIB_MODEL_WEIGHTS_H_
