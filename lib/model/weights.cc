// Binds tensors to roles by name and checks every shape (names and shapes: formats/architectures.md 1.2).
#include "lib/model/weights.h"

#include <cstring>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "lib/quant/quant_ref.h"

namespace engine {
namespace {

constexpr uint64_t kReadPastBytes = 64;  // contract/op.h
constexpr size_t kMaxListed = 8;         // problems spelt out in one message

enum class Need { kRequired, kOptional };

class Binder {
 public:
  Binder(const Gguf& file, uint64_t readable_past_end, ModelWeights* weights)
      : file_(file), readable_past_end_(readable_past_end), weights_(weights) {}

  // A matrix of `rows` outputs and `cols` inputs; rows 0 = any.
  WeightView matrix(std::string_view name, int64_t rows, int64_t cols, Need need) {
    const GgufTensor* tensor = find(name, need);
    if (tensor == nullptr) return {};
    const FormatInfo* format = format_info(tensor->type);
    if (format == nullptr || !format->executable) {
      problem(name, tensor->info_offset,
              absl::StrCat("format ", format ? format->name : "unknown", " cannot be executed"));
      return {};
    }
    const auto dim0 = static_cast<int64_t>(tensor->dims[0]);
    const auto dim1 = static_cast<int64_t>(tensor->dims[1]);
    if (dim0 != cols || (rows != 0 && dim1 != rows) || tensor->dims[2] != 1 ||
        tensor->dims[3] != 1) {
      problem(name, tensor->info_offset,
              absl::StrCat("shape [", dim0, ", ", dim1, "], expected [", cols, ", ",
                           rows ? absl::StrCat(rows) : "any", "]"));
      return {};
    }
    WeightView view;
    view.name = std::string(name);
    view.format = format->format;
    view.rows = dim1;
    view.cols = dim0;
    view.row_bytes = dim0 / format->block_elements * format->block_bytes;
    view.data = readable(*tensor);
    return view;
  }

  // A vector of n values of any float type, as f32.
  WeightView vector(std::string_view name, int64_t n, Need need) {
    const GgufTensor* tensor = find(name, need);
    if (tensor == nullptr) return {};
    const FormatInfo* format = format_info(tensor->type);
    const bool is_float =
        format != nullptr && (format->format == Format::kF32 || format->format == Format::kF16 ||
                              format->format == Format::kBF16);
    const uint64_t rest = tensor->dims[1] * tensor->dims[2] * tensor->dims[3];
    if (!is_float || static_cast<int64_t>(tensor->dims[0]) != n || rest != 1) {
      problem(name, tensor->info_offset,
              absl::StrCat("expected ", n, " values of F32, F16 or BF16, found ",
                           format ? format->name : "unknown", " [", tensor->dims[0], ", ",
                           tensor->dims[1], "]"));
      return {};
    }
    uint8_t* copy = own(static_cast<uint64_t>(n) * sizeof(float));
    if (copy == nullptr) return {};
    dequantize_row(format->format, file_.tensor_data(*tensor), n, reinterpret_cast<float*>(copy));
    return {std::string(name), Format::kF32, 1, n, n * int64_t{sizeof(float)}, copy};
  }

  absl::Status status() const {
    if (out_of_memory_) return error(Code::kMemory, "out of memory while binding tensors");
    if (problems_.empty()) return absl::OkStatus();
    std::string message = absl::StrCat(problems_.size(), " tensor problem(s): ");
    for (size_t i = 0; i < problems_.size() && i < kMaxListed; ++i) {
      absl::StrAppend(&message, i ? "; " : "", problems_[i]);
    }
    if (problems_.size() > kMaxListed) {
      absl::StrAppend(&message, "; and ", problems_.size() - kMaxListed, " more");
    }
    return error_at(Code::kModelTensor, first_name_, first_offset_, message);
  }

  size_t n_used() const { return used_.size(); }

 private:
  const GgufTensor* find(std::string_view name, Need need) {
    const GgufTensor* tensor = file_.find_tensor(name);
    if (tensor == nullptr) {
      if (need == Need::kRequired) problem(name, kNoOffset, "missing");
    } else {
      used_.insert(tensor);
    }
    return tensor;
  }

  void problem(std::string_view name, uint64_t offset, std::string_view what) {
    if (problems_.empty()) {
      first_name_ = std::string(name);
      first_offset_ = offset;
    }
    problems_.push_back(absl::StrCat(name, ": ", what));
  }

  uint8_t* own(uint64_t n_bytes) {
    std::unique_ptr<uint8_t[]> block(new (std::nothrow) uint8_t[n_bytes + kReadPastBytes]());
    if (block == nullptr) {
      out_of_memory_ = true;
      return nullptr;
    }
    weights_->owned.push_back(std::move(block));
    return weights_->owned.back().get();
  }

  const uint8_t* readable(const GgufTensor& tensor) {
    const uint8_t* data = file_.tensor_data(tensor);
    const uint64_t end = file_.data_start() + tensor.offset + tensor.bytes;
    if (end + kReadPastBytes <= file_.bytes().size() + readable_past_end_) return data;
    uint8_t* copy = own(tensor.bytes);
    if (copy != nullptr) std::memcpy(copy, data, tensor.bytes);
    return copy;
  }

  const Gguf& file_;
  const uint64_t readable_past_end_;
  ModelWeights* const weights_;
  absl::flat_hash_set<const GgufTensor*> used_;
  std::vector<std::string> problems_;
  std::string first_name_;
  uint64_t first_offset_ = kNoOffset;
  bool out_of_memory_ = false;
};

LayerWeights bind_layer(Binder& binder, const ArchSpec& arch, const ModelConfig& config, size_t l) {
  constexpr Need kRequired = Need::kRequired;
  constexpr Need kOptional = Need::kOptional;
  const LayerConfig& layer = config.layers[l];
  const int64_t E = config.n_embd, F = layer.n_ff;
  const int64_t HDk = config.n_head * config.head_dim_k, HDv = config.n_head * config.head_dim_v;
  const int64_t GDk = layer.n_kv_heads * config.head_dim_k;
  const int64_t GDv = layer.n_kv_heads * config.head_dim_v;
  const auto name = [l](std::string_view tail) { return absl::StrCat("blk.", l, ".", tail); };

  LayerWeights w;
  w.attn_norm = binder.vector(name("attn_norm.weight"), E, kRequired);
  w.q = binder.matrix(name("attn_q.weight"), HDk, E, kRequired);
  w.k = binder.matrix(name("attn_k.weight"), GDk, E, kRequired);
  w.v = binder.matrix(name("attn_v.weight"), GDv, E, kRequired);
  w.q_bias = binder.vector(name("attn_q.bias"), HDk, kOptional);
  w.k_bias = binder.vector(name("attn_k.bias"), GDk, kOptional);
  w.v_bias = binder.vector(name("attn_v.bias"), GDv, kOptional);
  if (arch.qk_norm) {
    w.q_norm = binder.vector(name("attn_q_norm.weight"), config.head_dim_k, kRequired);
    w.k_norm = binder.vector(name("attn_k_norm.weight"), config.head_dim_k, kRequired);
  }
  w.attn_output = binder.matrix(name("attn_output.weight"), E, HDv, kRequired);
  w.attn_output_bias = binder.vector(name("attn_output.bias"), E, kOptional);
  w.ffn_norm = binder.vector(name("ffn_norm.weight"), E, kRequired);
  w.gate = binder.matrix(name("ffn_gate.weight"), F, E, kRequired);
  w.up = binder.matrix(name("ffn_up.weight"), F, E, kRequired);
  w.down = binder.matrix(name("ffn_down.weight"), E, F, kRequired);
  w.gate_bias = binder.vector(name("ffn_gate.bias"), F, kOptional);
  w.up_bias = binder.vector(name("ffn_up.bias"), F, kOptional);
  w.down_bias = binder.vector(name("ffn_down.bias"), E, kOptional);
  if (arch.post_norms) {
    w.post_attn_norm = binder.vector(name("post_attention_norm.weight"), E, kRequired);
    w.post_ffn_norm = binder.vector(name("post_ffw_norm.weight"), E, kRequired);
  }
  return w;
}

}  // namespace

absl::StatusOr<ModelWeights> bind_weights(const Gguf& file, const ArchSpec& arch,
                                          uint64_t readable_past_end, ModelConfig* config) {
  ModelWeights weights;
  Binder binder(file, readable_past_end, &weights);
  weights.embed = binder.matrix("token_embd.weight", 0, config->n_embd, Need::kRequired);
  config->n_vocab = weights.embed.rows;
  weights.output_norm = binder.vector("output_norm.weight", config->n_embd, Need::kRequired);
  weights.head = binder.matrix("output.weight", config->n_vocab, config->n_embd, Need::kOptional);
  weights.head_is_tied = file.find_tensor("output.weight") == nullptr;
  if (weights.head_is_tied) weights.head = weights.embed;
  if (arch.rope_freqs) {
    weights.rope_freqs = binder.vector("rope_freqs.weight", config->n_rot / 2, Need::kOptional);
  }
  for (size_t l = 0; l < static_cast<size_t>(config->n_layer); ++l) {
    weights.layers.push_back(bind_layer(binder, arch, *config, l));
  }
  ENGINE_RETURN_IF_ERROR(binder.status());
  weights.n_unused_tensors = static_cast<int32_t>(file.tensors().size() - binder.n_used());
  if (config->n_vocab < 1) {
    return error_at(Code::kModelTensor, "token_embd.weight", kNoOffset,
                    "the embedding has no rows");
  }
  return weights;
}

}  // namespace engine
