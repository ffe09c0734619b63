// Deterministic double math: accuracy against long double libm, special values, and pinned bits.
#include "lib/base/det_math.h"

#include <bit>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>

namespace engine {
namespace {

// libm is the oracle here, so its extra digits are needed: x87 has 64 bits, AArch64 113.
static_assert(std::numeric_limits<long double>::digits >= 64);

double error_in_ulp(double got, long double want) {
  int exponent = 0;
  std::frexp(static_cast<double>(want), &exponent);
  return static_cast<double>(std::fabs(static_cast<long double>(got) - want)) /
         std::ldexp(1.0, exponent - 53);
}

// Doubles with simple exact values, so that pinned results do not depend on a library's generator.
double sequence(uint64_t& state) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return static_cast<double>(state >> 11) * 0x1p-53;  // [0, 1)
}

}  // namespace

TEST_CASE("det_exp and det_log are within 1 ulp, det_pow within 2") {
  uint64_t state = 1;
  double exp_worst = 0, log_worst = 0, pow_worst = 0;
  for (int i = 0; i < 300000; ++i) {
    const double x = sequence(state) * 1400.0 - 700.0;
    exp_worst =
        std::max(exp_worst, error_in_ulp(det_exp(x), std::exp(static_cast<long double>(x))));
    const double near_one = 0.5 + sequence(state);
    const double any = std::ldexp(near_one, static_cast<int>(sequence(state) * 2000.0) - 1000);
    for (const double y : {near_one, any}) {
      if (y == 1.0) continue;
      log_worst =
          std::max(log_worst, error_in_ulp(det_log(y), std::log(static_cast<long double>(y))));
    }
    const double base = 2.0 + sequence(state) * 1e7;
    const double exponent = sequence(state) * 4.0 - 2.0;
    pow_worst = std::max(pow_worst, error_in_ulp(det_pow(base, exponent),
                                                 std::pow(static_cast<long double>(base),
                                                          static_cast<long double>(exponent))));
  }
  CAPTURE(exp_worst, log_worst, pow_worst);
  CHECK(exp_worst < 1.0);
  CHECK(log_worst < 1.0);
  CHECK(pow_worst < 2.0);
}

TEST_CASE("det_tanh is within 2 ulp, odd, and 1 far out") {
  uint64_t state = 3;
  double worst = 0;
  for (int i = 0; i < 300000; ++i) {
    const double x = sequence(state) * (i % 3 == 0 ? 25.0 : i % 3 == 1 ? 1.2 : 1e-4);
    worst = std::max(worst, error_in_ulp(det_tanh(x), std::tanh(static_cast<long double>(x))));
    REQUIRE(det_tanh(-x) == -det_tanh(x));
  }
  CAPTURE(worst);
  CHECK(worst < 2.0);
  CHECK(det_tanh(0.0) == 0.0);
  CHECK(std::signbit(det_tanh(-0.0)));
  const double inf = std::numeric_limits<double>::infinity();
  CHECK(det_tanh(inf) == 1.0);
  CHECK(det_tanh(-800.0) == -1.0);
  CHECK(std::isnan(det_tanh(std::numeric_limits<double>::quiet_NaN())));
  CHECK(std::bit_cast<uint64_t>(det_tanh(0.5)) == std::bit_cast<uint64_t>(0x1.d9353d7568af3p-2));
  CHECK(std::bit_cast<uint64_t>(det_tanh(1.5)) == std::bit_cast<uint64_t>(0x1.cf6f9786df577p-1));
}

TEST_CASE("det_sin_cos is within 1e-15") {
  uint64_t state = 2;
  double worst = 0;
  for (int i = 0; i < 300000; ++i) {
    double x = sequence(state) * 2e6 - 1e6;
    if (i % 3 == 0) x *= 1e-6;
    if (i % 3 == 1) x *= 1000.0;
    const SinCos got = det_sin_cos(x);
    const long double exact = x;
    worst = std::max(worst, std::fabs(static_cast<double>(got.sin - std::sin(exact))));
    worst = std::max(worst, std::fabs(static_cast<double>(got.cos - std::cos(exact))));
  }
  CAPTURE(worst);
  CHECK(worst < 1e-15);
  CHECK(det_sin_cos(0.0).sin == 0.0);
  CHECK(det_sin_cos(0.0).cos == 1.0);
  CHECK(std::isnan(det_sin_cos(std::numeric_limits<double>::infinity()).sin));
  CHECK(std::isnan(det_sin_cos(std::numeric_limits<double>::quiet_NaN()).cos));
  CHECK(std::isnan(det_sin_cos(1e300).cos));
}

TEST_CASE("det_math at the ends") {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  CHECK(det_exp(0.0) == 1.0);
  CHECK(det_exp(-kInf) == 0.0);
  CHECK(det_exp(kInf) == kInf);
  CHECK(det_exp(710.0) == kInf);
  CHECK(std::isnan(det_exp(std::nan(""))));
  CHECK(det_exp(709.78) > 1e308);
  CHECK(det_exp(-708.0) > 0.0);
  CHECK(det_log(1.0) == 0.0);
  CHECK(det_log(0.0) == -kInf);
  CHECK(det_log(kInf) == kInf);
  CHECK(std::isnan(det_log(-1.0)));
  CHECK(det_pow(10000.0, 0.0) == 1.0);
  CHECK(det_pow(10000.0, 1.0) == 10000.0);
  CHECK(det_pow(2.0, -3.0) == 0.125);
  CHECK(det_pow(1e6, -1e9) == 0.0);
  CHECK(det_pow(1e6, 1e9) == kInf);
  CHECK(std::isnan(det_pow(-2.0, 2.0)));
  CHECK(std::isnan(det_pow(0.0, 1.0)));
}

// The same bits on every machine: a hash over many results.
TEST_CASE("det_math gives pinned bits") {
  uint64_t state = 3;
  uint64_t hash = 0xcbf29ce484222325u;
  const auto add = [&](double value) {
    hash = (hash ^ std::bit_cast<uint64_t>(value)) * 0x100000001b3u;
  };
  for (int i = 0; i < 20000; ++i) {
    add(det_exp(sequence(state) * 1400.0 - 700.0));
    add(det_log(sequence(state) * 1e9 + 1e-9));
    const double base = 1.0 + sequence(state) * 1e7;
    add(rope_theta(base, -sequence(state)));
    const SinCos angle = det_sin_cos(sequence(state) * 1e6);
    add(angle.sin);
    add(angle.cos);
  }
  CHECK(hash == 0x7b074090bc9fe783u);
}

}  // namespace engine
