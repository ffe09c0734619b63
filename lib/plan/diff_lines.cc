// Grouping by path without indices, and by text over layers.
#include "lib/plan/diff_lines.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace engine {
namespace {

struct Leaf {
  std::string path, group;  // group: the path with * for indices
  std::string a, b;
};

void collect(const Json* a, const Json* b, const std::string& path, const std::string& group,
             std::vector<Leaf>* leaves) {
  if (a != nullptr && b != nullptr && *a == *b) return;
  const bool both = a != nullptr && b != nullptr;
  if (both && a->is_object() && b->is_object()) {
    const auto below = [&](const std::string& key, const Json* x, const Json* y) {
      const std::string dot = path.empty() ? "" : ".";
      collect(x, y, path + dot + key, group + dot + key, leaves);
    };
    for (const auto& [key, value] : a->items()) {
      const auto it = b->find(key);
      below(key, &value, it == b->end() ? nullptr : &*it);
    }
    for (const auto& [key, value] : b->items()) {
      if (a->find(key) == a->end()) below(key, nullptr, &value);
    }
    return;
  }
  const auto is_nested = [](const Json* list) {
    return list->is_array() && !list->empty() && list->front().is_structured();
  };
  if (both && a->is_array() && b->is_array() && (is_nested(a) || is_nested(b))) {
    for (size_t i = 0; i < std::max(a->size(), b->size()); ++i) {
      collect(i < a->size() ? &(*a)[i] : nullptr, i < b->size() ? &(*b)[i] : nullptr,
              absl::StrCat(path, "[", i, "]"), group + "[*]", leaves);
    }
    return;
  }
  leaves->push_back({path, group, diff_text(a), diff_text(b)});
}

}  // namespace

std::string diff_text(const Json* value) {
  if (value == nullptr || value->is_null()) return "none";
  if (value->is_string()) return value->get_ref<const std::string&>();
  if (value->is_array() && value->empty()) return "none";
  std::string text = dump_tree(*value);
  if (text.size() > 160) text = text.substr(0, 157) + "...";
  return text;
}

std::string ranges_text(const std::vector<int64_t>& numbers) {
  std::string text;
  for (size_t i = 0; i < numbers.size();) {
    size_t end = i + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
    absl::StrAppend(&text, text.empty() ? "" : ", ", numbers[i]);
    if (end - i > 1) absl::StrAppend(&text, "-", numbers[end - 1]);
    i = end;
  }
  return text;
}

void diff_values(const Json* a, const Json* b, const std::string& path,
                 std::vector<std::string>* lines) {
  std::vector<Leaf> leaves;
  collect(a, b, path, path, &leaves);
  std::vector<bool> done(leaves.size(), false);
  for (size_t i = 0; i < leaves.size(); ++i) {
    if (done[i]) continue;
    const Leaf& first = leaves[i];
    size_t n = 0;
    bool is_same = true;
    for (size_t j = i; j < leaves.size(); ++j) {
      if (leaves[j].group != first.group) continue;
      done[j] = true;
      ++n;
      is_same = is_same && leaves[j].a == first.a && leaves[j].b == first.b;
    }
    std::string line =
        absl::StrCat(n == 1 ? first.path : first.group, ": ", first.a, " -> ", first.b);
    if (n > 1) absl::StrAppend(&line, is_same ? " (" : " and others (", n, " places)");
    lines->push_back(std::move(line));
  }
}

void LayerLines::add(bool is_prefill, int64_t layer, const std::string& line) {
  const auto [it, is_new] = index_.try_emplace(line, places_.size());
  if (is_new) places_.push_back({line, {}});
  std::vector<int64_t>& layers = places_[it->second].layers[is_prefill ? 1 : 0];
  if (layers.empty() || layers.back() != layer) layers.push_back(layer);
}

void LayerLines::print(std::vector<std::string>* lines) const {
  const auto label = [](const std::vector<int64_t>& layers) {
    return absl::StrCat(layers.size() == 1 ? "layer " : "layers ", ranges_text(layers));
  };
  for (const Places& p : places_) {
    if (p.layers[0] == p.layers[1]) {
      lines->push_back(absl::StrCat(label(p.layers[0]), ": ", p.line));
      continue;
    }
    for (const int form : {0, 1}) {
      if (p.layers[form].empty()) continue;
      lines->push_back(
          absl::StrCat(form == 0 ? "decode " : "prefill ", label(p.layers[form]), ": ", p.line));
    }
  }
}

}  // namespace engine
