// The op sequence as data. Families differ by which weights are present and by numbers, not by code paths.
#include "lib/plan/lower.h"

#include <cmath>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/contract/derive.h"
#include "lib/plan/lower_rules.h"
#include "lib/plan/rope_rule.h"

namespace engine {
namespace {

constexpr int64_t kRowAlignBytes = 64;

int64_t slot_row_bytes(ActType type, int64_t width) {
  return (act_bytes(type, width) + kRowAlignBytes - 1) / kRowAlignBytes * kRowAlignBytes;
}

class Lowering {
 public:
  explicit Lowering(const Model& model) : model_(model), config_(model.config) {}

  absl::StatusOr<Program> run() {
    program_.n_vocab = config_.n_vocab;
    program_.n_embd = config_.n_embd;
    program_.n_ctx_train = config_.n_ctx_train;
    const int32_t resid = slot("resid", config_.n_embd);
    program_.residual_slot = resid;
    lower_preamble(resid);
    for (size_t l = 0; l < config_.layers.size(); ++l) {
      steps_ = &program_.layers.emplace_back();
      sites_ = &program_.layer_sites.emplace_back();
      layer_ = static_cast<int32_t>(l);
      if (config_.layers[l].n_kv_heads == 0) {
        lower_conv(resid, l);
      } else {
        lower_attention(resid, l);
      }
      lower_ffn(resid, l);
      Step check{.op = Op::kCheckFinite};
      check.in0 = resid;
      check.width = config_.n_embd;
      emit(check);
    }
    lower_final(resid);
    if (!status_.ok()) return status_;
    program_.bytes_per_token += static_cast<uint64_t>(model_.weights.embed.row_bytes);
    return std::move(program_);
  }

 private:
  // The slot of that name, made on first use; a name has one width in all layers, or the widest.
  int32_t slot(const std::string& name, int64_t width, ActType type = ActType::kF32) {
    auto [it, is_new] = slot_ids_.try_emplace(name, static_cast<int32_t>(program_.slots.size()));
    if (is_new) program_.slots.push_back({name, type, 0, 0});
    Slot& s = program_.slots[static_cast<size_t>(it->second)];
    if (width > s.width) {
      s.width = width;
      s.row_bytes = slot_row_bytes(type, width);
    }
    return it->second;
  }

  int32_t weight(const WeightView& view) {
    auto [it, is_new] =
        weight_ids_.try_emplace(view.data, static_cast<int32_t>(program_.weights.size()));
    if (is_new) {
      program_.weights.push_back({view.name, view.format, Layout::kStored, view.rows, view.cols,
                                  view.row_bytes, view.data, view.n_experts});
    }
    return it->second;
  }

  // Says that the site fires on the last step's output; post-norms and biases come before.
  void fires(Site site, int64_t width, int64_t n_heads = 0) {
    Step& step = steps_->back();
    step.fires_after.push_back(site);
    (*sites_)[static_cast<size_t>(site)] = {step.out, width, n_heads};
  }

  void emit(Step step) {
    step.layer = layer_;
    // What was quantised from a slot is stale once the slot is written again.
    for (auto it = quantised_.begin(); it != quantised_.end();) {
      it = it->first.first == step.out ? quantised_.erase(it) : std::next(it);
    }
    steps_->push_back(step);
  }

  int32_t norm(int32_t in, const WeightView& w, const std::string& name, int64_t width,
               int64_t heads = 1) {
    Step step{.op = Op::kRmsNorm};
    step.in0 = in;
    step.out = slot(name, width);
    step.weight = weight(w);
    step.eps = config_.norm_eps;
    step.heads = heads;
    step.width = width;
    emit(step);
    return step.out;
  }

  // The slot with `in` in the activation type that the weight's dots use; n_parts rows of the weight's width
  // side by side.
  int32_t operand(int32_t in, const WeightView& w, int64_t n_parts = 1) {
    const ActType type = format_info(w.format)->act;
    if (type == ActType::kF32) return in;
    const auto key = std::make_pair(in, type);
    if (const auto it = quantised_.find(key); it != quantised_.end()) return it->second;
    const int64_t block = type == ActType::kQ8x32 ? 32 : 256;
    if (w.cols % block != 0 && status_.ok()) {
      status_ = error_at(Code::kPlan, w.name, kNoOffset,
                         absl::StrCat("row length ", w.cols, " is no multiple of ", block));
    }
    Step step{.op = Op::kQuantize};
    step.in0 = in;
    step.out = slot(absl::StrCat(program_.slots[static_cast<size_t>(in)].name,
                                 type == ActType::kQ8x32 ? ".q8x32" : ".q8x256"),
                    n_parts * w.cols, type);
    step.width = n_parts * w.cols;
    emit(step);
    quantised_[key] = step.out;
    return step.out;
  }

  int32_t linear(int32_t in, const WeightView& w, const WeightView& bias, const std::string& name) {
    Step step{.op = Op::kMatmul};
    step.in0 = operand(in, w);
    step.out = slot(name, w.rows);
    step.weight = weight(w);
    emit(step);
    program_.bytes_per_token += static_cast<uint64_t>(w.rows) * static_cast<uint64_t>(w.row_bytes);
    if (bias.present()) {
      Step add{.op = Op::kAdd};
      add.in0 = step.out;
      add.out = step.out;
      add.weight = weight(bias);
      add.width = w.rows;
      emit(add);
    }
    return step.out;
  }

  // One of the chosen experts' matrices, and its biases; own_rows: `in` has a part for each of them.
  int32_t expert_linear(int32_t in, int32_t route, const WeightView& w, const WeightView& bias,
                        const std::string& name, bool own_rows) {
    const int64_t k = config_.n_experts_used;
    Step step{.op = Op::kMoeMatmul};
    step.in0 = operand(in, w, own_rows ? k : 1);
    step.in1 = route;
    step.out = slot(name, k * w.rows);
    step.weight = weight(w);
    step.n_used = k;
    step.own_rows = own_rows;
    emit(step);
    program_.bytes_per_token += static_cast<uint64_t>(k) * static_cast<uint64_t>(w.rows) *
                                static_cast<uint64_t>(w.row_bytes);
    if (bias.present()) {
      Step add{.op = Op::kMoeBias};
      add.in0 = step.out;
      add.in1 = route;
      add.out = step.out;
      add.weight = weight(bias);
      add.n_used = k;
      add.width = k * w.rows;
      emit(add);
    }
    return step.out;
  }

  void add(int32_t a, int32_t b, int32_t out) {  // a branch to the residual stream, width E
    Step step{.op = Op::kAdd};
    step.in0 = a;
    step.in1 = b;
    step.out = out;
    step.width = config_.n_embd;
    step.scale = config_.residual_scale;
    emit(step);
  }

  void scale(int32_t in, float factor, int64_t width) {
    Step step{.op = Op::kSoftcap};
    step.in0 = step.out = in;
    step.scale = factor;
    step.width = width;
    emit(step);
  }

  int32_t rope(int32_t in, Site site, int64_t heads, int64_t head_dim, int32_t rule) {
    if (rule < 0) return in;
    Step step{.op = Op::kRope};
    step.in0 = in;
    step.in1 = rope_slots_[static_cast<size_t>(rule)];
    step.out = slot(site_info(site).name, heads * head_dim);
    step.heads = heads;
    step.width = heads * head_dim;
    step.n_rot = config_.ropes[static_cast<size_t>(rule)].n_rot;
    step.pairing =
        config_.pairing == Pairing::kAdjacent ? RopePairing::kAdjacent : RopePairing::kHalves;
    emit(step);
    fires(site, heads * head_dim, heads);
    return step.out;
  }

  void lower_preamble(int32_t resid) {
    steps_ = &program_.preamble;
    sites_ = &program_.global_sites;
    Step embed{.op = Op::kEmbed};
    embed.out = resid;
    embed.weight = weight(model_.weights.embed);
    embed.scale = config_.embed_scale;
    embed.width = config_.n_embd;
    emit(embed);
    fires(Site::kEmbed, config_.n_embd);
    for (size_t r = 0; r < config_.ropes.size(); ++r) {
      program_.ropes.push_back(rope_rule(config_.ropes[r], model_.weights));
      Step step{.op = Op::kRopeAngles};
      step.rope = static_cast<int32_t>(r);
      step.out = slot(absl::StrCat("rope_angles_", r), config_.ropes[r].n_rot);
      emit(step);
      rope_slots_.push_back(step.out);
    }
    if (config_.n_layer_embd == 0) return;
    // Every layer projects the embedding for its own; quantised here, once for all.
    first_embed_ = slot("first_embed", config_.n_embd);
    Step copy{.op = Op::kAdd};  // fma(x, 0, x) is x
    copy.in0 = copy.in1 = resid;
    copy.out = first_embed_;
    copy.width = config_.n_embd;
    copy.scale = 0.0f;
    emit(copy);
    operand(first_embed_, model_.weights.layers[0].own_projection);
  }

  void lower_attention(int32_t resid, size_t l) {
    const LayerWeights& w = model_.weights.layers[l];
    const LayerConfig& layer = config_.layers[l];
    const int64_t H = config_.n_head, G = layer.n_kv_heads;
    const int64_t Dk = layer.head_dim_k, Dv = layer.head_dim_v;
    const bool stores = layer.kv_source == static_cast<int32_t>(l);
    const int32_t n1 = first_norm(resid, w);
    int32_t q = linear(n1, w.q, w.q_bias, "q");
    fires(Site::kQ, H * Dk, H);
    int32_t k = -1, v = -1;
    if (stores) {
      k = v = linear(n1, w.k, w.k_bias, "k");
      fires(Site::kK, G * Dk, G);
      if (w.v.present()) {
        v = linear(n1, w.v, w.v_bias, "v");
        fires(Site::kV, G * Dv, G);
      }
      if (w.v_ones.present()) v = norm(v, w.v_ones, "v_norm", G * Dv, G);
    }
    if (w.q_norm.present()) {
      q = norm(q, w.q_norm, "q_norm", H * Dk, H * Dk / w.q_norm.cols);
      fires(Site::kQNorm, H * Dk, H);
    }
    if (w.k_norm.present()) {
      k = norm(k, w.k_norm, "k_norm", G * Dk, G * Dk / w.k_norm.cols);
      fires(Site::kKNorm, G * Dk, G);
    }
    q = rope(q, Site::kQRope, H, Dk, layer.rope);
    program_.kv.push_back(stores ? KvGeometry{G, Dk, Dv} : KvGeometry{});
    program_.kv_source.push_back(layer.kv_source);
    if (stores) {
      Step store{.op = Op::kKvStore};
      store.in0 = rope(k, Site::kKRope, G, Dk, layer.rope);
      store.in1 = v;
      emit(store);
    }

    Step attention{.op = Op::kAttention};
    attention.in0 = q;
    attention.out = slot("attn_z", H * Dv);
    attention.heads = H;
    attention.scale = config_.score_scale;
    attention.cap = config_.attn_softcap;
    attention.window = layer.window;
    if (w.sinks.present()) attention.weight = weight(w.sinks);
    attention.fires_before = {Site::kAttnScores, Site::kAttnPattern};
    (*sites_)[static_cast<size_t>(Site::kAttnScores)] = {q, 0, H};
    (*sites_)[static_cast<size_t>(Site::kAttnPattern)] = {q, 0, H};
    emit(attention);
    fires(Site::kAttnZ, H * Dv, H);

    finish_branch(resid, linear(attention.out, w.attn_output, w.attn_output_bias, "attn_out"), w);
  }

  int32_t first_norm(int32_t resid, const LayerWeights& w) {
    const int64_t E = config_.n_embd;
    const int32_t n1 = norm(resid, w.attn_norm, "attn_norm", E);
    steps_->back().fires_before.push_back(Site::kResidPre);
    (*sites_)[static_cast<size_t>(Site::kResidPre)] = {resid, E, 0};
    fires(Site::kAttnNorm, E);
    return n1;
  }

  void finish_branch(int32_t resid, int32_t branch, const LayerWeights& w) {
    const int64_t E = config_.n_embd;
    if (w.post_attn_norm.present()) norm(branch, w.post_attn_norm, "attn_out", E);
    fires(Site::kAttnOut, E);
    add(resid, branch, slot("resid_mid", E));
    fires(Site::kResidMid, E);
  }

  int32_t product(int32_t a, int32_t b, const std::string& name) {
    Step step{.op = Op::kGatedAct};
    step.in0 = a;
    step.in1 = b;
    step.out = slot(name, config_.n_embd);
    step.width = config_.n_embd;
    step.act = Activation::kNone;
    emit(step);
    return step.out;
  }

  // out_proj(c * conv(b * u)); b * u of each position is stored as a V.
  void lower_conv(int32_t resid, size_t l) {
    const LayerWeights& w = model_.weights.layers[l];
    const int64_t E = config_.n_embd;
    const int32_t n1 = first_norm(resid, w);
    const int32_t b = linear(n1, w.conv_b, {}, "conv_b");
    const int32_t c = linear(n1, w.conv_c, {}, "conv_c");
    const int32_t u = linear(n1, w.conv_u, {}, "conv_u");
    program_.kv.push_back({1, 0, E});
    program_.kv_source.push_back(static_cast<int32_t>(l));
    Step store{.op = Op::kKvStore};
    store.in0 = store.in1 = product(b, u, "conv_z");  // of no K
    emit(store);
    Step conv{.op = Op::kShortConv};
    conv.weight = weight(w.conv_taps);
    conv.out = slot("conv_y", E);
    conv.width = E;
    emit(conv);
    finish_branch(resid, linear(product(c, conv.out, "conv_gated"), w.conv_out, {}, "attn_out"), w);
  }

  int32_t gated_act(int32_t gate, int32_t up, int64_t width) {
    Step act{.op = Op::kGatedAct};
    act.in0 = gate;
    act.in1 = up;
    act.out = slot("ffn_act", width);
    act.width = width;
    act.act = activation(config_.activation);
    emit(act);
    fires(Site::kFfnAct, width);
    return act.out;
  }

  int32_t lower_dense(int32_t in, const LayerWeights& w) {
    const int64_t F = w.gate.rows;
    const int32_t gate = linear(in, w.gate, w.gate_bias, "ffn_gate");
    fires(Site::kFfnGate, F);
    const int32_t up = linear(in, w.up, w.up_bias, "ffn_up");
    fires(Site::kFfnUp, F);
    return linear(gated_act(gate, up, F), w.down, w.down_bias, "ffn_out");
  }

  // The sites of gate, up and act are those of the chosen experts side by side, in the order of the choice.
  int32_t lower_experts(int32_t in, const LayerWeights& w) {
    const int64_t k = config_.n_experts_used, kF = k * w.gate.rows;
    Step route{.op = Op::kMoeRoute};
    route.in0 = linear(in, w.router, w.router_bias, "router");
    route.out = slot("route", 2 * k);
    route.width = config_.n_experts;
    route.n_used = k;
    route.moe = moe_rule(config_.moe);
    emit(route);
    const int32_t gate = expert_linear(in, route.out, w.gate, w.gate_bias, "ffn_gate", false);
    fires(Site::kFfnGate, kF);
    const int32_t up = expert_linear(in, route.out, w.up, w.up_bias, "ffn_up", false);
    fires(Site::kFfnUp, kF);
    Step sum{.op = Op::kMoeCombine};
    sum.in0 =
        expert_linear(gated_act(gate, up, kF), route.out, w.down, w.down_bias, "expert_out", true);
    sum.in1 = route.out;
    sum.out = slot("ffn_out", config_.n_embd);
    sum.width = config_.n_embd;
    sum.n_used = k;
    emit(sum);
    return sum.out;
  }

  void lower_ffn(int32_t resid, size_t l) {
    const LayerWeights& w = model_.weights.layers[l];
    const int64_t E = config_.n_embd;
    const int32_t mid = slot("resid_mid", E);
    const int32_t n2 = norm(mid, w.ffn_norm, "ffn_norm", E);
    fires(Site::kFfnNorm, E);
    const int32_t m = config_.n_experts > 0 ? lower_experts(n2, w) : lower_dense(n2, w);
    if (w.post_ffn_norm.present()) norm(m, w.post_ffn_norm, "ffn_out", E);
    fires(Site::kFfnOut, E);
    add(mid, m, resid);
    if (w.own_embed.present()) add_own_embed(resid, w);
    if (w.output_scale.present()) {
      scale(resid, reinterpret_cast<const float*>(w.output_scale.data)[0], E);
    }
    fires(Site::kResidPost, E);
  }

  // x += norm(output * (gelu(gate * x) * p)),
  // p = (norm(projection * embedding / sqrt(E)) + sqrt(P) * own row) / sqrt(2).
  void add_own_embed(int32_t resid, const LayerWeights& w) {
    const int64_t E = config_.n_embd, P = config_.n_layer_embd;
    const int32_t projected = linear(first_embed_, w.own_projection, {}, "own_embed");
    scale(projected, 1.0f / std::sqrt(static_cast<float>(E)), P);
    norm(projected, model_.weights.own_norm, "own_embed", P);
    Step row{.op = Op::kEmbed};
    row.out = slot("own_row", P);
    row.weight = weight(w.own_embed);
    row.scale = std::sqrt(static_cast<float>(P));
    row.width = P;
    emit(row);
    program_.bytes_per_token +=
        static_cast<uint64_t>(P / format_info(w.own_embed.format)->block_elements *
                              format_info(w.own_embed.format)->block_bytes);
    Step sum{.op = Op::kAdd};
    sum.in0 = projected;
    sum.in1 = row.out;
    sum.out = projected;
    sum.width = P;
    emit(sum);
    scale(projected, 1.0f / std::sqrt(2.0f), P);
    Step act{.op = Op::kGatedAct};
    act.in0 = linear(resid, w.own_gate, {}, "own_gate");
    act.in1 = projected;
    act.out = slot("own_act", P);
    act.width = P;
    act.act = activation(config_.activation);
    emit(act);
    const int32_t out = linear(act.out, w.own_output, {}, "own_out");
    norm(out, w.own_post_norm, "own_out", E);
    add(resid, out, resid);
  }

  void lower_final(int32_t resid) {
    steps_ = &program_.final_steps;
    sites_ = &program_.global_sites;
    layer_ = -1;
    const int64_t E = config_.n_embd, V = config_.n_vocab;
    const int32_t n = norm(resid, model_.weights.output_norm, "final_norm", E);
    fires(Site::kFinalNorm, E);
    const int32_t logits = linear(n, model_.weights.head, {}, "logits");
    fires(Site::kLogitsRaw, V);
    program_.logits_slot = logits;
    if (config_.final_softcap > 0 || config_.logit_scale != 1.0f) {
      Step cap{.op = Op::kSoftcap};
      cap.in0 = logits;
      cap.out = logits;
      cap.cap = config_.final_softcap;
      cap.scale = config_.logit_scale;
      cap.width = V;
      emit(cap);
    }
    fires(Site::kLogits, V);
    Step check{.op = Op::kCheckFinite};
    check.in0 = logits;
    check.width = V;
    emit(check);
  }

  const Model& model_;
  const ModelConfig& config_;
  Program program_;
  std::vector<Step>* steps_ = nullptr;
  SiteShapes* sites_ = nullptr;  // of the section that steps_ belongs to
  int32_t layer_ = -1;
  std::map<std::string, int32_t> slot_ids_;
  std::map<const uint8_t*, int32_t> weight_ids_;
  std::map<std::pair<int32_t, ActType>, int32_t> quantised_;
  std::vector<int32_t> rope_slots_;
  int32_t first_embed_ = -1;
  absl::Status status_;
};

}  // namespace

absl::StatusOr<Program> lower(const Model& model) {
  if (!model.has_weights) return error(Code::kState, "the model was opened without weights");
  return Lowering(model).run();
}

}  // namespace engine
