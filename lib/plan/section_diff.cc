// Steps are compared as texts ("matmul_add(matmul attn_out, add resid_mid)") along their longest common
// sequence; kernels and hooks by operation, however it is fused.
#include "lib/plan/section_diff.h"

#include <algorithm>
#include <map>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/plan/diff_lines.h"
#include "lib/plan/plan_key_read.h"

namespace engine {
namespace {

constexpr size_t kMaxSteps = 1024;  // the comparison is quadratic; a layer has about twenty

struct StepText {
  std::string text, split;
};
struct Operation {
  std::string kernel, hooks;
};
struct SectionText {
  std::vector<StepText> steps;
  std::map<std::string, Operation> operations;  // by "matmul q"
};

// The elements of an array; none of anything else.
std::span<const Json> elements(const Json* list) {
  if (list == nullptr || !list->is_array()) return {};
  return list->get_ref<const Json::array_t&>();
}

std::string operation_name(const Json& operation) {
  const Json* outputs = find_value(operation, {"outputs"});
  const Json* slots = outputs != nullptr && outputs->is_array() && !outputs->empty()
                          ? outputs
                          : find_value(operation, {"inputs"});
  std::string name = diff_text(find_value(operation, {"op"}));
  if (slots != nullptr && slots->is_array() && !slots->empty()) {
    absl::StrAppend(&name, " ", diff_text(&slots->front()));
  }
  return name;
}

SectionText section_text(const Json* steps) {
  SectionText section;
  for (const Json& step : elements(steps)) {
    std::string names;
    for (const Json& operation : elements(find_value(step, {"fused_from"}))) {
      const std::string name = operation_name(operation);
      absl::StrAppend(&names, names.empty() ? "" : ", ", name);
      // In-place operations of one kind on one slot: the norm and the post-norm, two biases.
      std::string unique = name;
      for (int n = 2; section.operations.contains(unique); ++n) {
        unique = absl::StrCat(name, " #", n);
      }
      Operation& entry = section.operations[unique];
      entry.kernel = diff_text(find_value(operation, {"kernel"}));
      entry.hooks = absl::StrCat(diff_text(find_value(operation, {"hooks_before"})), " / ",
                                 diff_text(find_value(operation, {"hooks_after"})));
    }
    const std::string kind = diff_text(find_value(step, {"kind"}));
    section.steps.push_back({kind == "single" ? names : absl::StrCat(kind, "(", names, ")"),
                             diff_text(find_value(step, {"split"}))});
  }
  return section;
}

std::string join(const std::vector<StepText>& steps, size_t begin, size_t end) {
  std::string text;
  for (size_t i = begin; i < end; ++i) {
    absl::StrAppend(&text, text.empty() ? "" : "; ", steps[i].text);
  }
  return text.empty() ? "none" : text;
}

// Pairs of equal steps: a longest common subsequence.
std::vector<std::pair<size_t, size_t>> common_steps(const std::vector<StepText>& a,
                                                    const std::vector<StepText>& b) {
  std::vector<std::vector<uint32_t>> length(a.size() + 1, std::vector<uint32_t>(b.size() + 1, 0));
  for (size_t i = a.size(); i-- > 0;) {
    for (size_t j = b.size(); j-- > 0;) {
      length[i][j] = a[i].text == b[j].text ? length[i + 1][j + 1] + 1
                                            : std::max(length[i + 1][j], length[i][j + 1]);
    }
  }
  std::vector<std::pair<size_t, size_t>> pairs;
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    if (a[i].text == b[j].text) {
      pairs.emplace_back(i++, j++);
    } else if (length[i + 1][j] >= length[i][j + 1]) {
      ++i;
    } else {
      ++j;
    }
  }
  return pairs;
}

void diff_steps(const std::vector<StepText>& a, const std::vector<StepText>& b,
                std::vector<std::string>* lines) {
  if (a.size() > kMaxSteps || b.size() > kMaxSteps) {
    lines->push_back(absl::StrCat("steps: ", a.size(), " -> ", b.size(), " (too many to compare)"));
    return;
  }
  auto pairs = common_steps(a, b);
  pairs.emplace_back(a.size(), b.size());
  size_t i = 0, j = 0;
  for (const auto& [next_i, next_j] : pairs) {
    if (next_i > i || next_j > j) {
      lines->push_back(absl::StrCat("steps: ", join(a, i, next_i), " -> ", join(b, j, next_j)));
    }
    if (next_i < a.size() && a[next_i].split != b[next_j].split) {
      lines->push_back(absl::StrCat("split of ", a[next_i].text, ": ", a[next_i].split, " -> ",
                                    b[next_j].split));
    }
    i = next_i + 1;
    j = next_j + 1;
  }
}

void diff_fusions(const Json* a, const Json* b, std::vector<std::string>* lines) {
  for (const Json& before : elements(a)) {
    for (const Json& after : elements(b)) {
      const Json* id = find_value(before, {"id"});
      const Json* other = find_value(after, {"id"});
      if (id == nullptr || other == nullptr || *id != *other) continue;
      const auto is_on = [](const Json& fusion) {
        const Json* on = find_value(fusion, {"on"});
        return on != nullptr && on->is_boolean() && on->get<bool>();
      };
      const auto reason = [](const Json& fusion) {
        const std::string text = diff_text(find_value(fusion, {"reason"}));
        return text.empty() ? std::string("on wherever it could be") : text;
      };
      if (is_on(before) != is_on(after)) {
        // The reason is that of the plan in which it is off.
        lines->push_back(absl::StrCat(diff_text(id),
                                      is_on(after) ? ": off -> on (was off: " : ": on -> off (",
                                      reason(is_on(after) ? before : after), ")"));
      } else if (reason(before) != reason(after)) {
        lines->push_back(absl::StrCat(diff_text(id),
                                      is_on(after) ? " (on), off in part: " : " (off), reason: ",
                                      reason(before), " -> ", reason(after)));
      }
    }
  }
}

}  // namespace

std::vector<std::string> diff_section(const Json* steps_a, const Json* fusions_a,
                                      const Json* steps_b, const Json* fusions_b) {
  std::vector<std::string> lines;
  diff_fusions(fusions_a, fusions_b, &lines);
  const SectionText a = section_text(steps_a), b = section_text(steps_b);
  diff_steps(a.steps, b.steps, &lines);
  for (const auto& [name, operation] : a.operations) {
    const auto it = b.operations.find(name);
    if (it == b.operations.end()) continue;
    if (operation.kernel != it->second.kernel) {
      lines.push_back(
          absl::StrCat("kernel of ", name, ": ", operation.kernel, " -> ", it->second.kernel));
    }
    if (operation.hooks != it->second.hooks) {
      lines.push_back(absl::StrCat("hooks before / after ", name, ": ", operation.hooks, " -> ",
                                   it->second.hooks));
    }
  }
  return lines;
}

}  // namespace engine
