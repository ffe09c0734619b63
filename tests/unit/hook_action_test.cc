// Declared actions against the same computation in double, with bounds from the number of roundings.
#include "lib/session/hook_action.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "catch2/catch_test_macros.hpp"
#include "tests/unit/hook_kit.h"

namespace engine {
namespace {

constexpr double kHalfUlp = 0x1p-24;  // relative error of one f32 rounding

using Row = std::vector<float>;
using Parts = std::vector<RowPart>;

struct Prepared {
  RowAction action;
  Parts parts;
  int64_t width = 0;
  Row operator()(Row x, int64_t position = 0, int32_t layer = 0) const {
    Row scratch(static_cast<size_t>(action.rank) + 1);
    apply_action(action, parts, width, position, layer, x.data(), scratch.data());
    return x;
  }
};

absl::StatusOr<RowAction> try_make(HookSpec spec, int64_t width, const Parts& parts = {}) {
  const Parts whole = {{0, width}};
  return RowAction::create(&spec, width, parts.empty() ? whole : parts, {Site::kResidPost, {0, 1}},
                           PositionSelector(), 100);
}

Prepared make(const HookSpec& spec, int64_t width, const Parts& parts = {}) {
  auto action = try_make(spec, width, parts);
  INFO(action.status().message());
  REQUIRE(action.ok());
  return {std::move(*action), parts.empty() ? Parts{{0, width}} : parts, width};
}

HookSpec with_values(HookAction action, Row values, float alpha = 1.0f) {
  HookSpec spec = hook_spec(action, "resid_post");
  spec.values = std::move(values);
  spec.alpha = alpha;
  return spec;
}

bool inside(const Parts& parts, size_t i) {
  return std::any_of(parts.begin(), parts.end(), [&](RowPart p) {
    return static_cast<int64_t>(i) >= p.begin && static_cast<int64_t>(i) < p.end;
  });
}

// Widths around the lane count, and parts that begin and end anywhere.
struct Shape {
  int64_t width;
  Parts parts;
};
std::vector<Shape> shapes() {
  return {{1, {{0, 1}}},
          {15, {{0, 15}}},
          {16, {{0, 16}}},
          {67, {{0, 67}}},
          {64, {{16, 32}, {48, 64}}},
          {60, {{5, 10}, {20, 55}}},
          {40, {{17, 18}}}};
}

double dot(const Row& a, const Row& b, const Parts& parts) {
  double sum = 0.0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (inside(parts, i)) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  }
  return sum;
}
double dot_size(const Row& a, const Row& b, const Parts& parts) {
  double sum = 0.0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (inside(parts, i)) sum += std::fabs(static_cast<double>(a[i]) * static_cast<double>(b[i]));
  }
  return sum;
}
// Roundings that a term of a dot passes: its product, the additions of its lane, four of the tree.
double dot_roundings(int64_t width) { return 1.0 + static_cast<double>(width / 16 + 1) + 4.0; }

// expected(i) and bound(i) for chosen elements; others must stay.
template <class Expected, class Bound>
void check_row(const Row& before, const Row& after, const Parts& parts, Expected&& expected,
               Bound&& bound) {
  for (size_t i = 0; i < before.size(); ++i) {
    INFO("element " << i);
    if (!inside(parts, i)) {
      REQUIRE(after[i] == before[i]);
      continue;
    }
    REQUIRE(std::fabs(static_cast<double>(after[i]) - expected(i)) <= bound(i));
  }
}

TEST_CASE("lane_dot: bound, exact values, and lanes by the element's place in the row") {
  for (const Shape& shape : shapes()) {
    const Row a = noise_row(1, shape.width), b = noise_row(2, shape.width);
    const double error = std::fabs(static_cast<double>(lane_dot(a.data(), b.data(), shape.parts)) -
                                   dot(a, b, shape.parts));
    CHECK(error <= dot_roundings(shape.width) * kHalfUlp * dot_size(a, b, shape.parts));
  }
  // 2^24 + 1 + 1: one lane loses both ones, two lanes keep their sum.
  Row x(33, 0.0f), ones(33, 1.0f);
  const Parts whole = {{0, 33}};
  x[0] = 0x1p24f, x[16] = 1.0f, x[32] = 1.0f;
  CHECK(lane_dot(x.data(), ones.data(), whole) == 0x1p24f);
  x[16] = 0.0f, x[31] = 1.0f, x[32] = 0.0f, x[15] = 1.0f;
  CHECK(lane_dot(x.data(), ones.data(), whole) == 0x1p24f + 2.0f);
  // The same numbers in parts of the row keep their lanes.
  const Parts cut = {{0, 1}, {15, 16}, {31, 32}};
  CHECK(lane_dot(x.data(), ones.data(), cut) == 0x1p24f + 2.0f);
  // Tree order: lane 0 gets lane 8 first, then 4, 2, 1.
  Row tree(16, 0.0f);
  tree[0] = 0x1p24f, tree[8] = 1.0f, tree[4] = 1.0f;
  CHECK(lane_dot(tree.data(), ones.data(), Parts{{0, 16}}) == 0x1p24f);
  tree[4] = 0.0f, tree[12] = 0.0f, tree[1] = 1.0f, tree[9] = 1.0f, tree[8] = 0.0f;
  CHECK(lane_dot(tree.data(), ones.data(), Parts{{0, 16}}) == 0x1p24f + 2.0f);
}

TEST_CASE("add, scale, set, zero, interpolate, clamp on whole rows and parts") {
  for (const Shape& shape : shapes()) {
    const int64_t w = shape.width;
    const Parts& parts = shape.parts;
    const Row x = noise_row(1, w), v = noise_row(2, w);
    const auto xd = [&](size_t i) { return static_cast<double>(x[i]); };
    const auto vd = [&](size_t i) { return static_cast<double>(v[i]); };
    const auto exact = [](size_t) { return 0.0; };
    const float alpha = -0.37f;
    const auto ad = static_cast<double>(alpha);

    const Row added = make(with_values(HookAction::kAdd, v, alpha), w, parts)(x);
    check_row(
        x, added, parts, [&](size_t i) { return xd(i) + ad * vd(i); },
        [&](size_t i) {
          return kHalfUlp * 1.01 * (std::fabs(ad * vd(i)) + std::fabs(xd(i) + ad * vd(i)));
        });
    // Two roundings, not one: the product first.
    for (size_t i = 0; i < x.size(); ++i) {
      if (inside(parts, i)) {
        volatile float product = alpha * v[i];
        REQUIRE(added[i] == x[i] + product);
      }
    }
    HookSpec scale = hook_spec(HookAction::kScale, "resid_post");
    scale.alpha = alpha;
    check_row(
        x, make(scale, w, parts)(x), parts, [&](size_t i) { return xd(i) * ad; },
        [&](size_t i) { return kHalfUlp * std::fabs(xd(i) * ad); });
    check_row(x, make(with_values(HookAction::kSet, v), w, parts)(x), parts, vd, exact);
    check_row(
        x, make(hook_spec(HookAction::kZero, "resid_post"), w, parts)(x), parts,
        [](size_t) { return 0.0; }, exact);
    check_row(
        x, make(with_values(HookAction::kInterpolate, v, alpha), w, parts)(x), parts,
        [&](size_t i) { return xd(i) + ad * (vd(i) - xd(i)); },
        [&](size_t i) {
          const double step = std::fabs(ad * (vd(i) - xd(i)));
          return kHalfUlp * 1.01 * (2.0 * step + std::fabs(xd(i)) + step);
        });
    const Row mixed = make(with_values(HookAction::kInterpolate, v, alpha), w, parts)(x);
    for (size_t i = 0; i < x.size(); ++i) {
      if (inside(parts, i)) {
        volatile float product = alpha * (v[i] - x[i]);
        REQUIRE(mixed[i] == x[i] + product);
      }
    }
    HookSpec clamp = hook_spec(HookAction::kClamp, "resid_post");
    clamp.low = -0.25f;
    clamp.high = 0.5f;
    check_row(
        x, make(clamp, w, parts)(x), parts,
        [&](size_t i) { return std::min(std::max(xd(i), -0.25), 0.5); }, exact);
  }
  // Exact cases.
  const Row x = {1.0f, -2.0f, 0.0f, 3.0f};
  CHECK(make(with_values(HookAction::kAdd, {1, 2, 3, 4}, 0.5f), 4)(x) == Row{1.5f, -1, 1.5f, 5});
  CHECK(make(with_values(HookAction::kInterpolate, {5, 2, 8, 3}, 0.25f), 4)(x) == Row{2, -1, 2, 3});
  CHECK(make(with_values(HookAction::kInterpolate, {5, 2, 8, 3}, 0.0f), 4)(x) == x);
  HookSpec clamp = hook_spec(HookAction::kClamp, "resid_post");
  clamp.low = clamp.high = 1.0f;
  CHECK(make(clamp, 4)(x) == Row{1, 1, 1, 1});
  clamp.low = -INFINITY;
  CHECK(make(clamp, 4)({INFINITY, -INFINITY, 0, 2}) == Row{1, -INFINITY, 0, 1});
  CHECK(std::isnan(make(clamp, 4)({NAN, 0, 0, 0})[0]));
  CHECK_FALSE(std::signbit(make(hook_spec(HookAction::kZero, "q"), 4)({-0.0f, -1, 1, 2})[0]));
}

TEST_CASE("project-out takes away the direction") {
  for (const Shape& shape : shapes()) {
    const int64_t w = shape.width;
    const Row x = noise_row(1, w), v = noise_row(2, w);
    const float alpha = 0.8f;
    const double c = static_cast<double>(alpha) * dot(x, v, shape.parts) / dot(v, v, shape.parts);
    const double dots = (dot_roundings(w) + 2.0) * kHalfUlp *
                        (dot_size(x, v, shape.parts) / dot(v, v, shape.parts) + std::fabs(c));
    check_row(
        x, make(with_values(HookAction::kProjectOut, v, alpha), w, shape.parts)(x), shape.parts,
        [&](size_t i) { return static_cast<double>(x[i]) - c * static_cast<double>(v[i]); },
        [&](size_t i) {
          const double term = std::fabs(static_cast<double>(v[i]));
          return 1.01 * (dots * term + kHalfUlp * (2.0 * std::fabs(c) * term +
                                                   std::fabs(static_cast<double>(x[i]))));
        });
    // Product and difference are rounded apart.
    const Row out = make(with_values(HookAction::kProjectOut, v, alpha), w, shape.parts)(x);
    const float factor = (alpha * lane_dot(x.data(), v.data(), shape.parts)) /
                         lane_dot(v.data(), v.data(), shape.parts);
    for (size_t i = 0; i < x.size(); ++i) {
      if (inside(shape.parts, i)) {
        volatile float product = factor * v[i];
        REQUIRE(out[i] == x[i] - product);
      }
    }
    // x = v is gone without a rest.
    const Row gone = make(with_values(HookAction::kProjectOut, v), w, shape.parts)(v);
    check_row(
        v, gone, shape.parts, [](size_t) { return 0.0; }, [](size_t) { return 0.0; });
  }
  // The direction outside the parts does not count: (1,1,.) . (1,0,9) with part 0 .. 1.
  CHECK(make(with_values(HookAction::kProjectOut, {1, 0, 9}), 3, {{0, 2}})({1, 1, 1}) ==
        Row{0, 1, 1});
}

TEST_CASE("low rank: A (B x) by rows and columns as documented") {
  // A [2][1], B [1][2]: x + 2 * A * (B . x).
  HookSpec tiny = with_values(HookAction::kLowRank, {1, 10, 3, 5}, 2.0f);
  tiny.rank = 1;
  CHECK(make(tiny, 2)({1, 1}) == Row{17, 161});
  // A = [[1, 2], [3, 4]], B = [[1, 0], [0, 10]]: not symmetric, so that a transposed one is seen.
  HookSpec two = with_values(HookAction::kLowRank, {1, 2, 3, 4, 1, 0, 0, 10});
  two.rank = 2;
  CHECK(make(two, 2)({1, 1}) == Row{22, 44});
  for (const Shape& shape : shapes()) {
    for (const int64_t rank : {1, 3}) {
      const int64_t w = shape.width;
      const Row x = noise_row(1, w);
      HookSpec spec = with_values(HookAction::kLowRank, noise_row(9, 2 * w * rank), 0.6f);
      spec.rank = rank;
      const Row values = spec.values;
      const auto b_row = [&](int64_t r) {
        const auto begin = values.begin() + rank * w + r * w;
        return Row(begin, begin + w);
      };
      const auto a = [&](size_t i, int64_t r) {
        return static_cast<double>(values[i * static_cast<size_t>(rank) + static_cast<size_t>(r)]);
      };
      check_row(
          x, make(spec, w, shape.parts)(x), shape.parts,
          [&](size_t i) {
            double sum = static_cast<double>(x[i]);
            for (int64_t r = 0; r < rank; ++r) {
              sum += a(i, r) * static_cast<double>(0.6f) * dot(b_row(r), x, shape.parts);
            }
            return sum;
          },
          [&](size_t i) {
            double terms = 0.0;
            for (int64_t r = 0; r < rank; ++r) {
              terms += std::fabs(a(i, r)) * 0.6 * dot_size(b_row(r), x, shape.parts);
            }
            return 1.01 * kHalfUlp *
                   ((dot_roundings(w) + 3.0 + static_cast<double>(rank)) * terms +
                    std::fabs(static_cast<double>(x[i])));
          });
    }
  }
}

TEST_CASE("replace finds rows by position and layer") {
  HookSpec spec = hook_spec(HookAction::kReplace, "resid_post");
  spec.records = {{7, 0, 0, 0, 1}, {3, 0, 0, 0, -1}, {7, 0, 0, 0, -1}, {5, 0, 0, 0, 0}};
  spec.values = {1, 1, 2, 2, 3, 3, 4, 4};
  const Prepared replace = make(spec, 2);
  const Row x = {9, 9};
  CHECK(replace(x, 3, 0) == Row{2, 2});
  CHECK(replace(x, 3, 1) == Row{2, 2});
  CHECK(replace(x, 7, 1) == Row{1, 1});
  CHECK(replace(x, 7, 0) == Row{3, 3});
  CHECK(replace(x, 5, 0) == Row{4, 4});
  CHECK(replace(x, 5, 1) == x);
  CHECK(replace(x, 4, 0) == x);
  float row[2] = {9, 9};
  CHECK_FALSE(apply_action(replace.action, replace.parts, 2, 4, 0, row, nullptr));
  CHECK(apply_action(replace.action, replace.parts, 2, 5, 0, row, nullptr));
  CHECK(make(spec, 2, {{1, 2}})(x, 3, 0) == Row{9, 2});

  spec.records[2].layer = 1;
  CHECK(try_make(spec, 2).status().message().find("same position and layer") != std::string::npos);
  spec.records = {{7, 0, 0, 0, 2}};
  spec.values = {1, 1};
  CHECK(try_make(spec, 2).status().message().find("no record") != std::string::npos);
  spec.records = {{100, 0, 0, 0, 0}};
  CHECK(try_make(spec, 2).status().message().find("position 100") != std::string::npos);
}

TEST_CASE("values, ranks and ranges that do not fit are refused") {
  const auto message = [](const HookSpec& spec, const Parts& parts = {}) {
    const absl::Status status = try_make(spec, 4, parts).status();
    CHECK(code_of(status) == Code::kArgument);
    return std::string(status.message());
  };
  CHECK(message(with_values(HookAction::kAdd, {1, 2, 3})).find("3 values were given, 4") !=
        std::string::npos);
  CHECK(message(with_values(HookAction::kSet, {})).find("0 values") != std::string::npos);
  CHECK(message(with_values(HookAction::kZero, {1})).find("1 values") != std::string::npos);
  CHECK(message(with_values(HookAction::kProjectOut, {0, 0, 0, 0})).find("v . v") !=
        std::string::npos);
  CHECK(message(with_values(HookAction::kProjectOut, {0, 0, 1, 1}), {{0, 2}}).find("v . v") !=
        std::string::npos);
  CHECK(message(with_values(HookAction::kProjectOut, {NAN, 0, 0, 0})).find("v . v") !=
        std::string::npos);
  HookSpec low_rank = with_values(HookAction::kLowRank, Row(8, 1.0f));
  CHECK(message(low_rank).find("rank must be positive") != std::string::npos);
  low_rank.rank = 2;
  CHECK(message(low_rank).find("16 are needed") != std::string::npos);
  low_rank.rank = std::numeric_limits<uint32_t>::max();
  CHECK(message(low_rank).find("are needed") != std::string::npos);
  HookSpec add = with_values(HookAction::kAdd, Row(4, 1.0f));
  add.rank = 1;
  CHECK(message(add).find("rank belongs") != std::string::npos);
  add.rank = 0;
  add.records = {{0, 0, 0, 0, 0}};
  CHECK(message(add).find("records belong") != std::string::npos);
  CHECK(message(hook_spec(HookAction::kReplace, "q")).find("needs records") != std::string::npos);
  HookSpec clamp = hook_spec(HookAction::kClamp, "q");
  clamp.low = 1.0f;
  clamp.high = 0.5f;
  CHECK(message(clamp).find("low must not") != std::string::npos);
  clamp.low = NAN;
  CHECK(message(clamp).find("low must not") != std::string::npos);
}

}  // namespace
}  // namespace engine
