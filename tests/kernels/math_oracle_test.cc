// Scalar f32 exp, tanh, silu and gelu_tanh against libm in double.
#include "backends/cpu/math_scalar.h"
#include "tests/kernels/pointwise_data.h"

namespace engine::test {
namespace {

// Spacing of f32 at |value|, that of the smallest normal below it.
double ulp_of(double value) {
  int exponent = 0;
  std::frexp(std::max(std::fabs(value), 0x1p-126), &exponent);
  return std::ldexp(1.0, exponent - 24);
}

// Largest error of f in ulp over every 1009th float of [low, high].
template <class F, class Reference>
double worst_ulp(F f, Reference reference, float low, float high) {
  double worst = 0;
  const auto sweep = [&](float from, float to, float sign) {
    for (uint32_t bits = std::bit_cast<uint32_t>(from); bits <= std::bit_cast<uint32_t>(to);
         bits += 1009) {
      const float x = sign * std::bit_cast<float>(bits);
      const double want = reference(static_cast<double>(x));
      worst = std::max(worst, std::fabs(static_cast<double>(f(x)) - want) / ulp_of(want));
    }
  };
  if (low < 0) sweep(0.0f, -low, -1.0f);
  if (high > 0) sweep(0.0f, high, 1.0f);
  return worst;
}

}  // namespace

TEST_CASE("exp is within 1 ulp") {
  const auto reference = [](double x) { return std::exp(x); };
  const double worst = worst_ulp(math::exp_f32, reference, -87.3365f, 88.7228f);
  CAPTURE(worst);
  CHECK(worst <= 1.0);
}

TEST_CASE("exp is exact where it must be") {
  CHECK(std::bit_cast<uint32_t>(math::exp_f32(0.0f)) == 0x3F800000u);
  CHECK(std::bit_cast<uint32_t>(math::exp_f32(-0.0f)) == 0x3F800000u);
  CHECK(std::bit_cast<uint32_t>(math::exp_f32(-kInfF)) == 0u);
  CHECK(std::bit_cast<uint32_t>(math::exp_f32(-1e30f)) == 0u);
  CHECK(math::exp_f32(kInfF) == kInfF);
  CHECK(math::exp_f32(1e30f) == kInfF);
  CHECK(math::exp_f32(88.73f) == kInfF);
  CHECK(std::isnan(math::exp_f32(kNanF)));
  CHECK(std::isnan(math::exp_f32(-kNanF)));
  CHECK(math::exp_f32(1e-40f) == 1.0f);  // a subnormal argument
  // Results are zero or normal on both sides of the lower end, finite up to the upper end.
  const uint32_t low = std::bit_cast<uint32_t>(math::kExpLow);
  for (uint32_t step = 0; step < 2000; ++step) {
    const float inside = math::exp_f32(std::bit_cast<float>(low - step));
    CHECK((inside >= std::numeric_limits<float>::min() && inside < 1.2e-38f));
    CHECK(math::exp_f32(std::bit_cast<float>(low + 1 + step)) == 0.0f);
    const uint32_t high = std::bit_cast<uint32_t>(math::kExpHigh);
    const float top = math::exp_f32(std::bit_cast<float>(high - step));
    CHECK((top > 3.3e38f && top < kInfF));
    CHECK(math::exp_f32(std::bit_cast<float>(high + 1 + step)) == kInfF);
  }
}

TEST_CASE("tanh is within 2 ulp, odd, and 1 far out") {
  const auto reference = [](double x) { return std::tanh(x); };
  const double worst = worst_ulp(math::tanh_f32, reference, -20.0f, 20.0f);
  CAPTURE(worst);
  CHECK(worst <= 2.0);
  CHECK(math::tanh_f32(1e30f) == 1.0f);
  CHECK(math::tanh_f32(-kInfF) == -1.0f);
  CHECK(std::bit_cast<uint32_t>(math::tanh_f32(-0.0f)) == 0x80000000u);
  CHECK(std::isnan(math::tanh_f32(kNanF)));
}

TEST_CASE("silu is within 3 ulp") {
  const auto reference = [](double x) { return x / (1.0 + std::exp(-x)); };
  // Below -88.72 exp(-x) is infinite and the result -0; the true value is below 3e-37 there.
  const double worst = worst_ulp(math::silu_f32, reference, -88.7f, 1e30f);
  CAPTURE(worst);
  CHECK(worst <= 3.0);
  CHECK(math::silu_f32(-100.0f) == 0.0f);
  CHECK(math::silu_f32(0.0f) == 0.0f);
  CHECK(math::silu_f32(kInfF) == kInfF);
  CHECK(std::isnan(math::silu_f32(-kInfF)));
  CHECK(std::isnan(math::silu_f32(kNanF)));
}

// The argument 2u of the exponential carries 3 roundings and the two constants' errors, 4 u |2u| in
// all, which exp turns into that relative error; besides it as silu, 3 ulp.
TEST_CASE("gelu_tanh is within 3 ulp and its argument's rounding") {
  double worst = 0;
  for (const float sign : {-1.0f, 1.0f}) {
    for (uint32_t bits = 0; bits <= std::bit_cast<uint32_t>(9.9f); bits += 1009) {
      const float x = sign * std::bit_cast<float>(bits);
      const double g = x;
      const double u2 = 2.0 * std::sqrt(2.0 / M_PI) * (g + 0.044715 * g * g * g);
      const double want = g / (1.0 + std::exp(-u2));
      const double share =
          1.0 / (1.0 + std::exp(u2));  // how much of the exponential's error is felt
      const double bound =
          3.0 * ulp_of(want) + 4.0 * kUnit * std::fabs(u2) * share * std::fabs(want);
      worst = std::max(worst, std::fabs(math::gelu_tanh_f32(x) - want) / bound);
    }
  }
  CAPTURE(worst);
  CHECK(worst <= 1.0);
  // The function as it is written elsewhere, where it does not cancel.
  for (const float x : {0.5f, 1.0f, 2.0f, 3.0f}) {
    const double g = x;
    const double want =
        0.5 * g * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (g + 0.044715 * g * g * g)));
    CHECK(std::fabs(math::gelu_tanh_f32(x) - want) < 4e-7 * want);
  }
  CHECK(math::gelu_tanh_f32(0.0f) == 0.0f);
  CHECK(math::gelu_tanh_f32(1e30f) == 1e30f);
  CHECK(math::gelu_tanh_f32(-1e30f) == 0.0f);
  CHECK(std::isnan(math::gelu_tanh_f32(kNanF)));
}

}  // namespace engine::test
