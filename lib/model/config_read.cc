// Hyper-parameters: keys of formats/architectures.md section 1.3, with bounds that keep all later maths safe.
#include "lib/model/config_read.h"

#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/model/key_reader.h"
#include "lib/model/rope_read.h"

namespace engine {
namespace {

// Bounds far above any real model, low enough that products of a few of them fit int64.
constexpr int64_t kMaxLayers = 4096;
constexpr int64_t kMaxHeads = 65536;
constexpr int64_t kMaxHeadDim = 65536;
constexpr int64_t kMaxWidth = int64_t{1} << 24;
constexpr int64_t kMaxTaps = 1024;
constexpr int64_t kMaxExperts = 65536;
constexpr int64_t kMaxContext = (int64_t{1} << 31) - 1;

// Which layers are local: the family's period, overridden by a scalar or boolean-array key.
absl::StatusOr<std::vector<bool>> read_local_layers(const KeyReader& keys, const ArchSpec& arch,
                                                    int64_t n_layer) {
  constexpr std::string_view kKey = "attention.sliding_window_pattern";
  std::vector<bool> local(static_cast<size_t>(n_layer), arch.window == WindowRule::kAll);
  if (arch.window == WindowRule::kAll) return local;
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

absl::StatusOr<bool> read_rotates(const KeyReader& keys, const ArchSpec& arch) {
  constexpr std::string_view kKey = "rope.scaling.finetuned";
  if (!arch.rope_finetuned_key) return true;
  ENGINE_ASSIGN_OR_RETURN(const int64_t flag, keys.integer(kKey, 0, 1, 1));
  return flag != 0;
}

absl::Status read_experts(const KeyReader& keys, const ArchSpec& arch, ModelConfig* config) {
  ENGINE_ASSIGN_OR_RETURN(config->n_experts, keys.integer("expert_count", 0, kMaxExperts, 0));
  if (config->n_experts == 0) return absl::OkStatus();
  if (arch.moe == MoeWeights::kNone) {
    return keys.fail("expert_count",
                     absl::StrCat(arch.name, " with a mixture of experts is not supported"));
  }
  config->moe = arch.moe;
  ENGINE_ASSIGN_OR_RETURN(config->n_experts_used,
                          keys.integer("expert_used_count", 1, config->n_experts));
  // The tensor's own width where the key is absent: families disagree on what the default is.
  const GgufTensor* up = keys.file().find_tensor("blk.0.ffn_up_exps.weight");
  const auto stored = up != nullptr && up->dims[1] < uint64_t{kMaxWidth}
                          ? static_cast<int64_t>(up->dims[1])
                          : int64_t{1};
  ENGINE_ASSIGN_OR_RETURN(config->n_ff_expert,
                          keys.integer("expert_feed_forward_length", 1, kMaxWidth, stored));
  return absl::OkStatus();
}

// Factors on the embedding, the scores, the branches and the logits, and soft-caps.
absl::Status read_scales(const KeyReader& keys, const ArchSpec& arch, ModelConfig* config) {
  const int64_t even_split = config->n_embd / config->n_head;
  const int64_t scale_width =
      arch.wide_scale_blocks == config->n_layer ? even_split : config->head_dim_k;
  config->score_scale =
      arch.unit_score_scale ? 1.0f : 1.0f / std::sqrt(static_cast<float>(scale_width));
  if (arch.embed_scale == EmbedScale::kSqrtEmbd) {
    config->embed_scale = std::sqrt(static_cast<float>(config->n_embd));
  } else if (arch.embed_scale == EmbedScale::kKey) {
    ENGINE_ASSIGN_OR_RETURN(const double scale, keys.positive("embedding_scale", 1.0));
    config->embed_scale = static_cast<float>(scale);
  }
  if (arch.scale_keys) {
    ENGINE_ASSIGN_OR_RETURN(const double score, keys.not_negative("attention.scale", 0));
    if (score > 0) config->score_scale = static_cast<float>(score);
    ENGINE_ASSIGN_OR_RETURN(const double residual, keys.positive("residual_scale", 1.0));
    config->residual_scale = static_cast<float>(residual);
    // Logits are divided by the key.
    ENGINE_ASSIGN_OR_RETURN(const double logit, keys.positive("logit_scale", 0));
    if (logit == 0) return keys.fail("logit_scale", "required key is missing");
    config->logit_scale = static_cast<float>(1.0 / logit);
  }
  if (arch.attn_softcap) {
    ENGINE_ASSIGN_OR_RETURN(const double cap,
                            keys.not_negative("attn_logit_softcapping", arch.attn_softcap_default));
    config->attn_softcap = static_cast<float>(cap);
  }
  if (arch.final_softcap) {
    ENGINE_ASSIGN_OR_RETURN(
        const double cap, keys.not_negative("final_logit_softcapping", arch.final_softcap_default));
    config->final_softcap = static_cast<float>(cap);
  }
  return absl::OkStatus();
}

struct HeadSizes {
  int64_t k = 0, v = 0, n_rot = 0;
};

absl::StatusOr<HeadSizes> read_heads(const KeyReader& keys, std::string_view suffix,
                                     const HeadSizes& defaults) {
  HeadSizes heads;
  const std::string rot_key = absl::StrCat("rope.dimension_count", suffix);
  ENGINE_ASSIGN_OR_RETURN(heads.k, keys.integer(absl::StrCat("attention.key_length", suffix), 1,
                                                kMaxHeadDim, defaults.k));
  ENGINE_ASSIGN_OR_RETURN(heads.v, keys.integer(absl::StrCat("attention.value_length", suffix), 1,
                                                kMaxHeadDim, defaults.v));
  if (heads.k < 1 || heads.v < 1) {
    return keys.fail("attention.head_count", "more heads than embedding_length");
  }
  ENGINE_ASSIGN_OR_RETURN(heads.n_rot, keys.integer(rot_key, 2, kMaxHeadDim, heads.k));
  if (heads.n_rot % 2 != 0 || heads.n_rot > heads.k) {
    return keys.fail(rot_key,
                     absl::StrCat(heads.n_rot, " is odd or above the head size ", heads.k));
  }
  return heads;
}

// The last layers read what the last one of their kind before them stored.
absl::Status read_shared_kv(const KeyReader& keys, const ArchSpec& arch, ModelConfig* config) {
  for (size_t l = 0; l < config->layers.size(); ++l) {
    config->layers[l].kv_source = static_cast<int32_t>(l);
  }
  if (!arch.shared_kv) return absl::OkStatus();
  constexpr std::string_view kKey = "attention.shared_kv_layers";
  ENGINE_ASSIGN_OR_RETURN(const int64_t n_shared, keys.integer(kKey, 0, config->n_layer - 1, 0));
  const auto n_own = static_cast<size_t>(config->n_layer - n_shared);
  for (size_t l = n_own; l < config->layers.size(); ++l) {
    LayerConfig& layer = config->layers[l];
    size_t source = n_own;
    while (source > 0 && (config->layers[source - 1].window > 0) != (layer.window > 0)) --source;
    if (source == 0) {
      return keys.fail(kKey, absl::StrCat("no layer of its own kind is left for layer ", l));
    }
    layer.kv_source = static_cast<int32_t>(source) - 1;
    layer.n_kv_heads = config->layers[source - 1].n_kv_heads;
  }
  return absl::OkStatus();
}

absl::Status read_layers(const KeyReader& keys, const ArchSpec& arch, ModelConfig* config) {
  const int64_t n_layer = config->n_layer;
  ENGINE_ASSIGN_OR_RETURN(const std::vector<int64_t> ff,
                          keys.per_layer("feed_forward_length", n_layer, 1, kMaxWidth));
  ENGINE_ASSIGN_OR_RETURN(const std::vector<int64_t> kv,
                          keys.per_layer("attention.head_count_kv", n_layer,
                                         arch.short_convs ? 0 : 1, kMaxHeads, config->n_head));
  if (arch.short_convs) {
    ENGINE_ASSIGN_OR_RETURN(config->n_conv_taps, keys.integer("shortconv.l_cache", 1, kMaxTaps));
  }
  int64_t window = 0;
  std::vector<bool> local(static_cast<size_t>(n_layer), false);
  if (arch.window != WindowRule::kNone) {
    ENGINE_ASSIGN_OR_RETURN(
        window, keys.integer("attention.sliding_window", 0, kMaxContext, arch.window_default));
    ENGINE_ASSIGN_OR_RETURN(local, read_local_layers(keys, arch, n_layer));
  }
  ENGINE_ASSIGN_OR_RETURN(const bool rotates, read_rotates(keys, arch));
  const HeadSizes global{config->head_dim_k, config->head_dim_v, config->n_rot};
  HeadSizes sliding = global;
  if (arch.local_heads) {
    ENGINE_ASSIGN_OR_RETURN(sliding, read_heads(keys, "_swa", global));
  }
  config->ropes[0].n_rot = global.n_rot;
  if (config->ropes.size() > 1) config->ropes[1].n_rot = sliding.n_rot;
  for (size_t l = 0; l < static_cast<size_t>(n_layer); ++l) {
    if (kv[l] > 0 && config->n_head % kv[l] != 0) {
      return keys.fail("attention.head_count_kv",
                       absl::StrCat(kv[l], " does not divide head_count ", config->n_head));
    }
    const bool is_local = local[l] && window > 0;
    LayerConfig layer;
    layer.n_kv_heads = kv[l];
    layer.n_ff = ff[l];
    layer.head_dim_k = is_local ? sliding.k : global.k;
    layer.head_dim_v = is_local ? sliding.v : global.v;
    layer.window = is_local ? window : 0;
    layer.rope = is_local && config->ropes.size() > 1 ? 1 : 0;
    const bool is_nope =
        arch.nope_period > 0 && (static_cast<int64_t>(l) + 1) % arch.nope_period == 0;
    if (is_nope || !rotates) layer.rope = -1;
    config->layers.push_back(layer);
  }
  return read_shared_kv(keys, arch, config);
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
  config.qk_norm = arch.qk_norm != QkNorm::kNone;
  config.post_norms = arch.post_norms;

  ENGINE_ASSIGN_OR_RETURN(config.n_layer, keys.integer("block_count", 1, kMaxLayers));
  ENGINE_ASSIGN_OR_RETURN(config.n_embd, keys.integer("embedding_length", 1, kMaxWidth));
  ENGINE_ASSIGN_OR_RETURN(config.n_ctx_train, keys.integer("context_length", 1, kMaxContext));
  ENGINE_ASSIGN_OR_RETURN(config.n_head, keys.integer("attention.head_count", 1, kMaxHeads));
  ENGINE_RETURN_IF_ERROR(read_experts(keys, arch, &config));

  const int64_t even_split = config.n_embd / config.n_head;
  ENGINE_ASSIGN_OR_RETURN(const HeadSizes heads,
                          read_heads(keys, "", {.k = even_split, .v = even_split}));
  config.head_dim_k = heads.k;
  config.head_dim_v = heads.v;
  config.n_rot = heads.n_rot;
  if (arch.layer_embeds) {
    ENGINE_ASSIGN_OR_RETURN(config.n_layer_embd,
                            keys.integer("embedding_length_per_layer_input", 0, kMaxWidth, 0));
  }

  constexpr std::string_view kEps = "attention.layer_norm_rms_epsilon";
  ENGINE_ASSIGN_OR_RETURN(const std::optional<double> eps, keys.real(kEps));
  if (!eps) return keys.fail(kEps, "required key is missing");
  config.norm_eps = static_cast<float>(*eps);
  if (!(config.norm_eps > 0)) return keys.fail(kEps, "value is not positive");

  ENGINE_RETURN_IF_ERROR(read_scales(keys, arch, &config));
  ENGINE_RETURN_IF_ERROR(read_ropes(keys, arch, &config));
  ENGINE_RETURN_IF_ERROR(read_layers(keys, arch, &config));
  return config;
}

}  // namespace engine
