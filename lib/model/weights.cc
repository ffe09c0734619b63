// Binds tensors to roles by name and checks every shape (names and shapes: formats/architectures.md 1.2).
#include "lib/model/weights.h"

#include <algorithm>
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

  bool has(std::string_view name) const { return file_.find_tensor(name) != nullptr; }
  // Of a tensor's second dimension; 0 where there is no such tensor.
  int64_t rows(std::string_view name) const {
    const GgufTensor* tensor = file_.find_tensor(name);
    return tensor == nullptr ? 0 : static_cast<int64_t>(tensor->dims[1]);
  }

  // A matrix of `rows` outputs and `cols` inputs, n_experts of them; rows 0 = any.
  WeightView matrix(std::string_view name, int64_t rows, int64_t cols, Need need,
                    int64_t n_experts = 1) {
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
    if (dim0 != cols || (rows != 0 && dim1 != rows) ||
        tensor->dims[2] != static_cast<uint64_t>(n_experts) || tensor->dims[3] != 1) {
      const auto of = [&](uint64_t n) { return n == 1 ? "" : absl::StrCat(", ", n); };
      problem(name, tensor->info_offset,
              absl::StrCat("shape [", dim0, ", ", dim1, of(tensor->dims[2]), "], expected [", cols,
                           ", ", rows ? absl::StrCat(rows) : "any",
                           of(static_cast<uint64_t>(n_experts)), "]"));
      return {};
    }
    WeightView view;
    view.name = std::string(name);
    view.format = format->format;
    view.rows = dim1;
    view.cols = dim0;
    view.row_bytes = dim0 / format->block_elements * format->block_bytes;
    view.n_experts = n_experts;
    view.data = readable(*tensor);
    return view;
  }

  // A vector of n values of any float type, as f32; n_experts of them.
  WeightView vector(std::string_view name, int64_t n, Need need, int64_t n_experts = 1) {
    const GgufTensor* tensor = find(name, need);
    if (tensor == nullptr) return {};
    const FormatInfo* format = format_info(tensor->type);
    const bool is_float =
        format != nullptr && (format->format == Format::kF32 || format->format == Format::kF16 ||
                              format->format == Format::kBF16);
    const bool has_experts = n_experts > 1 && tensor->dims[1] == static_cast<uint64_t>(n_experts);
    const uint64_t rest = (has_experts ? 1 : tensor->dims[1]) * tensor->dims[2] * tensor->dims[3];
    if (!is_float || static_cast<int64_t>(tensor->dims[0]) != n || rest != 1 ||
        has_experts != (n_experts > 1)) {
      problem(name, tensor->info_offset,
              absl::StrCat("expected ", n, " values of F32, F16 or BF16, found ",
                           format ? format->name : "unknown", " [", tensor->dims[0], ", ",
                           tensor->dims[1], "]"));
      return {};
    }
    uint8_t* copy = own(static_cast<uint64_t>(n * n_experts) * sizeof(float));
    if (copy == nullptr) return {};
    dequantize_row(format->format, file_.tensor_data(*tensor), n * n_experts,
                   reinterpret_cast<float*>(copy));
    WeightView view{std::string(name), Format::kF32, 1, n};
    view.row_bytes = n * int64_t{sizeof(float)};
    view.n_experts = n_experts;
    view.data = copy;
    return view;
  }

  // A required table [rows][cols] of any float type, as f32 [cols][rows].
  WeightView transposed(std::string_view name, int64_t rows, int64_t cols) {
    const WeightView table = vector(name, cols, Need::kRequired, rows);
    if (!table.present()) return table;
    uint8_t* copy = own(static_cast<uint64_t>(rows * cols) * sizeof(float));
    if (copy == nullptr) return {};
    const auto* from = reinterpret_cast<const float*>(table.data);
    auto* to = reinterpret_cast<float*>(copy);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < cols; ++c) to[c * rows + r] = from[r * cols + c];
    }
    WeightView view{std::string(name), Format::kF32, cols, rows};
    view.row_bytes = rows * int64_t{sizeof(float)};
    view.data = copy;
    return view;
  }

  // Rows [first, first + rows) of a matrix or, where it is a vector, such values of it.
  static WeightView part(const WeightView& whole, std::string_view name, int64_t first, int64_t n) {
    WeightView view = whole;
    if (!whole.present()) return view;
    view.name = absl::StrCat(whole.name, ":", name);
    if (whole.rows > 1) {
      view.rows = n;
      view.data += first * whole.row_bytes;
    } else {
      view.cols = n;
      view.row_bytes = n * int64_t{sizeof(float)};
      view.data += first * int64_t{sizeof(float)};
    }
    return view;
  }

  // Columns [first, first + n) of a matrix, at block borders.
  WeightView columns(const WeightView& whole, int64_t first, int64_t n) {
    WeightView view = whole;
    if (!whole.present()) return view;
    const FormatInfo& format = *format_info(whole.format);
    if (n % format.block_elements != 0) {
      problem(whole.name, kNoOffset,
              absl::StrCat("a layer's ", n, " columns are no multiple of ", format.block_elements));
      return {};
    }
    view.name = absl::StrCat(whole.name, ":", first / n);
    view.cols = n;
    view.data += first / format.block_elements * format.block_bytes;
    return view;
  }

  WeightView ones(std::string_view name, int64_t n) {
    uint8_t* copy = own(static_cast<uint64_t>(n) * sizeof(float));
    if (copy == nullptr) return {};
    std::fill_n(reinterpret_cast<float*>(copy), n, 1.0f);
    WeightView view{std::string(name), Format::kF32, 1, n};
    view.row_bytes = n * int64_t{sizeof(float)};
    view.data = copy;
    return view;
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

class LayerBinder {
 public:
  LayerBinder(Binder& binder, const ArchSpec& arch, const ModelConfig& config, size_t l)
      : binder_(binder), arch_(arch), config_(config), layer_(config.layers[l]), l_(l) {}

  LayerWeights bind() {
    const int64_t E = config_.n_embd;
    w_.attn_norm = vector("attn_norm.weight", E, kRequired);
    if (layer_.n_kv_heads == 0) {
      bind_conv();
    } else {
      bind_qkv();
      w_.attn_output =
          matrix("attn_output.weight", E, config_.n_head * layer_.head_dim_v, kRequired);
      w_.attn_output_bias = vector("attn_output.bias", E, kOptional);
      if (arch_.sinks) w_.sinks = vector("attn_sinks.weight", config_.n_head, kRequired);
    }
    w_.ffn_norm = vector(absl::StrCat(arch_.ffn_norm, ".weight"), E, kRequired);
    if (config_.n_experts > 0) {
      bind_experts();
    } else {
      bind_ffn();
    }
    if (arch_.post_norms) {
      w_.post_attn_norm = vector("post_attention_norm.weight", E, kRequired);
      w_.post_ffn_norm = vector("post_ffw_norm.weight", E, kRequired);
    }
    if (arch_.layer_scales) w_.output_scale = vector("layer_output_scale.weight", 1, kOptional);
    return std::move(w_);
  }

 private:
  static constexpr Need kRequired = Need::kRequired;
  static constexpr Need kOptional = Need::kOptional;

  std::string name(std::string_view tail) const { return absl::StrCat("blk.", l_, ".", tail); }
  WeightView matrix(std::string_view tail, int64_t rows, int64_t cols, Need need,
                    int64_t n_experts = 1) {
    return binder_.matrix(name(tail), rows, cols, need, n_experts);
  }
  WeightView vector(std::string_view tail, int64_t n, Need need, int64_t n_experts = 1) {
    return binder_.vector(name(tail), n, need, n_experts);
  }

  // Three tensors, or one with the rows of q, k and v in turn.
  void bind_qkv() {
    const int64_t E = config_.n_embd, G = layer_.n_kv_heads;
    const int64_t q = config_.n_head * layer_.head_dim_k;
    const int64_t k = G * layer_.head_dim_k, v = G * layer_.head_dim_v;
    const bool reads_others = layer_.kv_source != static_cast<int32_t>(l_);
    if (binder_.has(name("attn_qkv.weight"))) {
      const WeightView all = matrix("attn_qkv.weight", q + k + v, E, kRequired);
      const WeightView bias = vector("attn_qkv.bias", q + k + v, kOptional);
      w_.q = Binder::part(all, "q", 0, q);
      w_.k = Binder::part(all, "k", q, k);
      w_.v = Binder::part(all, "v", q + k, v);
      w_.q_bias = Binder::part(bias, "q", 0, q);
      w_.k_bias = Binder::part(bias, "k", q, k);
      w_.v_bias = Binder::part(bias, "v", q + k, v);
    } else {
      w_.q = matrix("attn_q.weight", q, E, kRequired);
      w_.q_bias = vector("attn_q.bias", q, kOptional);
      if (!reads_others) {
        const bool v_is_k = arch_.v_norm && layer_.head_dim_k == layer_.head_dim_v;
        w_.k = matrix("attn_k.weight", k, E, kRequired);
        w_.v = matrix("attn_v.weight", v, E, v_is_k ? kOptional : kRequired);
        w_.k_bias = vector("attn_k.bias", k, kOptional);
        w_.v_bias = vector("attn_v.bias", v, kOptional);
      }
    }
    if (arch_.v_norm && !reads_others) w_.v_ones = binder_.ones(name("v_ones"), layer_.head_dim_v);
    if (arch_.qk_norm == QkNorm::kNone) return;
    const bool whole = arch_.qk_norm == QkNorm::kWhole;
    w_.q_norm = vector("attn_q_norm.weight", whole ? q : layer_.head_dim_k, kRequired);
    if (reads_others) return;
    w_.k_norm = vector("attn_k_norm.weight", whole ? k : layer_.head_dim_k, kRequired);
  }

  void bind_conv() {
    const int64_t E = config_.n_embd;
    const WeightView in = matrix("shortconv.in_proj.weight", 3 * E, E, kRequired);
    w_.conv_b = Binder::part(in, "b", 0, E);
    w_.conv_c = Binder::part(in, "c", E, E);
    w_.conv_u = Binder::part(in, "u", 2 * E, E);
    w_.conv_taps = binder_.transposed(name("shortconv.conv.weight"), E, config_.n_conv_taps);
    w_.conv_out = matrix("shortconv.out_proj.weight", E, E, kRequired);
  }

  // Gate and up, or one tensor with the rows of the gate first under the name of up.
  void bind_ffn() {
    const int64_t E = config_.n_embd, F = layer_.n_ff;
    if (!binder_.has(name("ffn_gate.weight")) && binder_.rows(name("ffn_up.weight")) == 2 * F) {
      const WeightView both = matrix("ffn_up.weight", 2 * F, E, kRequired);
      const WeightView bias = vector("ffn_up.bias", 2 * F, kOptional);
      w_.gate = Binder::part(both, "gate", 0, F);
      w_.up = Binder::part(both, "up", F, F);
      w_.gate_bias = Binder::part(bias, "gate", 0, F);
      w_.up_bias = Binder::part(bias, "up", F, F);
    } else {
      w_.gate = matrix("ffn_gate.weight", F, E, kRequired);
      w_.up = matrix("ffn_up.weight", F, E, kRequired);
      w_.gate_bias = vector("ffn_gate.bias", F, kOptional);
      w_.up_bias = vector("ffn_up.bias", F, kOptional);
    }
    w_.down = matrix("ffn_down.weight", E, F, kRequired);
    w_.down_bias = vector("ffn_down.bias", E, kOptional);
  }

  void bind_experts() {
    const int64_t E = config_.n_embd, F = config_.n_ff_expert, X = config_.n_experts;
    w_.router = matrix("ffn_gate_inp.weight", X, E, kRequired);
    w_.router_bias = vector("ffn_gate_inp.bias", X, kOptional);
    w_.gate = matrix("ffn_gate_exps.weight", F, E, kRequired, X);
    w_.up = matrix("ffn_up_exps.weight", F, E, kRequired, X);
    w_.down = matrix("ffn_down_exps.weight", E, F, kRequired, X);
    w_.gate_bias = vector("ffn_gate_exps.bias", F, kOptional, X);
    w_.up_bias = vector("ffn_up_exps.bias", F, kOptional, X);
    w_.down_bias = vector("ffn_down_exps.bias", E, kOptional, X);
  }

  Binder& binder_;
  const ArchSpec& arch_;
  const ModelConfig& config_;
  const LayerConfig& layer_;
  const size_t l_;
  LayerWeights w_;
};

// One table and one projection hold the parts of all layers side by side.
void bind_own_embeds(Binder& binder, const ModelConfig& config, ModelWeights* weights) {
  const int64_t E = config.n_embd, P = config.n_layer_embd, all = P * config.n_layer;
  const WeightView table =
      binder.matrix("per_layer_token_embd.weight", config.n_vocab, all, Need::kRequired);
  const WeightView projection =
      binder.matrix("per_layer_model_proj.weight", all, E, Need::kRequired);
  weights->own_norm = binder.vector("per_layer_proj_norm.weight", P, Need::kRequired);
  for (size_t l = 0; l < weights->layers.size(); ++l) {
    LayerWeights& w = weights->layers[l];
    const auto first = static_cast<int64_t>(l) * P;
    const auto name = [&](std::string_view tail) { return absl::StrCat("blk.", l, ".", tail); };
    w.own_embed = binder.columns(table, first, P);
    w.own_projection = Binder::part(projection, absl::StrCat(l), first, P);
    w.own_gate = binder.matrix(name("inp_gate.weight"), P, E, Need::kRequired);
    w.own_output = binder.matrix(name("proj.weight"), E, P, Need::kRequired);
    w.own_post_norm = binder.vector(name("post_norm.weight"), E, Need::kRequired);
  }
}

}  // namespace

absl::StatusOr<ModelWeights> bind_weights(const Gguf& file, const ArchSpec& arch,
                                          uint64_t readable_past_end, ModelConfig* config) {
  ModelWeights weights;
  Binder binder(file, readable_past_end, &weights);
  weights.embed = binder.matrix("token_embd.weight", 0, config->n_embd, Need::kRequired);
  config->n_vocab = weights.embed.rows;
  const std::string_view norm =
      binder.has("output_norm.weight") ? std::string_view("output_norm") : arch.output_norm;
  weights.output_norm =
      binder.vector(absl::StrCat(norm, ".weight"), config->n_embd, Need::kRequired);
  weights.head_is_tied = arch.head_tie == HeadTie::kAlways || !binder.has("output.weight");
  weights.head = weights.head_is_tied ? weights.embed
                                      : binder.matrix("output.weight", config->n_vocab,
                                                      config->n_embd, Need::kRequired);
  const int64_t n_pairs = config->n_rot / 2;
  if (arch.rope_freqs) {
    weights.rope_freqs = binder.vector("rope_freqs.weight", n_pairs, Need::kOptional);
  }
  if (arch.rope_factors &&
      (binder.has("rope_factors_long.weight") || binder.has("rope_factors_short.weight"))) {
    weights.rope_long = binder.vector("rope_factors_long.weight", n_pairs, Need::kRequired);
    weights.rope_short = binder.vector("rope_factors_short.weight", n_pairs, Need::kRequired);
  }
  if (weights.rope_long.present()) {
    config->ropes[0].divisors = RopeDivisors::kFactors;
  } else if (weights.rope_freqs.present()) {
    config->ropes[0].divisors = RopeDivisors::kFreqs;
  }
  for (size_t l = 0; l < static_cast<size_t>(config->n_layer); ++l) {
    weights.layers.push_back(LayerBinder(binder, arch, *config, l).bind());
  }
  if (config->n_layer_embd > 0) bind_own_embeds(binder, *config, &weights);
  ENGINE_RETURN_IF_ERROR(binder.status());
  weights.n_unused_tensors = static_cast<int32_t>(file.tensors().size() - binder.n_used());
  if (config->n_vocab < 1) {
    return error_at(Code::kModelTensor, "token_embd.weight", kNoOffset,
                    "the embedding has no rows");
  }
  return weights;
}

}  // namespace engine
