// Cheap faults first: hash, overlaps of the stored regions; then the same plan made anew.
#include "lib/plan/plan_verify.h"

#include <algorithm>
#include <limits>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/plan/compile.h"
#include "lib/plan/plan_key_read.h"
#include "lib/plan/plan_tree.h"

namespace engine {
namespace {

constexpr size_t kMaxRegions = 4096;  // a plan has about twenty; pairs are compared

absl::Status check_hash(const Json& tree) {
  const Json* hash = find_value(tree, {"hash"});
  if (hash == nullptr || !hash->is_string()) {
    return error(Code::kArgument, "damaged plan: it has no hash");
  }
  const std::string content = tree_hash(tree);
  if (hash->get_ref<const std::string&>() == content) return absl::OkStatus();
  return error(Code::kArgument, absl::StrCat("damaged plan: hash is ", dump_tree(*hash),
                                             ", its content gives ", content));
}

std::optional<int64_t> integer(const Json& region, const char* name) {
  const Json* value = find_value(region, {name});
  if (value == nullptr || !value->is_number_unsigned()) return std::nullopt;
  const auto n = value->get<uint64_t>();
  if (n > uint64_t{std::numeric_limits<int64_t>::max()} / 2) return std::nullopt;
  return static_cast<int64_t>(n);
}

absl::Status check_overlaps(const Json& tree, const char* form) {
  const Json* regions = find_value(tree, {form, "arena", "regions"});
  if (regions == nullptr || !regions->is_array() || regions->size() > kMaxRegions) {
    return error(Code::kArgument, absl::StrCat("damaged plan: ", form, ".arena.regions"));
  }
  struct Span {
    int64_t begin, end, first, last;
  };
  std::vector<Span> spans;
  for (const Json& region : *regions) {
    const auto offset = integer(region, "offset"), bytes = integer(region, "bytes"),
               first = integer(region, "first_step"), last = integer(region, "last_step");
    if (!offset || !bytes || !first || !last) {
      return error(Code::kArgument, absl::StrCat("damaged plan: ", form, ".arena.regions"));
    }
    const Span span{*offset, *offset + *bytes, *first, *last};
    for (size_t s = 0; s < spans.size(); ++s) {
      const Span& other = spans[s];
      if (other.begin < span.end && span.begin < other.end && other.first <= span.last &&
          span.first <= other.last) {
        return error(Code::kPlan, absl::StrCat(form, ".arena.regions[", s, "] and [", spans.size(),
                                               "] share bytes while both live"));
      }
    }
    spans.push_back(span);
  }
  return absl::OkStatus();
}

// Bounded text of a value of a stored plan.
std::string value_text(const Json* value) {
  if (value == nullptr) return "nothing";
  std::string text = dump_tree(*value);
  if (text.size() > 120) text = text.substr(0, 117) + "...";
  return text;
}

struct Difference {
  std::string path;
  const Json* stored;
  const Json* now;
};

std::optional<Difference> first_difference(const Json& stored, const Json& now,
                                           const std::string& path) {
  if (stored.type() != now.type()) return Difference{path, &stored, &now};
  if (now.is_object()) {
    auto a = stored.begin();
    auto b = now.begin();
    while (a != stored.end() || b != now.end()) {
      const bool only_a = b == now.end() || (a != stored.end() && a.key() < b.key());
      const bool only_b = a == stored.end() || (b != now.end() && b.key() < a.key());
      const std::string& key = only_b ? b.key() : a.key();
      const std::string below = path.empty() ? key : absl::StrCat(path, ".", key);
      if (only_a) return Difference{below, &*a, nullptr};
      if (only_b) return Difference{below, nullptr, &*b};
      if (below != "hash" && below != "provenance.time") {
        if (auto found = first_difference(*a, *b, below)) return found;
      }
      ++a;
      ++b;
    }
    return std::nullopt;
  }
  if (now.is_array()) {
    for (size_t i = 0; i < std::min(stored.size(), now.size()); ++i) {
      auto found = first_difference(stored[i], now[i], absl::StrCat(path, "[", i, "]"));
      if (found) return found;
    }
    if (stored.size() == now.size()) return std::nullopt;
    const size_t i = std::min(stored.size(), now.size());
    return Difference{absl::StrCat(path, "[", i, "]"), i < stored.size() ? &stored[i] : nullptr,
                      i < now.size() ? &now[i] : nullptr};
  }
  if (stored == now) return std::nullopt;
  return Difference{path, &stored, &now};
}

}  // namespace

absl::Status verify_plan(std::string_view json, const Model& model, const Program& program,
                         const std::string& engine_version) try {
  ENGINE_ASSIGN_OR_RETURN(const Json stored, parse_plan(json));
  ENGINE_RETURN_IF_ERROR(check_hash(stored));
  for (const char* form : {"decode", "prefill"}) {
    ENGINE_RETURN_IF_ERROR(check_overlaps(stored, form));
  }
  ENGINE_ASSIGN_OR_RETURN(const PlanKey key, read_plan_key(stored, program));
  const auto targets = cpu_targets();
  if (std::find(targets.begin(), targets.end(), key.target) == targets.end()) {
    return error(Code::kPlan, absl::StrCat("dispatch.target: this machine does not run ",
                                           target_name(key.target)));
  }
  ENGINE_ASSIGN_OR_RETURN(const auto plan, compile(program, key));
  const Json* full_hash = find_value(stored, {"model", "file_hash_full"});
  const bool has_full_hash = full_hash != nullptr && full_hash->is_string();
  const PlanModelFacts facts = plan_model_facts(model, model.file.bytes(), has_full_hash);
  const PlanStamp stamp{engine_version, 0};
  ENGINE_ASSIGN_OR_RETURN(const Json now, plan_tree(program, *plan, facts, stamp));
  const auto difference = first_difference(stored, now, "");
  if (!difference) return absl::OkStatus();
  return error(Code::kPlan,
               absl::StrCat("the plan differs at ", difference->path, ": stored ",
                            value_text(difference->stored), ", now ", value_text(difference->now)));
} catch (const std::bad_alloc&) {
  return error(Code::kMemory, "out of memory while verifying a plan");
} catch (const std::exception&) {
  return error(Code::kArgument, "damaged plan: it cannot be read");
}

}  // namespace engine
