// Every field is checked for its type and range: the text may come from anywhere.
#include "lib/plan/plan_key_read.h"

#include <limits>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"

namespace engine {
namespace {

absl::Status bad(std::string_view where) {
  return error(Code::kArgument, absl::StrCat("damaged plan: ", where, " is missing or impossible"));
}

// 1 .. 2^32 - 1, the range of the session's parameters.
absl::StatusOr<int64_t> count_at(const Json& tree, const char* name) {
  const Json* value = find_value(tree, {"provenance", "limits", name});
  if (value == nullptr || !value->is_number_unsigned()) {
    return bad(absl::StrCat("provenance.limits.", name));
  }
  const auto n = value->get<uint64_t>();
  if (n < 1 || n > std::numeric_limits<uint32_t>::max()) {
    return bad(absl::StrCat("provenance.limits.", name));
  }
  return static_cast<int64_t>(n);
}

std::string_view text_of(const Json* value) {
  return value != nullptr && value->is_string()
             ? std::string_view(value->get_ref<const std::string&>())
             : std::string_view();
}

// The enumerator below n whose name it is.
template <class E, class NameFn>
std::optional<E> by_name(std::string_view text, int begin, int end, NameFn name) {
  for (int i = begin; i < end; ++i) {
    if (name(static_cast<E>(i)) == text) return static_cast<E>(i);
  }
  return std::nullopt;
}

absl::Status read_fusions(const Json& tree, PlanKey* key) {
  const Json* names = find_value(tree, {"provenance", "limits", "fusions"});
  if (names == nullptr || !names->is_array()) return bad("provenance.limits.fusions");
  key->fusions = 0;
  for (const Json& name : *names) {
    uint32_t bit = 0;
    for (int f = 0; f < kNumFusions; ++f) {
      if (text_of(&name) == absl::StrCat("F", f + 1)) bit = 1u << f;
    }
    if (bit == 0) return bad("provenance.limits.fusions");
    key->fusions |= bit;
  }
  return absl::OkStatus();
}

absl::Status read_hooks(const Json& tree, const Program& program, PlanKey* key) {
  const Json* hooks = find_value(tree, {"hooks"});
  if (hooks == nullptr || !hooks->is_array()) return bad("hooks");
  for (const Json& hook : *hooks) {
    const SiteInfo* site = find_site(text_of(find_value(hook, {"site"})));
    const Json* layers = find_value(hook, {"layers"});
    if (site == nullptr || layers == nullptr || !layers->is_array()) return bad("hooks");
    for (const Json& layer : *layers) {
      if (!layer.is_number_integer()) return bad("hooks.layers");
      const auto l = layer.get<int64_t>();
      if (!site->per_layer && l == -1) {
        key->global_sites |= site_bit(site->site);
        continue;
      }
      if (!site->per_layer || l < 0 || l >= static_cast<int64_t>(program.layers.size())) {
        return bad("hooks.layers");
      }
      key->layer_sites.resize(program.layers.size(), 0);
      key->layer_sites[static_cast<size_t>(l)] |= site_bit(site->site);
    }
  }
  return absl::OkStatus();
}

}  // namespace

const Json* find_value(const Json& tree, std::initializer_list<const char*> path) {
  const Json* value = &tree;
  for (const char* name : path) {
    if (!value->is_object()) return nullptr;
    const auto it = value->find(name);
    if (it == value->end()) return nullptr;
    value = &*it;
  }
  return value;
}

absl::StatusOr<PlanKey> read_plan_key(const Json& tree, const Program& program) {
  PlanKey key;
  ENGINE_ASSIGN_OR_RETURN(key.n_ctx, count_at(tree, "n_ctx"));
  ENGINE_ASSIGN_OR_RETURN(key.prefill_chunk, count_at(tree, "prefill_chunk"));
  ENGINE_ASSIGN_OR_RETURN(const int64_t n_threads, count_at(tree, "n_threads"));
  key.n_threads = static_cast<uint32_t>(n_threads);
  const auto mode =
      by_name<Mode>(text_of(find_value(tree, {"provenance", "mode"})), 1, 4, mode_name);
  if (!mode) return bad("provenance.mode");
  key.mode = *mode;
  const auto target = by_name<Target>(text_of(find_value(tree, {"dispatch", "target"})), 0,
                                      kNumTargets, target_name);
  if (!target) return bad("dispatch.target");
  key.target = *target;
  const auto kv = by_name<KvType>(text_of(find_value(tree, {"kv", "type"})), 0, 3, kv_type_name);
  if (!kv) return bad("kv.type");
  key.kv = *kv;
  const Json* packed = find_value(tree, {"provenance", "limits", "packed_weights"});
  if (packed == nullptr || !packed->is_boolean()) return bad("provenance.limits.packed_weights");
  key.packed = packed->get<bool>();
  const Json* pattern = find_value(tree, {"provenance", "limits", "kernel_pattern"});
  if (pattern == nullptr || !pattern->is_string()) return bad("provenance.limits.kernel_pattern");
  key.kernel_pattern = text_of(pattern);
  ENGINE_RETURN_IF_ERROR(read_fusions(tree, &key));
  ENGINE_RETURN_IF_ERROR(read_hooks(tree, program, &key));
  return key;
}

}  // namespace engine
