// The six fusions by the sites that name their values; a reason for every place where one is off.
#include "lib/plan/fuse.h"

#include <algorithm>
#include <bit>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/plan/section_flow.h"
#include "lib/plan/step_order.h"

namespace engine {
namespace {

// A matmul, the bias after it and the norm after that, where they are.
struct Projection {
  int32_t matmul = -1, bias = -1, post_norm = -1;
};

class SectionFuser {
 public:
  SectionFuser(const Program& program, const std::vector<Step>& section, SiteMask active,
               uint32_t allowed)
      : program_(program),
        section_(section),
        flow_(section_flow(section)),
        active_(active),
        allowed_(allowed) {}

  absl::StatusOr<PlanLayer> layer() {
    fuse_norm(Site::kAttnNorm);
    if (allowed(kF3)) group({projection(Site::kQ), projection(Site::kK), projection(Site::kV)});
    fuse_attention();
    const bool is_added = fuse_residual_add(Site::kAttnOut, Site::kResidMid, "output projection");
    if (!fuse_junction(is_added)) fuse_norm(Site::kFfnNorm);
    const bool has_gate_up = fuse_gate_up();
    if (!has_gate_up && allowed(kF3)) {
      group({projection(Site::kFfnGate), projection(Site::kFfnUp)});
    }
    fuse_residual_add(Site::kFfnOut, Site::kResidPost, "down projection");
    for (int f = 0; f < kNumFusions; ++f) {
      const auto bit = static_cast<Fusion>(1u << f);
      const bool is_silent = why_off_[static_cast<size_t>(f)].empty();
      if ((on_ & bit) == 0 && is_silent) off(bit, "the layer has no steps that it joins");
    }
    return result();
  }

  absl::StatusOr<PlanLayer> final_steps() {
    fuse_norm(Site::kFinalNorm);
    return result();
  }

 private:
  const Step& step(int32_t i) const { return section_[static_cast<size_t>(i)]; }
  const StepFlow& flow(int32_t i) const { return flow_.steps[static_cast<size_t>(i)]; }
  bool allowed(Fusion fusion) const { return (allowed_ & fusion) != 0; }
  bool hooked(Site site) const { return (active_ & site_bit(site)) != 0; }

  // The step whose result the site is; every site of the families is there, so -1 needs a foreign program.
  int32_t at(Site site) const {
    for (size_t i = 0; i < section_.size(); ++i) {
      const std::vector<Site>& fires = section_[i].fires_after;
      if (std::find(fires.begin(), fires.end(), site) != fires.end()) {
        return static_cast<int32_t>(i);
      }
    }
    return -1;
  }
  Op op_at(int32_t i) const { return i < 0 ? Op::kCheckFinite : step(i).op; }

  Projection projection(Site site) const {
    Projection p;
    int32_t i = at(site);
    if (op_at(i) == Op::kRmsNorm) {
      p.post_norm = i;
      i = flow(i).producer0;
    }
    if (op_at(i) == Op::kAdd) {
      p.bias = i;
      i = flow(i).producer0;
    }
    if (op_at(i) == Op::kMatmul) p.matmul = i;
    return p;
  }
  static void append(const Projection& p, std::vector<int32_t>* steps) {
    steps->push_back(p.matmul);
    if (p.bias >= 0) steps->push_back(p.bias);
  }

  void take(StepKind kind, uint32_t fusions, std::vector<int32_t> steps) {
    PlanStep fused;
    fused.kind = kind;
    fused.fusions = fusions;
    fused.steps = std::move(steps);
    on_ |= fusions;
    groups_.push_back(std::move(fused));
  }

  void off(Fusion fusion, std::string_view reason) {
    if (!allowed(fusion)) return;
    std::string& text = why_off_[static_cast<size_t>(std::countr_zero(uint32_t{fusion}))];
    if (text.find(reason) != std::string::npos) return;
    absl::StrAppend(&text, text.empty() ? "" : "; ", reason);
  }

  // The quantisations that are the only readers of a value; empty and a reason otherwise.
  std::vector<int32_t> only_quantised(int32_t i, std::string* reason) const {
    for (const int32_t reader : flow(i).readers) {
      if (step(reader).op == Op::kQuantize) continue;
      const int32_t weight = step(reader).weight;
      const std::string& value = program_.slots[static_cast<size_t>(step(i).out)].name;
      *reason = absl::StrCat(value, " is read as f32 by ",
                             weight < 0 ? std::string(op_name(step(reader).op)) : name(weight));
      return {};
    }
    return flow(i).readers;
  }
  std::string name(int32_t weight) const {
    const Weight& w = program_.weights[static_cast<size_t>(weight)];
    return absl::StrCat(w.name, " (", format_info(w.format)->name, ")");
  }

  // F1: the quantisations that the norm of this site takes in, none where it is off.
  std::vector<int32_t> norm_quantisations(Site site, int32_t norm) {
    if (!allowed(kF1)) return {};
    std::string reason;
    std::vector<int32_t> quantised = only_quantised(norm, &reason);
    if (!quantised.empty() && hooked(site)) {
      reason = absl::StrCat("a hook on ", site_info(site).name, " needs the norm's f32 result");
      quantised.clear();
    }
    if (!reason.empty()) off(kF1, reason);
    return quantised;
  }

  void fuse_norm(Site site) {
    const int32_t norm = at(site);
    if (op_at(norm) != Op::kRmsNorm) return;
    const std::vector<int32_t> quantised = norm_quantisations(site, norm);
    if (quantised.empty()) return;
    std::vector<int32_t> steps = {norm};
    steps.insert(steps.end(), quantised.begin(), quantised.end());
    take(StepKind::kNormRows, kF1, std::move(steps));
  }

  void group(std::initializer_list<Projection> members) {
    std::vector<int32_t> steps;
    for (const Projection& p : members) {
      if (p.matmul < 0 || p.post_norm >= 0) return;
      append(p, &steps);
    }
    take(StepKind::kMatmulGroup, kF3, std::move(steps));
  }

  // Not one of the whole vector: that needs all heads at once.
  bool is_head_norm(int32_t i) const {
    return op_at(i) == Op::kRmsNorm &&
           step(i).width / step(i).heads == program_.kv_read(step(i).layer).head_dim_k;
  }

  // The norm and rotation before step i, and i itself.
  std::vector<int32_t> rotated_chain(int32_t i) const {
    std::vector<int32_t> chain = {i};
    int32_t before = flow(i).producer0;
    while (op_at(before) == Op::kRope || is_head_norm(before)) {
      chain.insert(chain.begin(), before);
      before = flow(before).producer0;
    }
    return chain;
  }

  void fuse_attention() {
    if (!allowed(kF4)) return;
    for (const Site site : {Site::kQNorm, Site::kKNorm, Site::kQRope, Site::kKRope}) {
      if (!hooked(site)) continue;
      off(kF4, absl::StrCat("a hook on ", site_info(site).name,
                            " needs a value inside the KV store or the attention"));
      return;
    }
    for (int32_t i = 0; i < static_cast<int32_t>(section_.size()); ++i) {
      const bool is_store = step(i).op == Op::kKvStore;
      if (!is_store && step(i).op != Op::kAttention) continue;
      std::vector<int32_t> chain = rotated_chain(i);
      if (chain.size() == 1) continue;
      take(is_store ? StepKind::kStoreKv : StepKind::kAttentionQ, kF4, std::move(chain));
    }
    if ((on_ & kF4) == 0) off(kF4, "the layer has no q/k norm and no rotation");
  }

  // F5 at one of the two places.
  bool fuse_residual_add(Site site, Site sum, std::string_view what) {
    const Projection p = projection(site);
    if (!allowed(kF5)) return false;
    if (p.matmul < 0) {
      off(kF5, absl::StrCat(site_info(site).name, " is a sum over experts"));
      return false;
    }
    if (p.post_norm >= 0) {
      off(kF5, absl::StrCat("a post-norm stands between the ", what, " and the residual add"));
      return false;
    }
    if (hooked(site)) {
      off(kF5, absl::StrCat("a hook on ", site_info(site).name, " needs the result of the ", what));
      return false;
    }
    std::vector<int32_t> steps;
    append(p, &steps);
    steps.push_back(at(sum));
    take(StepKind::kMatmulAdd, kF5, std::move(steps));
    return true;
  }

  // F2 between attention and feed-forward, with F1 inside where that is on.
  bool fuse_junction(bool is_added) {
    const int32_t post_norm = projection(Site::kAttnOut).post_norm;
    const int32_t norm = at(Site::kFfnNorm);
    if (!allowed(kF2) || op_at(norm) != Op::kRmsNorm) return false;
    if (is_added) {
      off(kF2, "F5 adds in the output projection");
      return false;
    }
    if (hooked(Site::kResidMid)) {
      off(kF2, "a hook on resid_mid comes between the add and the norm");
      return false;
    }
    if (post_norm >= 0 && hooked(Site::kAttnOut)) {
      off(kF2, "a hook on attn_out comes between the post-norm and the add");
      return false;
    }
    std::vector<int32_t> steps;
    if (post_norm >= 0) steps.push_back(post_norm);
    steps.push_back(at(Site::kResidMid));
    steps.push_back(norm);
    const std::vector<int32_t> quantised = norm_quantisations(Site::kFfnNorm, norm);
    steps.insert(steps.end(), quantised.begin(), quantised.end());
    take(StepKind::kNormRows, kF2 | (quantised.empty() ? 0u : kF1), std::move(steps));
    return true;
  }

  bool fuse_gate_up() {
    const Projection gate = projection(Site::kFfnGate), up = projection(Site::kFfnUp);
    const int32_t act = at(Site::kFfnAct);
    if (!allowed(kF6)) return false;
    if (gate.matmul < 0 || up.matmul < 0 || act < 0) {
      off(kF6, "gate and up are those of experts, which differ from token to token");
      return false;
    }
    for (const Site site : {Site::kFfnGate, Site::kFfnUp}) {
      if (!hooked(site)) continue;
      off(kF6, absl::StrCat("a hook on ", site_info(site).name,
                            " needs a value inside the gate/up launch"));
      return false;
    }
    std::string read_as_f32;  // then the step ends with the activation
    const std::vector<int32_t> quantised = only_quantised(act, &read_as_f32);
    if (!quantised.empty() && hooked(Site::kFfnAct)) {
      off(kF6, "a hook on ffn_act needs the f32 value that the gate/up launch quantises");
      return false;
    }
    std::vector<int32_t> steps;
    append(gate, &steps);
    append(up, &steps);
    steps.push_back(act);
    steps.insert(steps.end(), quantised.begin(), quantised.end());
    take(StepKind::kGateUp, kF6, std::move(steps));
    return true;
  }

  absl::StatusOr<PlanLayer> result() {
    PlanLayer out;
    ENGINE_ASSIGN_OR_RETURN(out.steps, order_steps(flow_, std::move(groups_)));
    out.fusions = on_;
    out.why_off = std::move(why_off_);
    return out;
  }

  const Program& program_;
  const std::vector<Step>& section_;
  const SectionFlow flow_;
  const SiteMask active_;
  const uint32_t allowed_;
  std::vector<PlanStep> groups_;
  uint32_t on_ = 0;
  std::array<std::string, kNumFusions> why_off_;
};

absl::StatusOr<PlanLayer> fuse_section(const Program& program, const std::vector<Step>& section,
                                       SiteMask active, const PlanKey& key, bool is_layer) {
  const uint32_t known = is_layer ? kAllFusions : uint32_t{kF1};
  const uint32_t allowed = key.mode == Mode::kPlannedFused ? key.fusions & known : 0;
  SectionFuser fuser(program, section, active, allowed);
  ENGINE_ASSIGN_OR_RETURN(PlanLayer out, is_layer ? fuser.layer() : fuser.final_steps());
  for (int f = 0; f < kNumFusions; ++f) {
    std::string& why = out.why_off[static_cast<size_t>(f)];
    const uint32_t bit = 1u << f;
    if ((known & bit) == 0 || (allowed & bit) != 0) continue;
    why = key.mode == Mode::kPlannedFused
              ? "it is switched off by a parameter of the session"
              : absl::StrCat("mode ", mode_name(key.mode), " runs every operation by itself");
  }
  return out;
}

}  // namespace

absl::StatusOr<PlanLayer> fuse_layer(const Program& program, int32_t layer, const PlanKey& key) {
  return fuse_section(program, program.layers[static_cast<size_t>(layer)], key.sites(layer), key,
                      true);
}

absl::StatusOr<PlanLayer> fuse_final(const Program& program, const PlanKey& key) {
  return fuse_section(program, program.final_steps, key.sites(-1), key, false);
}

}  // namespace engine
