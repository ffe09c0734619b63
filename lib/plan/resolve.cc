// Picks the kernel row of a key: filter, least cost, table order.
#include <charconv>
#include <cstddef>
#include <initializer_list>

#include "lib/contract/kernel.h"
#include "lib/contract/plan.h"

namespace engine {
namespace {

std::string join(std::initializer_list<std::string_view> parts) {
  std::string text;
  for (const std::string_view part : parts) text.append(part);
  return text;
}

std::string cost_text(float cost) {
  char text[32];
  const std::to_chars_result end = std::to_chars(text, text + sizeof(text), cost);
  return std::string(text, end.ptr);
}

std::string_view act_name(ActType act) {
  switch (act) {
    case ActType::kF32: return "f32";
    case ActType::kQ8x32: return "q8x32";
    case ActType::kQ8x256: return "q8x256";
  }
  return "unknown";
}

std::string format_name(Format format) {
  const FormatInfo* info = format_info(format);
  return info != nullptr ? std::string(info->name)
                         : "type " + std::to_string(static_cast<uint32_t>(format));
}

// Only the fields that the op has.
std::string describe(const KernelKey& key) {
  const std::string_view op = op_name(key.op);
  switch (key.op) {
    case Op::kEmbed: return join({op, " of ", format_name(key.format)});
    case Op::kMatmul: return join({op, " of ", format_name(key.format), " by ", act_name(key.act)});
    case Op::kQuantize: return join({op, " to ", act_name(key.act)});
    case Op::kKvStore:
    case Op::kShortConv:
    case Op::kAttention: return join({op, " with ", kv_type_name(key.kv), " KV"});
    default: return std::string(op);
  }
}

bool fits(const KernelKey& row, const KernelKey& key) {
  if (row.op != key.op) return false;
  switch (key.op) {
    case Op::kEmbed: return row.format == key.format && row.layout == key.layout;
    case Op::kMatmul:
      return row.format == key.format && row.act == key.act &&
             (key.layout == Layout::kAny || row.layout == key.layout);
    case Op::kQuantize: return row.act == key.act;
    case Op::kKvStore:
    case Op::kShortConv:
    case Op::kAttention: return row.kv == key.kv;
    default: return true;
  }
}

// Glob with * only; the usual linear match that goes back to the last star.
bool matches(std::string_view pattern, std::string_view name) {
  size_t p = 0, n = 0, star = std::string_view::npos, mark = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      mark = n;
    } else if (p < pattern.size() && pattern[p] == name[n]) {
      ++p;
      ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++mark;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

}  // namespace

absl::StatusOr<Resolved> resolve_kernel(const KernelKey& key, Target target,
                                        std::string_view pattern) {
  const std::span<const KernelRow> rows = kernel_rows();
  Resolved best;
  if (!pattern.empty()) {
    for (const KernelRow& row : rows) {
      best.forced = best.forced || (fits(row.key, key) && row.entry(target) != nullptr &&
                                    matches(pattern, row.name));
    }
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    const KernelRow& row = rows[i];
    if (!fits(row.key, key)) continue;
    const KernelEntry entry = row.entry(target);
    if (entry == nullptr || (best.forced && !matches(pattern, row.name))) continue;
    if (best.row == nullptr || row.cost < best.row->cost) {
      best.runner_up = best.row;
      best.row = &row;
      best.row_index = static_cast<int32_t>(i);
      best.entry = entry;
    } else if (best.runner_up == nullptr || row.cost < best.runner_up->cost) {
      best.runner_up = &row;
    }
  }
  const std::string wanted = join({describe(key), " on target ", target_name(target)});
  if (best.row == nullptr) return error(Code::kPlan, join({"no kernel for ", wanted}));
  if (best.forced) {
    best.reason = join({"forced by pattern ", pattern, " for ", wanted});
  } else if (best.runner_up == nullptr) {
    best.reason = join({"the only row for ", wanted});
  } else if (best.row->cost < best.runner_up->cost) {
    best.reason = join({"least cost for ", wanted, ": ", cost_text(best.row->cost), " against ",
                        cost_text(best.runner_up->cost)});
  } else {
    best.reason =
        join({"first of equal cost in the table for ", wanted, ": ", cost_text(best.row->cost)});
  }
  return best;
}

}  // namespace engine
