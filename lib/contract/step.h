// A network as inert data: the op sequence, its slots, weights, rope rules and KV geometry. No control flow.
//
// plan/lower builds it from a model; session executes it without knowing the architecture.
#ifndef ENGINE_LIB_CONTRACT_STEP_H_
#define ENGINE_LIB_CONTRACT_STEP_H_

#include <cstdint>
#include <string>
#include <vector>

#include "lib/contract/kernel.h"
#include "lib/contract/op.h"
#include "lib/contract/site.h"

namespace engine {

// A value that a step makes and later steps read. Named as the hook site where it is one
// (plan-and-hooks.md section 5), so that names are the same on every architecture.
struct Slot {
  std::string name;
  ActType type = ActType::kF32;
  int64_t width = 0;      // values per token
  int64_t row_bytes = 0;  // of one token, a multiple of 64
};

struct Weight {
  std::string name;
  Format format = Format::kF32;
  Layout layout = Layout::kStored;
  int64_t rows = 0;  // outputs; 1 for a vector
  int64_t cols = 0;  // inputs
  int64_t row_bytes = 0;
  const uint8_t* data = nullptr;  // lives as long as the model
  int64_t n_experts = 1;          // matrices, or vectors, one after the other
};

struct RopeRule {
  std::vector<double> theta;  // radians per position, [n_rot / 2], divisors and scaling applied
  float mscale = 1.0f;
  std::vector<double> theta_long =
      {};  // of sessions whose n_ctx is above n_ctx_short; empty = none
  int64_t n_ctx_short = 0;

  // By the session's context, not by the position: a table that changed in between would not fit the keys
  // that are stored.
  bool is_long(int64_t n_ctx) const { return !theta_long.empty() && n_ctx > n_ctx_short; }
  const std::vector<double>& theta_of(int64_t n_ctx) const {
    return is_long(n_ctx) ? theta_long : theta;
  }
};

// One operation. Fields that the op does not use stay at their defaults.
struct Step {
  Op op = Op::kAdd;
  int32_t layer = -1;  // -1: before or after the layers
  int32_t in0 = -1;    // slot ids
  int32_t in1 = -1;
  int32_t out = -1;
  int32_t weight =
      -1;  // weight id: matmul, norm, embed; bias of kAdd (then in1 is -1); sinks of kAttention
  int32_t rope = -1;   // kRopeAngles: rule
  int64_t width = 0;   // values per token that the step reads or writes element by element
  float scale = 1.0f;  // kEmbed, kSoftcap: factor; kAttention: score scale; kAdd: of in1
  float cap = 0.0f;    // kAttention, kSoftcap; 0 = none
  float eps = 0.0f;    // kRmsNorm
  int64_t heads =
      1;  // kRmsNorm: norm each of this many equal parts; kRope, kAttention: query or key heads
  int64_t n_rot = 0;   // kRope
  int64_t window = 0;  // kAttention; 0 = full
  RopePairing pairing = RopePairing::kHalves;
  Activation act = Activation::kSilu;
  int64_t n_used =
      0;  // kMoe*: experts of a token; kMoeMatmul, kMoeBias, kMoeCombine: in1 is the route
  bool own_rows = false;  // kMoeMatmul: in0 has a part per chosen expert, else all read the same
  MoeRule moe = MoeRule::kSoftmax;  // kMoeRoute
  std::vector<Site> fires_before =
      {};  // hook sites, in order: on in0 before the step (attention: beside it)
  std::vector<Site> fires_after = {};  // on out
};

struct KvGeometry {
  int64_t n_kv_heads = 0;  // G
  int64_t head_dim_k = 0, head_dim_v = 0;
};

struct Program {
  std::vector<Slot> slots;
  std::vector<Weight> weights;
  std::vector<RopeRule> ropes;
  std::vector<Step> preamble;             // over all tokens of a call
  std::vector<std::vector<Step>> layers;  // over all tokens of a call
  std::vector<Step> final_steps;          // over the rows whose logits are wanted
  std::vector<KvGeometry> kv;             // per layer; of no heads where it reads another layer's
  std::vector<int32_t> kv_source;         // per layer: whose keys and values its attention reads
  std::vector<SiteShapes> layer_sites;    // per layer
  SiteShapes global_sites{};
  int32_t residual_slot = -1;  // what the layers hand on and the final steps read
  int32_t logits_slot = -1;
  int64_t n_vocab = 0;
  int64_t n_embd = 0;
  int64_t n_ctx_train = 0;
  uint64_t bytes_per_token = 0;  // weight bytes that one decoded token reads

  // What a step of the layer reads.
  int32_t kv_layer(int32_t layer) const { return kv_source[static_cast<size_t>(layer)]; }
  const KvGeometry& kv_read(int32_t layer) const {
    return kv[static_cast<size_t>(kv_layer(layer))];
  }

  // Which rope tables a session of that context uses, a bit per rule: keys stored under one set mean nothing
  // under another.
  uint32_t rope_tables(int64_t n_ctx) const {
    uint32_t tables = 0;
    for (size_t i = 0; i < ropes.size(); ++i) tables |= uint32_t{ropes[i].is_long(n_ctx)} << i % 32;
    return tables;
  }
};

}  // namespace engine

#endif  // ENGINE_LIB_CONTRACT_STEP_H_
