// Rotation keys: bases, scaling and its factors (formats/architectures.md 1.3, 1.4).
#include "lib/model/rope_read.h"

#include <string_view>

#include "absl/strings/str_cat.h"
#include "lib/base/det_math.h"

namespace engine {
namespace {

constexpr std::string_view kTypeKey = "rope.scaling.type";
constexpr int64_t kMaxContext = (int64_t{1} << 31) - 1;

absl::Status read_scaling(const KeyReader& keys, const ArchSpec& arch, RopeConfig* rope) {
  auto type = keys.file().get_string(keys.full(kTypeKey));
  if (!type.ok()) return keys.fail(kTypeKey, "value is not a string");
  const std::string_view name = type->value_or("linear");
  const bool is_longrope = name == "longrope" || name == "su";
  if (name == "none" || (is_longrope && arch.rope_factors)) return absl::OkStatus();
  if (name != "linear" && name != "yarn") {
    return keys.fail(kTypeKey, absl::StrCat("scaling \"", name, "\" is not supported by ",
                                            arch.name, "; known: none, linear, yarn",
                                            arch.rope_factors ? ", longrope" : ""));
  }
  ENGINE_ASSIGN_OR_RETURN(double factor, keys.not_negative("rope.scaling.factor", 0));
  if (factor == 0) {
    ENGINE_ASSIGN_OR_RETURN(factor, keys.not_negative("rope.scale_linear", 0));
  }
  if (factor == 0 || factor == 1) return absl::OkStatus();
  rope->factor = factor;
  rope->scaling = name == "yarn" ? RopeScaling::kYarn : RopeScaling::kLinear;
  if (rope->scaling == RopeScaling::kLinear) return absl::OkStatus();
  ENGINE_ASSIGN_OR_RETURN(rope->beta_fast, keys.positive("rope.scaling.yarn_beta_fast", 32.0));
  ENGINE_ASSIGN_OR_RETURN(rope->beta_slow, keys.positive("rope.scaling.yarn_beta_slow", 1.0));
  ENGINE_ASSIGN_OR_RETURN(const double log_multiplier,
                          keys.not_negative("rope.scaling.yarn_log_multiplier", 0));
  double mscale = 0.1 * det_log(factor) + 1.0;
  if (log_multiplier > 0) mscale /= 0.1 * log_multiplier * det_log(factor) + 1.0;
  rope->mscale = static_cast<float>(mscale * static_cast<double>(rope->mscale));
  rope->ramp_truncates = arch.yarn_truncates;
  return absl::OkStatus();
}

}  // namespace

absl::Status read_ropes(const KeyReader& keys, const ArchSpec& arch, ModelConfig* config) {
  RopeConfig rope;
  ENGINE_ASSIGN_OR_RETURN(rope.base, keys.positive("rope.freq_base", 10000.0));
  ENGINE_ASSIGN_OR_RETURN(const double mscale, keys.positive("rope.scaling.attn_factor", 1.0));
  rope.mscale = static_cast<float>(mscale);
  ENGINE_ASSIGN_OR_RETURN(rope.n_ctx_original,
                          keys.integer("rope.scaling.original_context_length", 0, kMaxContext, 0));
  if (rope.n_ctx_original == 0) rope.n_ctx_original = config->n_ctx_train;
  ENGINE_RETURN_IF_ERROR(read_scaling(keys, arch, &rope));
  config->ropes.push_back(rope);
  if (arch.local_rope) {
    RopeConfig local;  // sliding layers rotate unscaled
    const double base = arch.local_rope_base > 0 ? arch.local_rope_base : rope.base;
    ENGINE_ASSIGN_OR_RETURN(local.base, keys.positive("rope.freq_base_swa", base));
    config->ropes.push_back(local);
  }
  return absl::OkStatus();
}

}  // namespace engine
