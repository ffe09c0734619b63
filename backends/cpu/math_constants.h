// Constants and the one statement of our f32 exp, tanh, silu and gelu_tanh; math_scalar.h and
// math-inl.h perform these operations in this order, so their bits agree.
//
// Polynomials are minimax fits (Remez exchange in 50 digits) whose coefficients are rounded to f32;
// the bound is that of the rounded ones.
//
// exp(x):
//   t = fma(x, log2 e, 1.5*2^23); n = t - 1.5*2^23, x / ln 2 to the nearest integer, even on ties
//   r = fma(-n, ln2_hi, x), exact in n * ln2_hi (8 + 15 bits); r = fma(-n, ln2_lo, r);
//     |r| <= ln 2 / 2 (1 + 2^-20)
//   q = e2 + r(e3 + r(e4 + r(e5 + r e6))) by fma; |1 + r + r^2 q - e^r| <= 0.07 * 2^-24 e^r
//   p = 1 + fma(r*r, q, r); n is added to the exponent of p
//   x < exp_low: +0, so a result is never subnormal. x > exp_high: x + inf, which is +inf, and for a
//     NaN that NaN, quiet. exp(0) = 1 and exp(-inf) = +0 exactly. Error below 1 ulp.
// tanh(x), a = |x|, then the sign of x:
//   a < 0.625: z = a*a, a + (a*z)*(t1 + z(t2 + z(t3 + z(t4 + z t5))));
//     by fma, off by at most 0.15 * 2^-24 tanh a
//   else: 1 - 2 / (exp(a + a) + 1), which is 1 from a = 9.02 on. Error below 2 ulp.
// silu(x): x / (1 + exp(-x)). Error below 3 ulp.
// gelu_tanh(x) = x/2 (1 + tanh u), u = sqrt(2/pi)(x + 0.044715 x^3): computed as x / (1 + exp(-2u)),
//   the same function without cancellation for x < 0; 2u = x * fma(g3, x*x, g1).
// silu and gelu_tanh of -inf are NaN: a non-finite activation is an error, never a plausible value.
#ifndef ENGINE_BACKENDS_CPU_MATH_CONSTANTS_H_
#define ENGINE_BACKENDS_CPU_MATH_CONSTANTS_H_

namespace engine::math {

inline constexpr float kLog2E = 0x1.715476p+0f;
inline constexpr float kRoundMagic = 0x1.8p+23f;  // adding it leaves an integer in the low bits
inline constexpr float kLn2Hi = 0x1.62e4p-1f;     // the first 15 bits of ln 2
inline constexpr float kLn2Lo = 0x1.7f7d1cp-20f;  // the rest
// ln(2^-126) and ln((2 - 2^-23) 2^127), both rounded towards zero: at the ends the exponent of the
// result is 1 and 254.
inline constexpr float kExpLow = -0x1.5d589ep+6f;
inline constexpr float kExpHigh = 0x1.62e42ep+6f;
inline constexpr float kExp2 = 0x1.fffffcp-2f;
inline constexpr float kExp3 = 0x1.555492p-3f;
inline constexpr float kExp4 = 0x1.5558f2p-5f;
inline constexpr float kExp5 = 0x1.1239f8p-7f;
inline constexpr float kExp6 = 0x1.6a2410p-10f;

inline constexpr float kTanhSmall = 0.625f;
inline constexpr float kTanh1 = -0x1.555532p-2f;
inline constexpr float kTanh2 = 0x1.11071ep-3f;
inline constexpr float kTanh3 = -0x1.b83b20p-5f;
inline constexpr float kTanh4 = 0x1.521e3ep-6f;
inline constexpr float kTanh5 = -0x1.75bae0p-8f;

inline constexpr float kGelu1 = 0x1.988454p+0f;  // 2 sqrt(2/pi)
inline constexpr float kSwigluAlpha = 1.702f;    // gpt-oss: of its sigmoid, and its clamp
inline constexpr float kSwigluLimit = 7.0f;

inline constexpr float kGelu3 = 0x1.2444f2p-4f;  // 2 sqrt(2/pi) * 0.044715

}  // namespace engine::math

#endif  // ENGINE_BACKENDS_CPU_MATH_CONSTANTS_H_
