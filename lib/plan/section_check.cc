// Order, shape, values and hook sites of one section's plan steps.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/plan/plan_check.h"
#include "lib/plan/section_flow.h"
#include "lib/plan/step_parts.h"

namespace engine {
namespace {

bool is_attention_site(Site site) {
  return site == Site::kAttnScores || site == Site::kAttnPattern;  // computed beside the step
}

char op_letter(const Step& step) {
  switch (step.op) {
    case Op::kRmsNorm: return 'N';
    case Op::kAdd: return step.weight >= 0 ? 'B' : 'A';
    case Op::kQuantize: return 'Q';
    case Op::kMatmul: return 'M';
    case Op::kGatedAct: return 'G';
    case Op::kRope: return 'R';
    case Op::kKvStore: return 'S';
    case Op::kAttention: return 'T';
    default: return '?';
  }
}

// Takes one letter from the front.
bool eat(std::string_view* text, char letter) {
  if (text->empty() || text->front() != letter) return false;
  text->remove_prefix(1);
  return true;
}

bool has_shape(StepKind kind, std::string_view ops) {
  const size_t n_ops = ops.size();
  switch (kind) {
    case StepKind::kSingle: return n_ops == 1;
    case StepKind::kNormRows:
      if (ops.substr(0, 2) == "NA") ops.remove_prefix(1);
      eat(&ops, 'A');
      if (!eat(&ops, 'N')) return false;
      while (eat(&ops, 'Q')) {
      }
      return ops.empty() && n_ops >= 2;
    case StepKind::kMatmulGroup: {
      int members = 0;
      for (; eat(&ops, 'M'); ++members) eat(&ops, 'B');
      return ops.empty() && members >= 2;
    }
    case StepKind::kMatmulAdd:
      if (!eat(&ops, 'M')) return false;
      eat(&ops, 'B');
      return ops == "A";
    case StepKind::kGateUp:
      for (int member = 0; member < 2; ++member) {
        if (!eat(&ops, 'M')) return false;
        eat(&ops, 'B');
      }
      if (!eat(&ops, 'G')) return false;
      while (eat(&ops, 'Q')) {
      }
      return ops.empty();
    case StepKind::kStoreKv:
    case StepKind::kAttentionQ:
      eat(&ops, 'N');
      eat(&ops, 'R');
      return n_ops >= 2 && ops == (kind == StepKind::kStoreKv ? "S" : "T");
  }
  return false;
}

struct Place {
  int32_t step = -1;
  int32_t part = -1;
  friend auto operator<=>(const Place&, const Place&) = default;
};

class SectionCheck {
 public:
  SectionCheck(const Program& program, const std::vector<Step>& section,
               const std::vector<PlanStep>& steps, SiteMask active,
               const std::vector<bool>& carried, const std::string& where)
      : program_(program),
        section_(section),
        steps_(steps),
        active_(active),
        carried_(carried),
        where_(where),
        flow_(section_flow(section)),
        places_(section.size()) {}

  absl::Status run() {
    ENGINE_RETURN_IF_ERROR(find_places());
    for (const PlanStep& step : steps_) {
      if (!shape_is_right(step)) {
        return fault(absl::StrCat(
            "the step of kind ", step_kind_name(step.kind), " that begins with ",
            step_text(static_cast<size_t>(step.steps.front())), " has not the shape of its kind"));
      }
    }
    for (size_t i = 0; i < section_.size(); ++i) ENGINE_RETURN_IF_ERROR(check_values(i));
    ENGINE_RETURN_IF_ERROR(check_results());
    return check_sites();
  }

 private:
  absl::Status fault(std::string_view what) const {
    return error(Code::kPlan, absl::StrCat("plan check: ", where_, ": ", what));
  }
  std::string step_text(size_t i) const {
    return absl::StrCat("step ", i, " (", op_name(section_[i].op), ")");
  }
  const Step& part_step(const PlanStep& step, size_t part) const {
    return section_[static_cast<size_t>(step.steps[part])];
  }
  const StepFlow& part_flow(const PlanStep& step, size_t part) const {
    return flow_.steps[static_cast<size_t>(step.steps[part])];
  }
  bool is_stored(const Place& place) const {
    return part_is_stored(section_, steps_[static_cast<size_t>(place.step)],
                          static_cast<size_t>(place.part));
  }

  absl::Status find_places() {
    for (size_t p = 0; p < steps_.size(); ++p) {
      if (steps_[p].steps.empty()) return fault("an empty step");
      for (size_t part = 0; part < steps_[p].steps.size(); ++part) {
        const int32_t i = steps_[p].steps[part];
        if (i < 0 || static_cast<size_t>(i) >= section_.size()) return fault("no such step");
        Place& place = places_[static_cast<size_t>(i)];
        if (place.step >= 0)
          return fault(absl::StrCat(step_text(static_cast<size_t>(i)), " twice"));
        place = {static_cast<int32_t>(p), static_cast<int32_t>(part)};
      }
    }
    for (size_t i = 0; i < section_.size(); ++i) {
      if (places_[i].step < 0) return fault(absl::StrCat(step_text(i), " is missing"));
    }
    return absl::OkStatus();
  }

  // Ops in the order of the kind, each fed by the one before where the kind says so.
  bool shape_is_right(const PlanStep& step) const {
    std::string ops;
    for (size_t part = 0; part < step.steps.size(); ++part) ops += op_letter(part_step(step, part));
    if (!has_shape(step.kind, ops)) return false;
    int32_t head = -1;   // the value that the following parts read
    int32_t other = -1;  // kGateUp: the finished gate
    for (size_t part = 0; part < step.steps.size(); ++part) {
      const StepFlow& flow = part_flow(step, part);
      const bool is_fed =
          head >= 0 && (flow.producer0 == head || (ops[part] == 'A' && flow.producer1 == head));
      switch (ops[part]) {
        case 'M': other = head; break;
        case 'G':
          if (part > 0 && (flow.producer0 != other || flow.producer1 != head)) return false;
          break;
        case 'Q':
          if (part > 0 && !is_fed) return false;
          continue;  // several may read the same value
        default:
          if (part > 0 && !is_fed) return false;
      }
      head = step.steps[part];
    }
    return true;
  }

  absl::Status check_values(size_t i) const {
    for (const int32_t j : flow_.steps[i].after) {
      if (!(places_[static_cast<size_t>(j)] < places_[i])) {
        return fault(absl::StrCat(step_text(i), " runs before ", step_text(static_cast<size_t>(j)),
                                  ", which it needs"));
      }
    }
    for (const int32_t producer : {flow_.steps[i].producer0, flow_.steps[i].producer1}) {
      if (producer < 0) continue;
      const Place& made = places_[static_cast<size_t>(producer)];
      if (made.step != places_[i].step && !is_stored(made)) {
        return fault(absl::StrCat(step_text(i), " reads what ",
                                  step_text(static_cast<size_t>(producer)), " does not store"));
      }
    }
    return absl::OkStatus();
  }

  // What later sections and the caller read is stored.
  absl::Status check_results() const {
    std::vector<int32_t> writer(program_.slots.size(), -1);
    for (size_t i = 0; i < section_.size(); ++i) {
      if (section_[i].out >= 0)
        writer[static_cast<size_t>(section_[i].out)] = static_cast<int32_t>(i);
    }
    for (size_t s = 0; s < writer.size(); ++s) {
      if (writer[s] < 0 || !(carried_[s] || static_cast<int32_t>(s) == program_.logits_slot))
        continue;
      if (!is_stored(places_[static_cast<size_t>(writer[s])])) {
        return fault(absl::StrCat(program_.slots[s].name, " is not stored"));
      }
    }
    return absl::OkStatus();
  }

  absl::Status check_sites() const {
    std::vector<std::pair<Place, Site>> fired;  // in the program's order
    for (size_t i = 0; i < section_.size(); ++i) {
      for (const Site site : section_[i].fires_before) {
        if ((active_ & site_bit(site)) == 0) continue;
        fired.emplace_back(Place{places_[i].step, -1}, site);
        if (places_[i].part != 0 && !is_attention_site(site))
          return site_fault(site, "is inside a step");
      }
      for (const Site site : section_[i].fires_after) {
        if ((active_ & site_bit(site)) == 0) continue;
        fired.emplace_back(places_[i], site);
        if (!is_stored(places_[i])) return site_fault(site, "is not stored");
        const PlanStep& step = steps_[static_cast<size_t>(places_[i].step)];
        for (auto part = static_cast<size_t>(places_[i].part) + 1; part < step.steps.size();
             ++part) {
          const Step& later = part_step(step, part);
          const int32_t slot = section_[i].out;
          if (later.in0 == slot || later.in1 == slot || later.out == slot) {
            return site_fault(site, "is used within the step that makes it");
          }
        }
      }
    }
    SiteMask seen = 0;
    for (size_t f = 0; f < fired.size(); ++f) {
      if ((seen & site_bit(fired[f].second)) != 0)
        return site_fault(fired[f].second, "fires twice");
      seen |= site_bit(fired[f].second);
      if (f > 0 && fired[f].first < fired[f - 1].first) {
        return site_fault(fired[f].second, "fires out of order");
      }
    }
    return absl::OkStatus();
  }
  absl::Status site_fault(Site site, std::string_view what) const {
    return fault(absl::StrCat("hook site ", site_info(site).name, " ", what));
  }

  const Program& program_;
  const std::vector<Step>& section_;
  const std::vector<PlanStep>& steps_;
  const SiteMask active_;
  const std::vector<bool>& carried_;
  const std::string& where_;
  const SectionFlow flow_;
  std::vector<Place> places_;  // per program step
};

}  // namespace

absl::Status check_section(const Program& program, const std::vector<Step>& section,
                           const std::vector<PlanStep>& steps, SiteMask active,
                           const std::vector<bool>& carried, const std::string& where) {
  return SectionCheck(program, section, steps, active, carried, where).run();
}

}  // namespace engine
