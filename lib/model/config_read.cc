// Hyper-parameters: keys of formats/architectures.md section 1.3, with bounds that keep all later maths safe.
#include "lib/model/config_read.h"

#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace engine {
namespace {

// Bounds far above any real model, low enough that products of a few of them fit int64.
constexpr int64_t kMaxLayers = 4096;
constexpr int64_t kMaxHeads = 65536;
constexpr int64_t kMaxHeadDim = 65536;
constexpr int64_t kMaxWidth = int64_t{1} << 24;
constexpr int64_t kMaxContext = (int64_t{1} << 31) - 1;

class KeyReader {
 public:
  KeyReader(const Gguf& file, std::string_view prefix) : file_(file), prefix_(prefix) {}

  std::string full(std::string_view key) const { return absl::StrCat(prefix_, ".", key); }

  absl::Status fail(std::string_view key, std::string_view message) const {
    const std::string name = full(key);
    const GgufValue* value = file_.find(name);
    return error_at(Code::kModelKey, name, value ? value->offset : kNoOffset,
                    absl::StrCat(name, ": ", message));
  }

  // An integer in [low, high]; `fallback` < 0 means that the key is required.
  absl::StatusOr<int64_t> integer(std::string_view key, int64_t low, int64_t high,
                                  int64_t fallback = -1) const {
    auto value = file_.get_int(full(key));
    if (!value.ok()) return as_key_error(key, value.status());
    if (!value->has_value()) {
      if (fallback < 0) return fail(key, "required key is missing");
      return fallback;
    }
    if (**value < low || **value > high) {
      return fail(key, absl::StrCat("value ", **value, " is outside ", low, " .. ", high));
    }
    return **value;
  }

  absl::StatusOr<std::optional<double>> real(std::string_view key) const {
    auto value = file_.get_float(full(key));
    if (!value.ok()) return as_key_error(key, value.status());
    if (value->has_value() && !std::isfinite(**value)) return fail(key, "value is not finite");
    return *value;
  }

  // A scalar for all layers, or an array with one value per layer.
  absl::StatusOr<std::vector<int64_t>> per_layer(std::string_view key, int64_t n_layer, int64_t low,
                                                 int64_t high, int64_t fallback = -1) const {
    const GgufValue* value = file_.find(full(key));
    if (value == nullptr || value->type != GgufType::kArray) {
      ENGINE_ASSIGN_OR_RETURN(const int64_t all, integer(key, low, high, fallback));
      return std::vector<int64_t>(static_cast<size_t>(n_layer), all);
    }
    auto list = file_.get_ints(full(key));
    if (!list.ok()) return as_key_error(key, list.status());
    if (static_cast<int64_t>((*list)->size()) != n_layer) {
      return fail(key,
                  absl::StrCat("array has ", (*list)->size(), " values for ", n_layer, " blocks"));
    }
    for (const int64_t v : **list) {
      if (v < low || v > high) {
        return fail(key, absl::StrCat("value ", v, " is outside ", low, " .. ", high));
      }
    }
    return std::move(**list);
  }

  const Gguf& file() const { return file_; }

 private:
  absl::Status as_key_error(std::string_view key, const absl::Status& status) const {
    const ErrorWhere where = where_of(status);
    return error_at(Code::kModelKey, full(key), where.offset, status.message());
  }

  const Gguf& file_;
  std::string prefix_;
};

// Which layers are local: the family's period, overridden by a scalar or boolean-array key.
absl::StatusOr<std::vector<bool>> read_local_layers(const KeyReader& keys, const ArchSpec& arch,
                                                    int64_t n_layer) {
  constexpr std::string_view kKey = "attention.sliding_window_pattern";
  std::vector<bool> local(static_cast<size_t>(n_layer), false);
  const GgufValue* value = keys.file().find(keys.full(kKey));
  if (value != nullptr && value->type == GgufType::kArray) {
    ENGINE_ASSIGN_OR_RETURN(const std::vector<int64_t> flags, keys.per_layer(kKey, n_layer, 0, 1));
    for (size_t l = 0; l < local.size(); ++l) local[l] = flags[l] != 0;
    return local;
  }
  ENGINE_ASSIGN_OR_RETURN(const int64_t period,
                          keys.integer(kKey, 0, kMaxLayers, arch.window_period));
  for (size_t l = 0; l < local.size(); ++l) {
    // Period 0 = all layers are local, 1 = none (formats/architectures.md 1.5).
    local[l] = period == 0 || static_cast<int64_t>(l) % period < period - 1;
  }
  return local;
}

absl::StatusOr<double> read_linear_factor(const KeyReader& keys) {
  auto type = keys.file().get_string(keys.full("rope.scaling.type"));
  if (!type.ok()) return keys.fail("rope.scaling.type", "value is not a string");
  const std::string_view name = type->value_or("linear");
  if (name == "none") return 1.0;
  if (name != "linear") {
    return keys.fail("rope.scaling.type",
                     absl::StrCat("scaling \"", name, "\" is not supported; known: none, linear"));
  }
  ENGINE_ASSIGN_OR_RETURN(std::optional<double> factor, keys.real("rope.scaling.factor"));
  if (!factor) {
    ENGINE_ASSIGN_OR_RETURN(factor, keys.real("rope.scale_linear"));
  }
  if (factor && *factor < 0) return keys.fail("rope.scaling.factor", "value is negative");
  return factor && *factor > 0 ? *factor : 1.0;
}

absl::Status read_ropes(const KeyReader& keys, const ArchSpec& arch, ModelConfig* config) {
  RopeConfig rope;
  ENGINE_ASSIGN_OR_RETURN(const std::optional<double> base, keys.real("rope.freq_base"));
  rope.base = base.value_or(10000.0);
  if (!(rope.base > 0)) return keys.fail("rope.freq_base", "value is not positive");
  ENGINE_ASSIGN_OR_RETURN(rope.factor, read_linear_factor(keys));
  ENGINE_ASSIGN_OR_RETURN(const std::optional<double> mscale,
                          keys.real("rope.scaling.attn_factor"));
  rope.mscale = static_cast<float>(mscale.value_or(1.0));
  rope.use_divisors = arch.rope_freqs;
  config->ropes.push_back(rope);
  if (arch.local_rope_base > 0) {
    RopeConfig local;  // local layers rotate unscaled
    ENGINE_ASSIGN_OR_RETURN(const std::optional<double> swa, keys.real("rope.freq_base_swa"));
    local.base = swa.value_or(arch.local_rope_base);
    if (!(local.base > 0)) return keys.fail("rope.freq_base_swa", "value is not positive");
    config->ropes.push_back(local);
  }
  return absl::OkStatus();
}

absl::Status read_layers(const KeyReader& keys, const ArchSpec& arch, ModelConfig* config) {
  const int64_t n_layer = config->n_layer;
  ENGINE_ASSIGN_OR_RETURN(const std::vector<int64_t> ff,
                          keys.per_layer("feed_forward_length", n_layer, 1, kMaxWidth));
  ENGINE_ASSIGN_OR_RETURN(
      const std::vector<int64_t> kv,
      keys.per_layer("attention.head_count_kv", n_layer, 1, kMaxHeads, config->n_head));
  int64_t window = 0;
  std::vector<bool> local(static_cast<size_t>(n_layer), false);
  if (arch.window_period > 0) {
    ENGINE_ASSIGN_OR_RETURN(window, keys.integer("attention.sliding_window", 0, kMaxContext, 0));
    ENGINE_ASSIGN_OR_RETURN(local, read_local_layers(keys, arch, n_layer));
  }
  for (size_t l = 0; l < static_cast<size_t>(n_layer); ++l) {
    if (config->n_head % kv[l] != 0) {
      return keys.fail("attention.head_count_kv",
                       absl::StrCat(kv[l], " does not divide head_count ", config->n_head));
    }
    const bool is_local = local[l] && window > 0;
    LayerConfig layer;
    layer.n_kv_heads = kv[l];
    layer.n_ff = ff[l];
    layer.window = is_local ? window : 0;
    layer.rope = is_local && config->ropes.size() > 1 ? 1 : 0;
    config->layers.push_back(layer);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<const ArchSpec*> read_architecture(const Gguf& file) {
  constexpr std::string_view kKey = "general.architecture";
  auto name = file.get_string(kKey);
  if (!name.ok())
    return error_at(Code::kModelKey, kKey, where_of(name.status()).offset, name.status().message());
  if (!name->has_value()) {
    return error_at(Code::kModelKey, kKey, kNoOffset,
                    "general.architecture: required key is missing");
  }
  const ArchSpec* arch = find_architecture(**name);
  if (arch == nullptr) {
    std::string known;
    for (const ArchSpec* a : architectures())
      absl::StrAppend(&known, known.empty() ? "" : ", ", a->name);
    return error_at(Code::kModelArchitecture, kKey, file.find(kKey)->offset,
                    absl::StrCat("architecture \"", **name, "\" is not supported; known: ", known));
  }
  return arch;
}

absl::StatusOr<ModelConfig> read_config(const Gguf& file, const ArchSpec& arch) {
  const KeyReader keys(file, arch.name);
  ModelConfig config;
  config.architecture = std::string(arch.name);
  auto name = file.get_string("general.name");
  if (name.ok() && name->has_value()) config.name = std::string(**name);
  config.pairing = arch.pairing;
  config.activation = arch.activation;
  config.qk_norm = arch.qk_norm;
  config.post_norms = arch.post_norms;

  ENGINE_ASSIGN_OR_RETURN(config.n_layer, keys.integer("block_count", 1, kMaxLayers));
  ENGINE_ASSIGN_OR_RETURN(config.n_embd, keys.integer("embedding_length", 1, kMaxWidth));
  ENGINE_ASSIGN_OR_RETURN(config.n_ctx_train, keys.integer("context_length", 1, kMaxContext));
  ENGINE_ASSIGN_OR_RETURN(config.n_head, keys.integer("attention.head_count", 1, kMaxHeads));
  ENGINE_ASSIGN_OR_RETURN(const int64_t experts, keys.integer("expert_count", 0, kMaxWidth, 0));
  if (experts > 0) return keys.fail("expert_count", "mixtures of experts are not supported");

  const int64_t even_split = config.n_embd / config.n_head;
  ENGINE_ASSIGN_OR_RETURN(config.head_dim_k,
                          keys.integer("attention.key_length", 1, kMaxHeadDim, even_split));
  ENGINE_ASSIGN_OR_RETURN(config.head_dim_v,
                          keys.integer("attention.value_length", 1, kMaxHeadDim, even_split));
  if (config.head_dim_k < 1 || config.head_dim_v < 1) {
    return keys.fail("attention.head_count", "more heads than embedding_length");
  }
  ENGINE_ASSIGN_OR_RETURN(config.n_rot,
                          keys.integer("rope.dimension_count", 2, kMaxHeadDim, config.head_dim_k));
  if (config.n_rot % 2 != 0 || config.n_rot > config.head_dim_k) {
    return keys.fail(
        "rope.dimension_count",
        absl::StrCat(config.n_rot, " is odd or above the head size ", config.head_dim_k));
  }

  constexpr std::string_view kEps = "attention.layer_norm_rms_epsilon";
  ENGINE_ASSIGN_OR_RETURN(const std::optional<double> eps, keys.real(kEps));
  if (!eps) return keys.fail(kEps, "required key is missing");
  config.norm_eps = static_cast<float>(*eps);
  if (!(config.norm_eps > 0)) return keys.fail(kEps, "value is not positive");

  config.embed_scale = arch.embed_scale == EmbedScale::kSqrtEmbd
                           ? std::sqrt(static_cast<float>(config.n_embd))
                           : 1.0f;
  const int64_t scale_width =
      arch.wide_scale_blocks == config.n_layer ? even_split : config.head_dim_k;
  config.score_scale = 1.0f / std::sqrt(static_cast<float>(scale_width));
  if (arch.final_softcap) {
    ENGINE_ASSIGN_OR_RETURN(const std::optional<double> cap, keys.real("final_logit_softcapping"));
    if (cap && *cap < 0) return keys.fail("final_logit_softcapping", "value is negative");
    config.final_softcap = static_cast<float>(cap.value_or(0.0));
  }
  ENGINE_RETURN_IF_ERROR(read_ropes(keys, arch, &config));
  ENGINE_RETURN_IF_ERROR(read_layers(keys, arch, &config));
  return config;
}

}  // namespace engine
