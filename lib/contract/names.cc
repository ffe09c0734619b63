// Names of ops and targets, as printed in plans, errors and kernel row names.
#include "lib/contract/kernel.h"
#include "lib/contract/plan.h"

namespace engine {

std::string_view op_name(Op op) {
  switch (op) {
    case Op::kEmbed: return "embed";
    case Op::kRmsNorm: return "rms_norm";
    case Op::kQuantize: return "quantize";
    case Op::kMatmul: return "matmul";
    case Op::kAdd: return "add";
    case Op::kRopeAngles: return "rope_angles";
    case Op::kRope: return "rope";
    case Op::kKvStore: return "kv_store";
    case Op::kAttention: return "attention";
    case Op::kGatedAct: return "gated_act";
    case Op::kSoftcap: return "softcap";
    case Op::kCheckFinite: return "check_finite";
    case Op::kShortConv: return "short_conv";
    case Op::kMoeRoute: return "moe_route";
    case Op::kMoeMatmul: return "moe_matmul";
    case Op::kMoeBias: return "moe_bias";
    case Op::kMoeCombine: return "moe_combine";
  }
  return "unknown";
}

std::string_view target_name(Target target) {
  switch (target) {
    case Target::kScalar: return "scalar";
    case Target::kNeon: return "neon";
    case Target::kAvx2: return "avx2";
    case Target::kAvx3: return "avx3";
    case Target::kAvx3Dl: return "avx3_dl";
    case Target::kAvx3Spr: return "avx3_spr";
    case Target::kAmx: return "amx";
  }
  return "unknown";
}

std::string_view mode_name(Mode mode) {
  switch (mode) {
    case Mode::kReference: return "reference";
    case Mode::kPlanned: return "planned";
    case Mode::kPlannedFused: return "planned-fused";
  }
  return "unknown";
}

const char* fusion_name(int index) {
  static constexpr const char* kNames[kNumFusions] = {
      "F1 norm+quantize",     "F2 add+norm",        "F3 grouped matmuls",
      "F4 rope in attention", "F5 matmul+residual", "F6 gate+up+act+quantize"};
  return index >= 0 && index < kNumFusions ? kNames[index] : "unknown";
}

std::string_view kv_type_name(KvType type) {
  switch (type) {
    case KvType::kF16: return "f16";
    case KvType::kF32: return "f32";
    case KvType::kQ8_0: return "q8_0";
  }
  return "unknown";
}

std::string_view step_kind_name(StepKind kind) {
  switch (kind) {
    case StepKind::kSingle: return "single";
    case StepKind::kNormRows: return "norm_rows";
    case StepKind::kMatmulGroup: return "matmul_group";
    case StepKind::kMatmulAdd: return "matmul_add";
    case StepKind::kGateUp: return "gate_up";
    case StepKind::kStoreKv: return "store_kv";
    case StepKind::kAttentionQ: return "attention_q";
  }
  return "unknown";
}

std::string_view split_name(Split split) {
  switch (split) {
    case Split::kNone: return "none";
    case Split::kRows: return "rows";
    case Split::kTokens: return "tokens";
    case Split::kItems: return "items";
  }
  return "unknown";
}

}  // namespace engine
