// Gate A of exp, tanh, silu and gelu_tanh: scalar and vector versions agree in every bit over all
// floats, on every target; a pinned hash makes other machines (AArch64) answer to the same bits.
// clang-format off: the order matters, foreach_target.h includes this file once per target
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/kernels/math_identity_test.cc"
#include "backends/cpu/hwy_targets.h"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
// clang-format on

#include "backends/cpu/lane_tree-inl.h"
#include "backends/cpu/math-inl.h"
#include "backends/cpu/math_scalar.h"
#include "tests/kernels/pointwise_data.h"

#ifndef ENGINE_TESTS_KERNELS_MATH_IDENTITY_ONCE_
#define ENGINE_TESTS_KERNELS_MATH_IDENTITY_ONCE_
namespace engine::test {
struct MathArgs {
  int function;  // 0 exp, 1 tanh, 2 silu, 3 gelu_tanh
  const float* x;
  int64_t count;  // a multiple of 16
  float* out;
};
struct TreeArgs {
  const float* lanes;  // [16]
  float* sum;
};
}  // namespace engine::test
#endif

#if ENGINE_HWY_FMA_TARGET
HWY_BEFORE_NAMESPACE();
namespace engine::HWY_NAMESPACE {

void evaluate(const void* raw_args) {
  const test::MathArgs& args = *static_cast<const test::MathArgs*>(raw_args);
  const DF d;
  for (int64_t i = 0; i < args.count; i += kLanesF) {
    const VF x = hn::LoadU(d, args.x + i);
    const VF y = args.function == 0   ? exp_v(d, x)
                 : args.function == 1 ? tanh_v(d, x)
                 : args.function == 2 ? silu_v(d, x)
                                      : gelu_tanh_v(d, x);
    hn::StoreU(y, d, args.out + i);
  }
}

void tree(const void* raw_args) {
  const test::TreeArgs& args = *static_cast<const test::TreeArgs*>(raw_args);
  VF v[kTreeVectors];
  for (size_t i = 0; i < kTreeVectors; ++i) v[i] = hn::LoadU(DF(), args.lanes + i * kLanesF);
  *args.sum = lane_tree_sum_v(v);
}

}  // namespace engine::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // ENGINE_HWY_FMA_TARGET

#if HWY_ONCE
namespace engine::test {
namespace {

ENGINE_HWY_ENTRY(evaluate_entry, evaluate)
ENGINE_HWY_ENTRY(tree_entry, tree)

float scalar(int function, float x) {
  switch (function) {
    case 0: return math::exp_f32(x);
    case 1: return math::tanh_f32(x);
    case 2: return math::silu_f32(x);
    default: return math::gelu_tanh_f32(x);
  }
}

// Every 4093rd bit pattern (a prime), and the neighbourhoods of the points where the formulas
// change.
Floats samples() {
  std::vector<float> list;
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += 4093) {
    list.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  }
  for (const float centre : {0.0f, 0.625f, 9.02f, 0.34657359f, 88.722832f, 87.336540f, 43.66827f,
                             44.361416f, 1.0f, 127.0f, kInfF}) {
    const uint32_t bits = std::bit_cast<uint32_t>(centre);
    for (int32_t step = -500; step <= 500; ++step) {
      const float near = std::bit_cast<float>(bits + static_cast<uint32_t>(step));
      list.push_back(near);
      list.push_back(-near);
    }
  }
  list.resize((list.size() + 15) / 16 * 16, 0.0f);
  Floats values(static_cast<int64_t>(list.size()));
  for (size_t i = 0; i < list.size(); ++i) values[static_cast<int64_t>(i)] = list[i];
  return values;
}

}  // namespace

TEST_CASE("f32 math: every target gives the scalar bits") {
  const Floats x = samples();
  // FNV-1a over the bits; all NaNs count as one, since machines differ in the sign of a fresh NaN.
  constexpr uint64_t kPinned[4] = {0x72a490eafe35a01a, 0xa29640d38719bba2, 0xb5479ad97b9bee5a,
                                   0x748606d2d69ed34e};
  for (int function = 0; function < 4; ++function) {
    Floats want(x.size());
    uint64_t hash = 0xcbf29ce484222325u;
    for (int64_t i = 0; i < x.size(); ++i) {
      want[i] = scalar(function, x[i]);
      const uint32_t bits = std::isnan(want[i]) ? 0x7FC00000u : std::bit_cast<uint32_t>(want[i]);
      hash = (hash ^ bits) * 0x100000001b3u;
    }
    CAPTURE(function);
    CHECK(hash == kPinned[function]);
    for (const Target target : cpu_targets()) {
      const KernelEntry entry = evaluate_entry(target);
      if (entry == nullptr) continue;
      Floats got(x.size());
      const MathArgs args{function, x.data(), x.size(), got.data()};
      entry(&args);
      int64_t differing = 0;
      for (int64_t i = 0; i < x.size(); ++i) {
        differing += std::bit_cast<uint32_t>(got[i]) != std::bit_cast<uint32_t>(want[i]);
      }
      INFO(target_name(target));
      CHECK(differing == 0);
    }
  }
}

TEST_CASE("the lane tree is the same for every register width") {
  Rng rng(9);
  for (int round = 0; round < 200; ++round) {
    const Floats lanes = random_floats(rng, 16, -1e3f, 1e3f);
    Floats copy(lanes);
    const float want = lane_tree_sum(copy.data());
    const float* l = lanes.data();
    float eight[8], four[4];
    for (int i = 0; i < 8; ++i) eight[i] = l[i] + l[i + 8];
    for (int i = 0; i < 4; ++i) four[i] = eight[i] + eight[i + 4];
    CHECK(want == (four[0] + four[2]) + (four[1] + four[3]));
    for (const Target target : cpu_targets()) {
      const KernelEntry entry = tree_entry(target);
      if (entry == nullptr) continue;
      float got = 0;
      const TreeArgs args{lanes.data(), &got};
      entry(&args);
      INFO(target_name(target));
      CHECK(std::bit_cast<uint32_t>(got) == std::bit_cast<uint32_t>(want));
    }
  }
}

}  // namespace engine::test
#endif  // HWY_ONCE
