// resolve_kernel: filter, cost, table order, reasons, errors; and the names and coverage of the
// table.
#include <catch2/catch_test_macros.hpp>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "lib/contract/kernel.h"
#include "lib/quant/pack.h"

namespace engine {
namespace {

constexpr Target kAllTargets[] = {Target::kScalar, Target::kNeon,    Target::kAvx2, Target::kAvx3,
                                  Target::kAvx3Dl, Target::kAvx3Spr, Target::kAmx};

// Every key that a model can need.
std::vector<KernelKey> needed_keys() {
  std::vector<KernelKey> keys;
  for (const Op op : {Op::kRmsNorm, Op::kAdd, Op::kRopeAngles, Op::kRope, Op::kGatedAct,
                      Op::kSoftcap, Op::kCheckFinite, Op::kMoeRoute}) {
    keys.push_back({.op = op});
  }
  for (const Op op : {Op::kKvStore, Op::kAttention, Op::kShortConv}) {
    for (const KvType kv : {KvType::kF16, KvType::kF32}) keys.push_back({.op = op, .kv = kv});
  }
  for (const ActType act : {ActType::kQ8x32, ActType::kQ8x256}) {
    keys.push_back({.op = Op::kQuantize, .act = act});
  }
  for (uint32_t type = 0; type < 64; ++type) {
    const FormatInfo* info = format_info(type);
    if (info == nullptr || !info->executable) continue;
    keys.push_back({.op = Op::kEmbed, .format = info->format, .layout = Layout::kStored});
    keys.push_back(
        {.op = Op::kMatmul, .format = info->format, .layout = Layout::kStored, .act = info->act});
  }
  return keys;
}

bool is_scalar(const KernelRow* row) { return std::string_view(row->name).ends_with("_scalar"); }

}  // namespace

TEST_CASE("every key that a model needs resolves on every target") {
  CHECK(needed_keys().size() == 8 + 6 + 2 + 2 * 18);
  for (const KernelKey& key : needed_keys()) {
    for (const Target target : kAllTargets) {
      CAPTURE(op_name(key.op), target_name(target));
      const auto resolved = resolve_kernel(key, target);
      REQUIRE(resolved.ok());
      REQUIRE(resolved->row != nullptr);
      CHECK(resolved->entry == resolved->row->entry(target));
      CHECK(resolved->entry != nullptr);
      CHECK(resolved->row == &kernel_rows()[static_cast<size_t>(resolved->row_index)]);
      CHECK(resolved->row->key.op == key.op);
      CHECK_FALSE(resolved->reason.empty());
      if (target == Target::kScalar) {
        CHECK(is_scalar(resolved->row));
        CHECK(resolved->runner_up == nullptr);
      }
    }
  }
}

TEST_CASE("a vector row is chosen where this machine runs one, the scalar row is the runner-up") {
  for (const Target target : cpu_targets()) {
    if (target == Target::kScalar) continue;
    for (const KernelKey& key : needed_keys()) {
      const bool scalar_only = key.op == Op::kRopeAngles || key.op == Op::kEmbed ||
                               key.op == Op::kMoeRoute || key.op == Op::kShortConv;
      if (scalar_only) continue;
      CAPTURE(op_name(key.op), target_name(target));
      const auto resolved = resolve_kernel(key, target);
      REQUIRE(resolved.ok());
      CHECK_FALSE(is_scalar(resolved->row));
      REQUIRE(resolved->runner_up != nullptr);
      CHECK(resolved->row->cost < resolved->runner_up->cost);
      CHECK(resolved->reason.find("least cost") != std::string::npos);
      CHECK(resolved->reason.find(op_name(key.op)) != std::string::npos);
      CHECK(resolved->reason.find(target_name(target)) != std::string::npos);
    }
  }
}

TEST_CASE("a key that no row serves is refused by name") {
  const auto refused = [](KernelKey key) {
    const auto resolved = resolve_kernel(key, Target::kScalar);
    REQUIRE_FALSE(resolved.ok());
    CHECK(code_of(resolved.status()) == Code::kPlan);
    return std::string(resolved.status().message());
  };
  // Q4_K dots need blocks of 256.
  const std::string matmul = refused({.op = Op::kMatmul,
                                      .format = Format::kQ4_K,
                                      .layout = Layout::kStored,
                                      .act = ActType::kQ8x32});
  CHECK(matmul == "no kernel for matmul of Q4_K by q8x32 on target scalar");
  CHECK(refused({.op = Op::kEmbed, .format = Format::kF32, .layout = Layout::kNone}) ==
        "no kernel for embed of F32 on target scalar");
  CHECK(refused({.op = Op::kQuantize, .act = ActType::kF32}) ==
        "no kernel for quantize to f32 on target scalar");
  CHECK(refused({.op = Op::kAttention, .kv = static_cast<KvType>(7)}).find("attention") !=
        std::string::npos);
  CHECK(refused({.op = Op::kMatmul, .format = static_cast<Format>(999)}).find("type 999") !=
        std::string::npos);
}

TEST_CASE("row names are unique and say op, backend and variant") {
  std::set<std::string> seen;
  const std::regex pattern("[a-z0-9_]+__cpu_[a-z0-9_]+");
  for (const KernelRow& row : kernel_rows()) {
    const std::string name = row.name;
    CAPTURE(name);
    CHECK(seen.insert(name).second);
    CHECK(std::regex_match(name, pattern));
    CHECK(name.starts_with(op_name(row.key.op)));
    CHECK(row.cost > 0.0f);
    for (const Target target : kAllTargets) {
      if (is_scalar(&row)) CHECK(row.entry(target) != nullptr);
    }
    if (!is_scalar(&row)) CHECK(row.entry(Target::kScalar) == nullptr);
  }
}

TEST_CASE("this machine's targets end with scalar and are distinct") {
  const auto targets = cpu_targets();
  REQUIRE_FALSE(targets.empty());
  CHECK(targets.back() == Target::kScalar);
  CHECK(std::set<Target>(targets.begin(), targets.end()).size() == targets.size());
}

TEST_CASE("ops and targets have names") {
  std::set<std::string_view> names;
  for (int op = 0; op < kNumOps; ++op) names.insert(op_name(static_cast<Op>(op)));
  for (int target = 0; target < kNumTargets; ++target) {
    names.insert(target_name(static_cast<Target>(target)));
  }
  CHECK(names.size() == static_cast<size_t>(kNumOps + kNumTargets));
  CHECK(names.count("unknown") == 0);
}

TEST_CASE("packed weights run on tiles where the target has them") {
  int formats = 0;
  for (uint32_t type = 0; type < 64; ++type) {
    const FormatInfo* info = format_info(type);
    if (info == nullptr || !can_pack(info->format)) continue;
    ++formats;
    INFO(info->name);
    const KernelKey key = {
        .op = Op::kMatmul, .format = info->format, .layout = Layout::kAny, .act = info->act};
    const auto amx = resolve_kernel(key, Target::kAmx);
    const auto spr = resolve_kernel(key, Target::kAvx3Spr);
    REQUIRE(amx.ok());
    REQUIRE(spr.ok());
    // A build of one target has no such rows.
    const bool compiled = amx->row->entry(Target::kAmx) != spr->entry;
    CHECK(std::string_view(amx->row->name).ends_with("__cpu_rows16_amx") == compiled);
    CHECK_FALSE(std::string_view(spr->row->name).ends_with("_amx"));
  }
  CHECK(formats == 13);
}

}  // namespace engine
