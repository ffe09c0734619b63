// Section by section; each says what a reader of plans would look for there.
#include "lib/plan/plan_diff.h"

#include <algorithm>
#include <map>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/plan/diff_lines.h"
#include "lib/plan/plan_key_read.h"
#include "lib/plan/plan_tree.h"
#include "lib/plan/section_diff.h"

namespace engine {
namespace {

// Entries of an array of objects by the text of some of their fields.
std::map<std::string, const Json*> by_fields(const Json* list,
                                             std::initializer_list<const char*> fields) {
  std::map<std::string, const Json*> entries;
  if (list == nullptr || !list->is_array()) return entries;
  for (const Json& entry : *list) {
    std::string name;
    for (const char* field : fields) {
      absl::StrAppend(&name, name.empty() ? "" : " ", diff_text(find_value(entry, {field})));
    }
    entries[name] = &entry;
  }
  return entries;
}

// The names of both, in order.
std::vector<std::string> all_names(const std::map<std::string, const Json*>& a,
                                   const std::map<std::string, const Json*>& b) {
  std::vector<std::string> names;
  for (const auto& [name, entry] : a) names.push_back(name);
  for (const auto& [name, entry] : b) {
    if (!a.contains(name)) names.push_back(name);
  }
  return names;
}
const Json* entry_of(const std::map<std::string, const Json*>& entries, const std::string& name) {
  const auto it = entries.find(name);
  return it == entries.end() ? nullptr : it->second;
}
const Json* field_of(const Json* entry, const char* name) {
  return entry == nullptr ? nullptr : find_value(*entry, {name});
}

// "blk.12.attn_q.weight" -> "blk.*.attn_q.weight"
std::string without_layer(const std::string& name) {
  if (!name.starts_with("blk.")) return name;
  const size_t end = name.find_first_not_of("0123456789", 4);
  return end == 4 || end == std::string::npos ? name : absl::StrCat("blk.*", name.substr(end));
}

class PlanDiff {
 public:
  PlanDiff(const Json& a, const Json& b) : a_(a), b_(b) {}

  std::string run() {
    for (const char* section : {"provenance", "model", "kv"}) values(section);
    hooks();
    tensors();
    layers();
    for (const char* form : {"decode", "prefill"}) {
      outside_layers(form);
      arena(form);
    }
    dispatch();
    std::string text;
    for (const std::string& line : lines_) absl::StrAppend(&text, line, "\n");
    return text;
  }

 private:
  void values(const char* section) {
    Json a = a_.value(section, Json()), b = b_.value(section, Json());
    if (a.is_object()) a.erase("time");
    if (b.is_object()) b.erase("time");
    diff_values(&a, &b, section, &lines_);
  }

  // How a site is served, as one text.
  static std::string hook_text(const Json* hook) {
    if (hook == nullptr) return "none";
    std::vector<int64_t> numbers;
    if (const Json* layers = field_of(hook, "layers"); layers != nullptr && layers->is_array()) {
      for (const Json& layer : *layers) {
        if (layer.is_number_integer()) numbers.push_back(layer.get<int64_t>());
      }
    }
    const bool is_global = numbers == std::vector<int64_t>{-1};
    std::string text = is_global ? "set" : absl::StrCat("layers ", ranges_text(numbers));
    absl::StrAppend(&text, ", ", diff_text(field_of(hook, "route")));
    const std::string reason = diff_text(field_of(hook, "reason"));
    if (!reason.empty()) absl::StrAppend(&text, " (", reason, ")");
    return text;
  }
  void hooks() {
    const auto fields = {"site", "route", "reason"};
    const auto a = by_fields(find_value(a_, {"hooks"}), fields);
    const auto b = by_fields(find_value(b_, {"hooks"}), fields);
    for (const std::string& name : all_names(a, b)) {
      const Json* before = entry_of(a, name);
      const Json* after = entry_of(b, name);
      const std::string from = hook_text(before), to = hook_text(after);
      if (from == to) continue;
      const std::string site = diff_text(field_of(before != nullptr ? before : after, "site"));
      lines_.push_back(absl::StrCat("hooks on ", site, ": ", from, " -> ", to));
    }
  }

  void tensors() {
    const auto a = by_fields(find_value(a_, {"tensors"}), {"name", "op"});
    const auto b = by_fields(find_value(b_, {"tensors"}), {"name", "op"});
    std::vector<std::string> order;
    std::map<std::string, int64_t> count;
    for (const std::string& name : all_names(a, b)) {
      const Json* before = entry_of(a, name);
      const Json* after = entry_of(b, name);
      const std::string label = absl::StrCat("tensor ", without_layer(name));
      const auto add = [&](std::string line) {
        if (++count[line] == 1) order.push_back(std::move(line));
      };
      if (before == nullptr || after == nullptr) {
        add(absl::StrCat(label, before == nullptr ? ": none -> " : ": ",
                         diff_text(field_of(before == nullptr ? after : before, "dtype")),
                         after == nullptr ? " -> none" : ""));
        continue;
      }
      bool has_kernel_line = false;
      for (const char* field :
           {"dtype", "shape", "layout", "residency", "bytes", "kernel", "runner_up", "reason"}) {
        const std::string from = diff_text(field_of(before, field));
        const std::string to = diff_text(field_of(after, field));
        if (from == to) continue;
        const bool is_kernel = std::string_view(field) == "kernel";
        if (!is_kernel && has_kernel_line) continue;  // the reason is in the kernel's line
        has_kernel_line = has_kernel_line || is_kernel;
        add(absl::StrCat(
            label, ": ", field, " ", from, " -> ", to,
            is_kernel ? absl::StrCat(" (", diff_text(field_of(after, "reason")), ")") : ""));
      }
    }
    for (const std::string& line : order) {
      lines_.push_back(count[line] == 1 ? line
                                        : absl::StrCat(line, " (", count[line], " tensors)"));
    }
  }

  void layers() {
    LayerLines found;
    for (const char* form : {"decode", "prefill"}) {
      const Json* a = find_value(a_, {form, "layers"});
      const Json* b = find_value(b_, {form, "layers"});
      const size_t n_a = a != nullptr && a->is_array() ? a->size() : 0;
      const size_t n_b = b != nullptr && b->is_array() ? b->size() : 0;
      if (n_a != n_b) lines_.push_back(absl::StrCat(form, ": ", n_a, " layers -> ", n_b));
      for (size_t l = 0; l < std::min(n_a, n_b); ++l) {
        const Json& x = (*a)[l];
        const Json& y = (*b)[l];
        for (const std::string& line :
             diff_section(find_value(x, {"steps"}), find_value(x, {"fusions"}),
                          find_value(y, {"steps"}), find_value(y, {"fusions"}))) {
          found.add(form == std::string_view("prefill"), static_cast<int64_t>(l), line);
        }
      }
    }
    found.print(&lines_);
  }

  void outside_layers(const char* form) {
    for (const char* field : {"n_tokens", "n_head_rows"}) {
      diff_values(find_value(a_, {form, field}), find_value(b_, {form, field}),
                  absl::StrCat(form, ".", field), &lines_);
    }
    const auto add = [&](const char* section, const std::vector<std::string>& lines) {
      for (const std::string& line : lines) {
        lines_.push_back(absl::StrCat(form, " ", section, ": ", line));
      }
    };
    add("preamble", diff_section(find_value(a_, {form, "preamble"}), nullptr,
                                 find_value(b_, {form, "preamble"}), nullptr));
    add("final", diff_section(find_value(a_, {form, "final", "steps"}),
                              find_value(a_, {form, "final", "fusions"}),
                              find_value(b_, {form, "final", "steps"}),
                              find_value(b_, {form, "final", "fusions"})));
  }

  void arena(const char* form) {
    for (const char* field : {"bytes", "thread_scratch_bytes"}) {
      diff_values(find_value(a_, {form, "arena", field}), find_value(b_, {form, "arena", field}),
                  absl::StrCat(form, ".arena.", field), &lines_);
    }
    const auto a = by_fields(find_value(a_, {form, "arena", "regions"}), {"name"});
    const auto b = by_fields(find_value(b_, {form, "arena", "regions"}), {"name"});
    int64_t n_moved = 0;
    for (const std::string& name : all_names(a, b)) {
      const std::string from = diff_text(field_of(entry_of(a, name), "bytes"));
      const std::string to = diff_text(field_of(entry_of(b, name), "bytes"));
      if (from != to) {
        lines_.push_back(absl::StrCat(form, " memory of ", name, ": ", from, " -> ", to, " bytes"));
        continue;
      }
      for (const char* field : {"offset", "first_step", "last_step"}) {
        if (diff_text(field_of(entry_of(a, name), field)) ==
            diff_text(field_of(entry_of(b, name), field))) {
          continue;
        }
        ++n_moved;
        break;
      }
    }
    if (n_moved > 0) {
      lines_.push_back(absl::StrCat(form, " memory: place or lifetime of ", n_moved,
                                    " values of equal size differs"));
    }
  }

  void dispatch() {
    for (const char* field : {"target", "features", "thread_split"}) {
      diff_values(find_value(a_, {"dispatch", field}), find_value(b_, {"dispatch", field}),
                  absl::StrCat("dispatch.", field), &lines_);
    }
    const auto a = by_fields(find_value(a_, {"dispatch", "kernels"}), {"kernel"});
    const auto b = by_fields(find_value(b_, {"dispatch", "kernels"}), {"kernel"});
    const auto text = [](const Json* entry) {
      return entry == nullptr
                 ? std::string("none")
                 : absl::StrCat(diff_text(field_of(entry, "per_token")), " per token, ",
                                diff_text(field_of(entry, "per_chunk")), " per chunk");
    };
    for (const std::string& name : all_names(a, b)) {
      const std::string from = text(entry_of(a, name)), to = text(entry_of(b, name));
      if (from != to) lines_.push_back(absl::StrCat("kernel ", name, ": ", from, " -> ", to));
    }
  }

  const Json& a_;
  const Json& b_;
  std::vector<std::string> lines_;
};

}  // namespace

absl::StatusOr<std::string> diff_plans(std::string_view a, std::string_view b) try {
  ENGINE_ASSIGN_OR_RETURN(const Json before, parse_plan(a));
  ENGINE_ASSIGN_OR_RETURN(const Json after, parse_plan(b));
  return PlanDiff(before, after).run();
} catch (const std::bad_alloc&) {
  return error(Code::kMemory, "out of memory while comparing plans");
} catch (const std::exception&) {
  return error(Code::kArgument, "damaged plan: it cannot be read");
}

}  // namespace engine
