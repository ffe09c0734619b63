// A small random model of a family as GGUF bytes, every part of which a test can change or leave out.
#ifndef ENGINE_TESTS_UNIT_TOY_MODEL_H_
#define ENGINE_TESTS_UNIT_TOY_MODEL_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "lib/base/half.h"
#include "lib/base/hash.h"
#include "lib/quant/format.h"
#include "tests/unit/gguf_builder.h"
#include "tests/unit/random_blocks.h"

namespace engine {

// Weights of a block format near `w`: plain rounding, no search for the best scale. Rows are whole blocks.
inline std::vector<uint8_t> toy_encode(Format format, const std::vector<float>& w) {
  ByteWriter out;
  if (format == Format::kF32) return out.raw(w.data(), w.size() * 4).bytes;
  const size_t block = format_info(format)->block_elements;
  for (size_t i = 0; i < w.size(); i += block) {
    float amax = 0;
    for (size_t j = 0; j < block; ++j) amax = std::max(amax, std::fabs(w[i + j]));
    const float levels = format == Format::kQ8_0 ? 127.0f : 7.0f;
    const auto level = [&](size_t j) {
      return static_cast<int>(std::lround(w[i + j] / amax * levels));
    };
    if (format == Format::kQ8_0) {
      out.put(f32_to_f16(amax / levels));
      for (size_t j = 0; j < block; ++j) out.put(static_cast<int8_t>(level(j)));
    } else if (format == Format::kQ4_0) {
      out.put(f32_to_f16(amax / levels));
      for (size_t j = 0; j < 16; ++j) {
        out.put(static_cast<uint8_t>((level(j) + 8) | (level(j + 16) + 8) << 4));
      }
    } else {  // Q4_K with scale 1 and minimum 8 in all eight parts
      out.put(f32_to_f16(amax / levels)).put(f32_to_f16(amax / levels));
      for (const uint8_t scales : {1, 1, 1, 1, 8, 8, 8, 8, 0x81, 0x81, 0x81, 0x81}) out.put(scales);
      for (size_t part = 0; part < 256; part += 64) {
        for (size_t j = part; j < part + 32; ++j) {
          out.put(static_cast<uint8_t>((level(j) + 8) | (level(j + 32) + 8) << 4));
        }
      }
    }
  }
  return std::move(out.bytes);
}

struct ToyModel {
  std::string arch = "llama";
  int64_t n_layer = 2, n_embd = 64, n_head = 4, n_head_kv = 2, n_ff = 96, n_ctx = 512;
  int64_t head_dim = 16;
  int64_t n_vocab = 320;   // rows of the embedding
  int64_t n_tokens = 320;  // of the vocabulary; 0 = none
  bool tied = true;
  bool biases = false;
  int64_t window = 0;
  bool fused = false;  // phi3: one tensor for q, k, v, and one for gate and up
  int64_t n_experts = 0, n_experts_used = 2, n_ff_expert = 64;
  uint64_t seed = 1;
  uint32_t vector_type = 0;       // ggml type of the norms: 0 F32, 1 F16, 30 BF16
  bool norm_as_column = false;    // norms stored as [n, 1]
  std::set<std::string> skip;     // keys and tensors to leave out
  std::vector<float> rope_freqs;  // tensor, when not empty
  // Changes the builder after everything is in it: more keys, more tensors.
  void (*extra)(GgufBuilder&) = nullptr;
  // Overrides a scalar key "llama.x": value, as i64 unless listed in no one else's type.
  std::vector<std::pair<std::string, int64_t>> set_i64;
  std::vector<std::pair<std::string, float>> set_f32;
  // Of the matrices, and of those whose name contains a key: F32, Q8_0, Q4_0 or Q4_K, any with random_blocks.
  Format matrix_format = Format::kF32;
  std::map<std::string, Format> matrix_formats;
  bool random_blocks = false;  // every bit of a matrix's blocks is random but for its scale

  std::vector<uint8_t> build() const {
    GgufBuilder b;
    b.string("general.architecture", arch);
    put_u32(b, "context_length", n_ctx);
    put_u32(b, "embedding_length", n_embd);
    put_u32(b, "block_count", n_layer);
    put_u32(b, "feed_forward_length", n_ff);
    put_u32(b, "attention.head_count", n_head);
    if (arch == "lfm2") {
      std::vector<int32_t> heads;
      for (int64_t l = 0; l < n_layer; ++l) {
        heads.push_back(is_conv(l) ? 0 : static_cast<int32_t>(n_head_kv));
      }
      b.array(full("attention.head_count_kv"), heads);
      put_u32(b, "shortconv.l_cache", 3);
    } else {
      put_u32(b, "attention.head_count_kv", n_head_kv);
    }
    put_u32(b, "attention.key_length", head_dim);
    put_u32(b, "attention.value_length", head_dim);
    if (window > 0) put_u32(b, "attention.sliding_window", window);
    put_f32(b, "attention.layer_norm_rms_epsilon", 1e-5f);
    if (n_experts > 0) {
      put_u32(b, "expert_count", n_experts);
      put_u32(b, "expert_used_count", n_experts_used);
      put_u32(b, "expert_feed_forward_length", n_ff_expert);
    }
    if (arch == "gemma4") {
      put_u32(b, "attention.shared_kv_layers", n_layer > 1 ? 1 : 0);
      put_u32(b, "embedding_length_per_layer_input", kOwnWidth);
    }
    if (arch == "granite") put_f32(b, "logit_scale", 8.0f);
    for (const auto& [key, value] : set_i64) {
      if (is_new_key(key)) b.scalar<int64_t>(arch + "." + key, value);
    }
    for (const auto& [key, value] : set_f32) {
      if (is_new_key(key)) b.scalar<float>(arch + "." + key, value);
    }
    if (n_tokens > 0) put_vocabulary(b);
    put_tensors(b);
    if (extra != nullptr) extra(b);
    return b.build();
  }

 private:
  std::string full(const std::string& key) const { return arch + "." + key; }
  static constexpr int64_t kOwnWidth = 32;  // gemma4: of a layer's own embedding
  // gemma4: the last layer reads the keys and values of the one before.
  bool reads_others(int64_t l) const { return arch == "gemma4" && n_layer > 1 && l == n_layer - 1; }
  bool is_conv(int64_t l) const { return arch == "lfm2" && l % 2 == 1; }
  // Not std::hash, which may differ between C++ libraries.
  uint64_t key_of_name(const std::string& name) const {
    return hash64(name.data(), name.size()) ^ seed;
  }
  // Keys that build() writes itself; an override of one of them replaces its value there.
  static bool is_new_key(const std::string& key) {
    static const std::set<std::string> kOwn = {"context_length",
                                               "embedding_length",
                                               "block_count",
                                               "feed_forward_length",
                                               "attention.head_count",
                                               "attention.head_count_kv",
                                               "attention.key_length",
                                               "attention.value_length",
                                               "attention.sliding_window",
                                               "shortconv.l_cache",
                                               "expert_count",
                                               "expert_used_count",
                                               "expert_feed_forward_length",
                                               "logit_scale",
                                               "attention.layer_norm_rms_epsilon"};
    return !kOwn.contains(key);
  }
  void put_u32(GgufBuilder& b, const std::string& key, int64_t value) const {
    if (skip.contains(key)) return;
    for (const auto& [k, v] : set_i64) {
      if (k == key) {
        b.scalar<int64_t>(full(key), v);
        return;
      }
    }
    for (const auto& [k, v] : set_f32) {
      if (k == key) {
        b.scalar<float>(full(key), v);
        return;
      }
    }
    b.scalar<uint32_t>(full(key), static_cast<uint32_t>(value));
  }
  void put_f32(GgufBuilder& b, const std::string& key, float value) const {
    if (skip.contains(key)) return;
    for (const auto& [k, v] : set_f32) {
      if (k == key) value = v;
    }
    b.scalar<float>(full(key), value);
  }
  void put_vocabulary(GgufBuilder& b) const {
    std::vector<std::string> tokens = {"<unk>", "<s>", "</s>"};
    std::vector<float> scores(static_cast<size_t>(n_tokens), 0.0f);
    std::vector<int32_t> types = {2, 3, 3};
    static const char kHex[] = "0123456789ABCDEF";
    for (int i = 0; i < 256 && static_cast<int64_t>(tokens.size()) < n_tokens; ++i) {
      tokens.push_back(std::string("<0x") + kHex[i / 16] + kHex[i % 16] + ">");
      types.push_back(6);
    }
    while (static_cast<int64_t>(tokens.size()) < n_tokens) {
      tokens.push_back("piece" + std::to_string(tokens.size()));
      types.push_back(1);
    }
    b.string("tokenizer.ggml.model", "llama");
    b.strings("tokenizer.ggml.tokens", tokens);
    b.array("tokenizer.ggml.scores", scores);
    b.array("tokenizer.ggml.token_type", types);
  }
  void put_matrix(GgufBuilder& b, const std::string& name, int64_t cols, int64_t rows,
                  int64_t n = 1) const {
    if (skip.contains(name)) return;
    const int64_t count = cols * rows * n;
    const uint64_t key = key_of_name(name);
    const float scale = 1.7f / std::sqrt(static_cast<float>(cols));
    const auto near_noise = [&](Format format) {
      std::vector<float> w(static_cast<size_t>(count));
      for (size_t i = 0; i < w.size(); ++i) w[i] = toy_noise(key, i) * scale;
      return toy_encode(format, w);
    };
    Format format = name.ends_with("ffn_gate_inp.weight") ? Format::kF32 : matrix_format;
    for (const auto& [part, other] : matrix_formats) {
      if (name.find(part) != std::string::npos) format = other;
    }
    std::vector<uint64_t> dims = {static_cast<uint64_t>(cols), static_cast<uint64_t>(rows)};
    if (n > 1) dims.push_back(static_cast<uint64_t>(n));
    b.tensor({name,
              dims,
              static_cast<uint32_t>(format),
              random_blocks ? random_weights(format, count, key, scale) : near_noise(format),
              {},
              {},
              {}});
  }
  void put_vector(GgufBuilder& b, const std::string& name, int64_t n, float around,
                  uint32_t type = 0) const {
    if (skip.contains(name)) return;
    ByteWriter data;
    const uint64_t key = key_of_name(name);
    for (int64_t i = 0; i < n; ++i) {
      const float value = around + 0.2f * toy_noise(key, static_cast<uint64_t>(i));
      if (type == 0) data.put(value);
      if (type == 1) data.put(f32_to_f16(value));
      if (type == 30) data.put(f32_to_bf16(value));
    }
    std::vector<uint64_t> dims = {static_cast<uint64_t>(n)};
    if (norm_as_column && around == 1.0f) dims.push_back(1);
    b.tensor({name, dims, type, data.bytes, {}, {}, {}});
  }
  // Biases of every expert: [n, X].
  void put_expert_bias(GgufBuilder& b, const std::string& name, int64_t n) const {
    std::vector<float> values(static_cast<size_t>(n * n_experts));
    const uint64_t key = key_of_name(name);
    for (size_t i = 0; i < values.size(); ++i) values[i] = 0.5f * toy_noise(key, i);
    b.f32(name, {static_cast<uint64_t>(n), static_cast<uint64_t>(n_experts)}, values);
  }
  void put_experts(GgufBuilder& b, const std::string& p, bool with_biases) const {
    put_matrix(b, p + "ffn_gate_inp.weight", n_embd, n_experts);
    put_matrix(b, p + "ffn_gate_exps.weight", n_embd, n_ff_expert, n_experts);
    put_matrix(b, p + "ffn_up_exps.weight", n_embd, n_ff_expert, n_experts);
    put_matrix(b, p + "ffn_down_exps.weight", n_ff_expert, n_embd, n_experts);
    if (!with_biases) return;
    put_vector(b, p + "ffn_gate_inp.bias", n_experts, 0.0f);
    put_expert_bias(b, p + "ffn_gate_exps.bias", n_ff_expert);
    put_expert_bias(b, p + "ffn_up_exps.bias", n_ff_expert);
    put_expert_bias(b, p + "ffn_down_exps.bias", n_embd);
  }
  void put_attention(GgufBuilder& b, const std::string& p, bool only_q) const {
    const int64_t q = n_head * head_dim, kv = n_head_kv * head_dim;
    if (fused) {
      put_matrix(b, p + "attn_qkv.weight", n_embd, q + 2 * kv);
    } else {
      put_matrix(b, p + "attn_q.weight", n_embd, q);
      if (!only_q) put_matrix(b, p + "attn_k.weight", n_embd, kv);
      if (!only_q) put_matrix(b, p + "attn_v.weight", n_embd, kv);
    }
    if (biases) {
      put_vector(b, p + "attn_q.bias", q, 0.0f);
      put_vector(b, p + "attn_k.bias", kv, 0.0f);
      put_vector(b, p + "attn_v.bias", kv, 0.0f);
    }
    put_matrix(b, p + "attn_output.weight", q, n_embd);
  }
  void put_tensors(GgufBuilder& b) const {
    const bool gemma4 = arch == "gemma4";
    const bool post_norms = arch == "gemma2" || arch == "gemma3" || gemma4,
               gpt_oss = arch == "gpt-oss";
    const bool norms_heads =
        arch == "gemma3" || arch == "qwen3" || arch == "qwen3moe" || arch == "lfm2" || gemma4;
    put_matrix(b, "token_embd.weight", n_embd, n_vocab);
    put_vector(b, arch == "lfm2" ? "token_embd_norm.weight" : "output_norm.weight", n_embd, 1.0f,
               vector_type);
    if (!tied) put_matrix(b, "output.weight", n_embd, n_vocab);
    if (gemma4) {
      put_matrix(b, "per_layer_token_embd.weight", n_layer * kOwnWidth, n_vocab);
      put_matrix(b, "per_layer_model_proj.weight", n_embd, n_layer * kOwnWidth);
      put_vector(b, "per_layer_proj_norm.weight", kOwnWidth, 1.0f, vector_type);
    }
    if (!rope_freqs.empty()) b.f32("rope_freqs.weight", {rope_freqs.size()}, rope_freqs);
    for (int64_t l = 0; l < n_layer; ++l) {
      const std::string p = "blk." + std::to_string(l) + ".";
      put_vector(b, p + "attn_norm.weight", n_embd, 1.0f, vector_type);
      if (is_conv(l)) {
        put_matrix(b, p + "shortconv.in_proj.weight", n_embd, 3 * n_embd);
        put_matrix(b, p + "shortconv.out_proj.weight", n_embd, n_embd);
        std::vector<float> taps(static_cast<size_t>(3 * n_embd));
        for (size_t i = 0; i < taps.size(); ++i) taps[i] = toy_noise(seed + 7, i);
        b.f32(p + "shortconv.conv.weight", {3, static_cast<uint64_t>(n_embd)}, taps);
      } else {
        put_attention(b, p, reads_others(l));
      }
      put_vector(b, p + (gpt_oss ? "post_attention_norm.weight" : "ffn_norm.weight"), n_embd, 1.0f,
                 vector_type);
      if (n_experts > 0) {
        put_experts(b, p, gpt_oss);
      } else if (fused) {
        put_matrix(b, p + "ffn_up.weight", n_embd, 2 * n_ff);
        put_matrix(b, p + "ffn_down.weight", n_ff, n_embd);
      } else {
        put_matrix(b, p + "ffn_gate.weight", n_embd, n_ff);
        put_matrix(b, p + "ffn_up.weight", n_embd, n_ff);
        put_matrix(b, p + "ffn_down.weight", n_ff, n_embd);
      }
      if (gpt_oss) put_vector(b, p + "attn_sinks.weight", n_head, 0.0f);
      if (arch == "olmoe") {
        put_vector(b, p + "attn_q_norm.weight", n_head * head_dim, 1.0f, vector_type);
        put_vector(b, p + "attn_k_norm.weight", n_head_kv * head_dim, 1.0f, vector_type);
      }
      if (norms_heads && !is_conv(l)) {
        put_vector(b, p + "attn_q_norm.weight", head_dim, 1.0f, vector_type);
        if (!reads_others(l)) put_vector(b, p + "attn_k_norm.weight", head_dim, 1.0f, vector_type);
      }
      if (gemma4) {
        put_vector(b, p + "layer_output_scale.weight", 1, 1.0f, vector_type);
        put_matrix(b, p + "inp_gate.weight", n_embd, kOwnWidth);
        put_matrix(b, p + "proj.weight", kOwnWidth, n_embd);
        put_vector(b, p + "post_norm.weight", n_embd, 1.0f, vector_type);
      }
      if (post_norms) {
        put_vector(b, p + "post_attention_norm.weight", n_embd, 1.0f, vector_type);
        put_vector(b, p + "post_ffw_norm.weight", n_embd, 1.0f, vector_type);
      }
    }
  }
};

}  // namespace engine

#endif  // ENGINE_TESTS_UNIT_TOY_MODEL_H_
