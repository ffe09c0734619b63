// Reads stored plans, which may be anything.
#include <new>
#include <string>

#include "absl/strings/str_cat.h"
#include "lib/plan/plan_tree.h"

namespace engine {
namespace {

constexpr int kMaxDepth = 16;  // a plan has 10; trees are walked recursively

// Whether brackets outside of strings ever nest deeper.
bool is_too_deep(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      if (++depth > kMaxDepth) return true;
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return false;
}

}  // namespace

absl::StatusOr<Json> parse_plan(std::string_view text) try {
  if (is_too_deep(text)) return error(Code::kArgument, "no plan: the text is nested too deeply");
  Json tree = Json::parse(text.begin(), text.end(), nullptr, false);
  if (tree.is_discarded()) return error(Code::kArgument, "no plan: the text is not JSON");
  if (!tree.is_object()) return error(Code::kArgument, "no plan: the JSON is no object");
  const auto schema = tree.find("schema");
  if (schema == tree.end() || !schema->is_string()) {
    return error(Code::kArgument, "no plan: it has no schema");
  }
  const auto& name = schema->get_ref<const std::string&>();
  if (name == kPlanSchema) return tree;
  if (name.starts_with("engine.plan/")) {
    return error(Code::kTooNew, absl::StrCat("the plan has another schema than ", kPlanSchema));
  }
  return error(Code::kArgument, "no plan: it has another schema");
} catch (const std::bad_alloc&) {
  return error(Code::kMemory, "out of memory while reading a plan");
} catch (const std::exception&) {
  return error(Code::kArgument, "no plan: the text cannot be read");
}

}  // namespace engine
