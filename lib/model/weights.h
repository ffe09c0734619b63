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

// A matrix [rows][cols] as stored, or a vector (rows = 1) converted to f32. data == nullptr: absent.
struct WeightView {
  std::string name;
  Format format = Format::kF32;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t row_bytes = 0;
  const uint8_t* data = nullptr;
  bool present() const { return data != nullptr; }
};

struct LayerWeights {
  WeightView attn_norm;  // [E]
  WeightView q, k, v;    // [H*Dk][E], [G*Dk][E], [G*Dv][E]
  WeightView q_bias, k_bias, v_bias;
  WeightView q_norm, k_norm;  // [Dk]
  WeightView attn_output;     // [E][H*Dv]
  WeightView attn_output_bias;
  WeightView post_attn_norm;  // [E]
  WeightView ffn_norm;        // [E]
  WeightView gate, up, down;  // [F][E], [F][E], [E][F]
  WeightView gate_bias, up_bias, down_bias;
  WeightView post_ffn_norm;  // [E]
};

struct ModelWeights {
  WeightView embed;        // [V][E]
  WeightView output_norm;  // [E]
  WeightView head;         // [V][E]; the embedding when head_is_tied
  bool head_is_tied = false;
  WeightView rope_freqs;  // [n_rot / 2], divisors
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
