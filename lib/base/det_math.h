// exp, tanh, log, pow, sin and cos in double that give the same bits on every machine.
//
// Only +, -, *, / and std::fma are used, which IEEE 754 fixes; libm differs between libraries and
// versions. Compile without contraction of a*b+c (-ffp-contract=off). Errors are measured in
// tests/unit.
#ifndef ENGINE_LIB_BASE_DET_MATH_H_
#define ENGINE_LIB_BASE_DET_MATH_H_

#include <cstddef>

namespace engine {

// Error below 1 ulp. Overflow gives +inf; below -708 the result is +0, so that it is never
// subnormal.
double det_exp(double x);
// out[i] = det_exp(x[i]), the same bits, several at once where the CPU can. out may be x.
void det_exp_many(const double* x, size_t n, double* out);

// Error below 2 ulp. Odd; +-1 for large |x|, a NaN gives NaN.
double det_tanh(double x);

// Error below 1 ulp for finite normal x > 0. log(0) = -inf, negative x or NaN gives NaN. A
// subnormal counts as 0.
double det_log(double x);

// base^exponent for base > 0, error below 2 ulp while |exponent * log(base)| < 64: the logarithm is
// kept in two doubles. det_pow(b, 0) = 1 exactly.
double det_pow(double base, double exponent);

struct SinCos {
  double sin;
  double cos;
};
// Absolute error below 1e-15 for |x| <= 2^30. Not finite or beyond 2^30: both are NaN.
SinCos det_sin_cos(double x);

// base^exponent, the factor between the angles of a rotary embedding: theta_i = rope_theta(base,
// -2i/n_rot).
inline double rope_theta(double base, double exponent) { return det_pow(base, exponent); }

}  // namespace engine

#endif  // ENGINE_LIB_BASE_DET_MATH_H_
