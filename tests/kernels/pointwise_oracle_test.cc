// The scalar element-wise rows against libm in double, within derived bounds.
#include <algorithm>

#include "tests/kernels/pointwise_data.h"

namespace engine::test {

TEST_CASE("add is the rounded sum") {
  Rng rng(4);
  const Floats a = random_floats(rng, 500, -9.0f, 9.0f);
  const Floats b = random_floats(rng, 500, -9.0f, 9.0f);
  Floats out(500);
  const AddArgs args = {.a = a.data(),
                        .a_stride = 500,
                        .b = b.data(),
                        .b_stride = 500,
                        .width = 500,
                        .n_rows = 1,
                        .out = out.data(),
                        .out_stride = 500};
  scalar_entry(Op::kAdd)(&args);
  for (int64_t i = 0; i < 500; ++i) {
    CHECK(out[i] == static_cast<float>(static_cast<double>(a[i]) + static_cast<double>(b[i])));
  }
}

TEST_CASE("a scaled add rounds once") {
  Rng rng(14);
  const Floats a = random_floats(rng, 500, -9.0f, 9.0f);
  const Floats b = random_floats(rng, 500, -9.0f, 9.0f);
  Floats out(500);
  const AddArgs args = {.a = a.data(),
                        .a_stride = 500,
                        .b = b.data(),
                        .b_stride = 500,
                        .width = 500,
                        .n_rows = 1,
                        .out = out.data(),
                        .out_stride = 500,
                        .scale = 0.22f};
  scalar_entry(Op::kAdd)(&args);
  for (int64_t i = 0; i < 500; ++i) CHECK(out[i] == std::fma(b[i], 0.22f, a[i]));
}

TEST_CASE("the clamped gate is min(g, 7) * sigmoid(1.702 min(g, 7)) * (clamp(u) + 1)") {
  Rng rng(15);
  constexpr int64_t kWidth = 4000;
  const Floats gate = random_floats(rng, kWidth, -12.0f, 12.0f);
  const Floats up = random_floats(rng, kWidth, -12.0f, 12.0f);
  Floats out(kWidth);
  const GatedActArgs args = {.gate = gate.data(),
                             .up = up.data(),
                             .stride = kWidth,
                             .width = kWidth,
                             .n_rows = 1,
                             .act = Activation::kSwigluClamped,
                             .out = out.data()};
  scalar_entry(Op::kGatedAct)(&args);
  double worst = 0;
  for (int64_t i = 0; i < kWidth; ++i) {
    const double g = std::min(static_cast<double>(gate[i]), 7.0);
    const double u = std::clamp(static_cast<double>(up[i]), -7.0, 7.0);
    const double a = g / (1.0 + std::exp(-static_cast<double>(1.702f) * g));
    // The argument's rounding, 2 units of exp, the sum, the quotient, u + 1 and the product.
    const double bound =
        (std::fabs(1.702 * g) + 2 + 4) * kUnit * std::fabs(a * (u + 1.0)) + kUnit * std::fabs(a);
    worst = std::max(worst, std::fabs(out[i] - a * (u + 1.0)) / bound);
  }
  CHECK(worst <= 1.0);
}

TEST_CASE("a scale without a cap is a product") {
  Rng rng(16);
  const Floats before = random_floats(rng, 3, -9.0f, 9.0f);
  Floats x(before);
  const SoftcapArgs args = {
      .x = x.data(), .stride = 3, .width = 3, .n_rows = 1, .cap = 0.0f, .scale = 0.3f};
  scalar_entry(Op::kSoftcap)(&args);
  for (int64_t i = 0; i < 3; ++i) CHECK(x[i] == before[i] * 0.3f);
}

// gate activations are bounded in math_oracle_test; here: 4 ulp of them and the product's rounding.
TEST_CASE("gated activation is act(gate) * up") {
  Rng rng(5);
  constexpr int64_t kWidth = 4000;
  const Floats gate = random_floats(rng, kWidth, -9.0f, 12.0f);
  const Floats up = random_floats(rng, kWidth, -2.0f, 2.0f);
  for (const Activation act : {Activation::kSilu, Activation::kGeluTanh}) {
    Floats out(kWidth);
    const GatedActArgs args = {.gate = gate.data(),
                               .up = up.data(),
                               .stride = kWidth,
                               .width = kWidth,
                               .n_rows = 1,
                               .act = act,
                               .out = out.data()};
    scalar_entry(Op::kGatedAct)(&args);
    double worst = 0;
    for (int64_t i = 0; i < kWidth; ++i) {
      const double g = gate[i];
      const double u2 = 2.0 * std::sqrt(2.0 / M_PI) * (g + 0.044715 * g * g * g);
      const double want = act == Activation::kSilu ? g / (1.0 + std::exp(-g)) * up[i]
                                                   : g / (1.0 + std::exp(-u2)) * up[i];
      // The exponent's argument is rounded 3 times (gelu) or not at all; exp turns that into a
      // relative error.
      const double argument = act == Activation::kSilu ? 0.0 : 4.0 * std::fabs(u2);
      const double bound = (2.0 * 4.0 + 1.0 + argument) * kUnit * std::fabs(want);
      worst = std::max(worst, std::fabs(out[i] - want) / bound);
    }
    CHECK(worst <= 1.0);
  }
}

TEST_CASE("soft-cap is cap * tanh(x / cap)") {
  Rng rng(6);
  constexpr int64_t kWidth = 4000;
  const Floats x = random_floats(rng, kWidth, -200.0f, 200.0f);
  for (const float cap : {1.0f, 30.0f, 50.0f}) {
    Floats out(x);
    const SoftcapArgs args = {
        .x = out.data(), .stride = kWidth, .width = kWidth, .n_rows = 1, .cap = cap};
    scalar_entry(Op::kSoftcap)(&args);
    double worst = 0;
    for (int64_t i = 0; i < kWidth; ++i) {
      const double want = cap * std::tanh(static_cast<double>(x[i]) / cap);
      // 2 ulp of tanh, one rounding each of the quotient (tanh does not amplify it) and the
      // product.
      worst = std::max(worst, std::fabs(out[i] - want) / ((2 * 2 + 2) * kUnit * std::fabs(want)));
    }
    CHECK(worst <= 1.0);
  }
}

}  // namespace engine::test
