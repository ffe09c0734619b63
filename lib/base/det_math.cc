// Series and range reductions of det_math.h.
#include "lib/base/det_math.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace engine {
namespace {

// Adding and subtracting it rounds to the nearest integer, even on ties; the integer is then in the
// low bits of the sum, in two's complement.
constexpr double kRoundMagic = 0x1.8p+52;
constexpr double kLog2E = 0x1.71547652b82fep+0;
constexpr double kLn2Hi = 0x1.62e42feep-1;  // 32 bits of ln 2, so n * kLn2Hi is exact for n < 2^21
constexpr double kLn2Lo = 0x1.a39ef35793c76p-33;  // the rest
constexpr double kTwoOverPi = 0x1.45f306dc9c883p-1;
constexpr double kHalfPiHi = 0x1.921fb54442d18p+0;   // pi / 2 rounded to a double
constexpr double kHalfPiLo = 0x1.1a62633145c07p-54;  // the rest
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

// hi + lo, |lo| <= ulp(hi) / 2.
struct Double2 {
  double hi;
  double lo;
};

// Exact for any a and b (Knuth).
Double2 two_sum(double a, double b) {
  const double sum = a + b;
  const double b_part = sum - a;
  return {sum, (a - (sum - b_part)) + (b - b_part)};
}

// e^(hi + lo). With |r| <= ln 2 / 2 the Taylor series to r^13 leaves r^14/14! < 5e-18 of the
// result.
//
// Always inlined, so that it is compiled for the CPU of its caller. No branch, so that a loop of it becomes
// vectors: what lies outside the range is computed from 0 and replaced at the end.
[[gnu::always_inline]] inline double exp_double2(Double2 argument) {
  const bool is_low = argument.hi<-708.0, is_high = argument.hi> 709.782712893384;
  const Double2 x{is_low || is_high ? 0.0 : argument.hi, is_low || is_high ? 0.0 : argument.lo};
  const double t = std::fma(x.hi, kLog2E, kRoundMagic);
  const double n = t - kRoundMagic;
  const double r_hi = std::fma(-n, kLn2Hi, x.hi);  // exact
  const double r_lo = std::fma(-n, kLn2Lo, x.lo);
  const double r = r_hi + r_lo;
  const double r_rest = (r_hi - r) + r_lo;
  double q = 1.0 / 6227020800.0;  // 1/13!
  q = std::fma(q, r, 1.0 / 479001600.0);
  q = std::fma(q, r, 1.0 / 39916800.0);
  q = std::fma(q, r, 1.0 / 3628800.0);
  q = std::fma(q, r, 1.0 / 362880.0);
  q = std::fma(q, r, 1.0 / 40320.0);
  q = std::fma(q, r, 1.0 / 5040.0);
  q = std::fma(q, r, 1.0 / 720.0);
  q = std::fma(q, r, 1.0 / 120.0);
  q = std::fma(q, r, 1.0 / 24.0);
  q = std::fma(q, r, 1.0 / 6.0);
  q = std::fma(q, r, 0.5);
  const double p = 1.0 + (r + std::fma(r * r, q, r_rest));
  // n is in [-1022, 1024]: halves, so that both powers of two are normal numbers. t holds n in its low bits.
  const int64_t integer = std::bit_cast<int64_t>(t) - std::bit_cast<int64_t>(kRoundMagic);
  const int64_t half = static_cast<int64_t>(static_cast<uint64_t>(integer + 2048) >> 1) - 1024;
  const auto power_of_two = [](int64_t e) {
    return std::bit_cast<double>(static_cast<uint64_t>(e + 1023) << 52);
  };
  const double result = (p * power_of_two(half)) * power_of_two(integer - half);
  return is_low ? 0.0 : is_high ? kInf : result;
}

// log of a finite normal x > 0, relative error about 2^-58. x = m * 2^e with m in [sqrt(1/2),
// sqrt(2)); log m = 2 atanh(s), s = (m - 1)/(m + 1), |s| < 0.1716: the series to s^21 leaves
// s^22/23 < 2^-60 of it.
Double2 log_double2(double x) {
  const uint64_t bits = std::bit_cast<uint64_t>(x);
  int64_t e = static_cast<int64_t>(bits >> 52) - 1023;
  double m = std::bit_cast<double>((bits & 0xFFFFFFFFFFFFFu) | (uint64_t{1023} << 52));
  if (m > 1.4142135623730951) {
    m *= 0.5;
    ++e;
  }
  const double f = m - 1.0;  // exact
  const Double2 g = two_sum(m, 1.0);
  const double s = f / g.hi;
  const double s_rest = (std::fma(-s, g.hi, f) - s * g.lo) / g.hi;
  const double z = s * s;
  double q = 1.0 / 21.0;
  q = std::fma(q, z, 1.0 / 19.0);
  q = std::fma(q, z, 1.0 / 17.0);
  q = std::fma(q, z, 1.0 / 15.0);
  q = std::fma(q, z, 1.0 / 13.0);
  q = std::fma(q, z, 1.0 / 11.0);
  q = std::fma(q, z, 1.0 / 9.0);
  q = std::fma(q, z, 1.0 / 7.0);
  q = std::fma(q, z, 1.0 / 5.0);
  q = std::fma(q, z, 1.0 / 3.0);
  const double tail = 2.0 * std::fma(s * z, q, s_rest);
  const double n = static_cast<double>(e);
  const Double2 head = two_sum(n * kLn2Hi, 2.0 * s);  // both terms exact
  const double rest = head.lo + std::fma(n, kLn2Lo, tail);
  return two_sum(head.hi, rest);
}

}  // namespace

double det_exp(double x) {
  if (x != x) return x;
  return exp_double2({x, 0.0});
}

// tanh a = 1 - 2 / (e^(2a) + 1), which loses no digits from 1 on. Below, the continued fraction
// a / (1 + z/(3 + z/(5 + ...))), z = a * a: what lies behind 23 changes less than 2^-70 of it.
namespace {

[[gnu::always_inline]] inline void exp_each(const double* x, size_t n, double* out) {
  for (size_t i = 0; i < n; ++i) out[i] = exp_double2({x[i], 0.0});
}

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__FMA__)
// The baseline of x86-64 calls a function for every fma.
#define ENGINE_HAS_FMA_CLONE_ 1
[[gnu::target("avx2,fma")]] void exp_each_fma(const double* x, size_t n, double* out) {
  exp_each(x, n, out);
}
#endif

}  // namespace

void det_exp_many(const double* x, size_t n, double* out) {
#if defined(ENGINE_HAS_FMA_CLONE_)
  if (__builtin_cpu_supports("fma") && __builtin_cpu_supports("avx2")) {
    exp_each_fma(x, n, out);
    return;
  }
#endif
  exp_each(x, n, out);
}

double det_tanh(double x) {
  const double a = std::fabs(x);
  double y;
  if (a < 1.0) {
    const double z = a * a;
    double tail = 23.0;
    for (double k = 21.0; k > 0.0; k -= 2.0) tail = k + z / tail;
    y = a / tail;
  } else {
    y = 1.0 - 2.0 / (det_exp(a + a) + 1.0);
  }
  return std::copysign(y, x);
}

double det_log(double x) {
  if (x != x || x < 0.0) return kNan;
  if (x < std::numeric_limits<double>::min()) return -kInf;
  if (x == kInf) return kInf;
  return log_double2(x).hi;
}

double det_pow(double base, double exponent) {
  if (!(base >= std::numeric_limits<double>::min()) || base == kInf || exponent != exponent)
    return kNan;
  if (exponent == 0.0) return 1.0;
  const Double2 l = log_double2(base);
  const double hi = exponent * l.hi;
  if (!(std::fabs(hi) < 1e6)) return hi > 0.0 ? kInf : 0.0;
  const double lo = std::fma(exponent, l.lo, std::fma(exponent, l.hi, -hi));
  return exp_double2({hi, lo});
}

// x = n * pi/2 + r with |r| <= pi/4. x - n * kHalfPiHi is a multiple of 2^-53 below 1, so the fma
// is exact; the second step adds half an ulp of r. The Taylor series to r^17 and r^16 leave less
// than 3e-18.
SinCos det_sin_cos(double x) {
  if (!(std::fabs(x) <= 1073741824.0)) return {kNan, kNan};
  const double t = std::fma(x, kTwoOverPi, kRoundMagic);
  const double n = t - kRoundMagic;
  double r = std::fma(-n, kHalfPiHi, x);
  r = std::fma(-n, kHalfPiLo, r);
  const double z = r * r;
  double s = 1.0 / 355687428096000.0;  // 1/17!
  s = std::fma(s, z, -1.0 / 1307674368000.0);
  s = std::fma(s, z, 1.0 / 6227020800.0);
  s = std::fma(s, z, -1.0 / 39916800.0);
  s = std::fma(s, z, 1.0 / 362880.0);
  s = std::fma(s, z, -1.0 / 5040.0);
  s = std::fma(s, z, 1.0 / 120.0);
  s = std::fma(s, z, -1.0 / 6.0);
  const double sin_r = std::fma(r * z, s, r);
  double c = 1.0 / 20922789888000.0;  // 1/16!
  c = std::fma(c, z, -1.0 / 87178291200.0);
  c = std::fma(c, z, 1.0 / 479001600.0);
  c = std::fma(c, z, -1.0 / 3628800.0);
  c = std::fma(c, z, 1.0 / 40320.0);
  c = std::fma(c, z, -1.0 / 720.0);
  c = std::fma(c, z, 1.0 / 24.0);
  c = std::fma(c, z, -0.5);
  const double cos_r = std::fma(c, z, 1.0);
  switch (std::bit_cast<uint64_t>(t) & 3u) {
    case 0: return {sin_r, cos_r};
    case 1: return {cos_r, -sin_r};
    case 2: return {-sin_r, -cos_r};
    default: return {-cos_r, sin_r};
  }
}

}  // namespace engine
