// Kernel keys, KV offsets and scratch sizes of a program's steps.
#include "lib/contract/derive.h"

#include <algorithm>

namespace engine {
namespace {

constexpr int64_t kAlignBytes = 64;

int64_t aligned(int64_t n_bytes) { return (n_bytes + kAlignBytes - 1) / kAlignBytes * kAlignBytes; }

int64_t floats(int64_t n) { return aligned(n * static_cast<int64_t>(sizeof(float))); }

}  // namespace

KernelKey kernel_key(const Program& program, const Step& step, KvType kv) {
  KernelKey key{.op = step.op};
  switch (step.op) {
    case Op::kEmbed:
    case Op::kMoeMatmul:
    case Op::kMatmul: {
      const Weight& w = program.weights[static_cast<size_t>(step.weight)];
      key.format = w.format;
      key.layout = w.layout;
      if (step.op == Op::kEmbed) break;
      key.op = Op::kMatmul;
      key.act = program.slots[static_cast<size_t>(step.in0)].type;
      break;
    }
    case Op::kMoeBias:
    case Op::kMoeCombine: key.op = Op::kAdd; break;
    case Op::kQuantize: key.act = program.slots[static_cast<size_t>(step.out)].type; break;
    case Op::kKvStore:
    case Op::kShortConv:
    case Op::kAttention: key.kv = kv; break;
    default: break;
  }
  return key;
}

int64_t act_bytes(ActType type, int64_t n) {
  switch (type) {
    case ActType::kF32: return n * static_cast<int64_t>(sizeof(float));
    case ActType::kQ8x32: return n / 32 * static_cast<int64_t>(sizeof(ActQ8x32));
    case ActType::kQ8x256: return n / 256 * static_cast<int64_t>(sizeof(ActQ8x256));
  }
  return 0;
}

int64_t kv_row_bytes(KvType type, int64_t head_dim) {
  switch (type) {
    case KvType::kF16: return head_dim * 2;
    case KvType::kF32: return head_dim * 4;
    case KvType::kQ8_0: return head_dim + kv_blocks(head_dim) * 2;
  }
  return 0;
}

KvLayout kv_layout(const std::vector<KvGeometry>& layers, KvType type) {
  KvLayout layout;
  for (const KvGeometry& layer : layers) {
    const int64_t k = layer.n_kv_heads * kv_row_bytes(type, layer.head_dim_k);
    const int64_t v = layer.n_kv_heads * kv_row_bytes(type, layer.head_dim_v);
    layout.k_offset_bytes.push_back(layout.page_bytes);
    layout.page_bytes += aligned(k * kKvPagePositions);
    layout.v_offset_bytes.push_back(layout.page_bytes);
    layout.page_bytes += aligned(v * kKvPagePositions);
    layout.bytes_per_position += k + v;
  }
  return layout;
}

int64_t step_scratch_bytes(const Program& program, const std::vector<Step>& section,
                           const PlanStep& step, int64_t n_tokens) {
  const auto part = [&](size_t i) -> const Step& {
    return section[static_cast<size_t>(step.steps[i])];
  };
  switch (step.kind) {
    case StepKind::kSingle:
    case StepKind::kAttentionQ: {  // scores and sums; the queries of one token
      const Step& last = part(step.steps.size() - 1);
      if (last.op == Op::kMoeMatmul && n_tokens > 1) {  // activations and outputs of one expert
        const int64_t n = n_tokens < kExpertTokens ? n_tokens : kExpertTokens;
        const ActType act = program.slots[static_cast<size_t>(last.in0)].type;
        const Weight& w = program.weights[static_cast<size_t>(last.weight)];
        return n * aligned(act_bytes(act, w.cols)) + floats(n * tile_rows(n_tokens));
      }
      if (last.op != Op::kAttention) return 0;
      const KvGeometry& kv = program.kv_read(last.layer);
      const int64_t scores = floats(attention_scratch_floats(kv.head_dim_v));
      if (step.kind == StepKind::kSingle) return scores;
      return scores + floats(last.heads * kv.head_dim_k);
    }
    case StepKind::kNormRows: {  // a row for each value between the first and the last step
      int64_t bytes = 0;
      for (size_t i = 0; i < step.steps.size(); ++i) bytes += floats(part(i).width);
      return bytes;
    }
    case StepKind::kMatmulGroup: return 0;
    case StepKind::kMatmulAdd: return floats(n_tokens * tile_rows(n_tokens));
    case StepKind::kGateUp: return 2 * floats(n_tokens * tile_rows(n_tokens));
    case StepKind::kStoreKv: {
      const KvGeometry& kv = program.kv[static_cast<size_t>(part(0).layer)];
      return floats(kv.n_kv_heads * kv.head_dim_k);
    }
  }
  return 0;
}

int64_t step_weight_bytes(const Program& program, const Step& step) {
  if (step.weight < 0) return 0;
  const Weight& w = program.weights[static_cast<size_t>(step.weight)];
  if (step.op == Op::kEmbed) return w.row_bytes;
  return w.rows * w.row_bytes * (step.n_used > 0 ? step.n_used : 1);
}

std::string non_finite_text(const Step& step) {
  std::string text = "a NaN or an infinity appeared in ";
  text += step.layer < 0 ? "the final logits" : "layer " + std::to_string(step.layer);
  text += " (";
  text += op_name(step.op);
  text += ")";
  return text;
}

}  // namespace engine
