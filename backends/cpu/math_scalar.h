// Scalar exp, tanh, silu and gelu_tanh in f32; the algorithm is stated in math_constants.h.
#ifndef ENGINE_BACKENDS_CPU_MATH_SCALAR_H_
#define ENGINE_BACKENDS_CPU_MATH_SCALAR_H_

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "backends/cpu/math_constants.h"

namespace engine::math {

inline float exp_f32(float x) {
  const float t = std::fma(x, kLog2E, kRoundMagic);
  const float n = t - kRoundMagic;
  float r = std::fma(-n, kLn2Hi, x);
  r = std::fma(-n, kLn2Lo, r);
  float q = std::fma(kExp6, r, kExp5);
  q = std::fma(q, r, kExp4);
  q = std::fma(q, r, kExp3);
  q = std::fma(q, r, kExp2);
  const float p = 1.0f + std::fma(r * r, q, r);
  if (x < kExpLow) return 0.0f;
  if (!(x <= kExpHigh)) return x + std::numeric_limits<float>::infinity();
  // The low bits of t hold n; the shift drops the rest.
  return std::bit_cast<float>(std::bit_cast<uint32_t>(p) + (std::bit_cast<uint32_t>(t) << 23));
}

inline float tanh_f32(float x) {
  const float a = std::fabs(x);
  float y;
  if (a < kTanhSmall) {
    const float z = a * a;
    float p = std::fma(kTanh5, z, kTanh4);
    p = std::fma(p, z, kTanh3);
    p = std::fma(p, z, kTanh2);
    p = std::fma(p, z, kTanh1);
    y = std::fma(a * z, p, a);
  } else {
    y = 1.0f - 2.0f / (exp_f32(a + a) + 1.0f);
  }
  return std::copysign(y, x);
}

inline float silu_f32(float x) { return x / (1.0f + exp_f32(-x)); }

inline float gelu_tanh_f32(float x) {
  const float u2 = x * std::fma(kGelu3, x * x, kGelu1);
  return x / (1.0f + exp_f32(-u2));
}

// cap * tanh(x / cap)
inline float softcap_f32(float x, float cap) { return cap * tanh_f32(x / cap); }

// g = min(gate, 7), u = clamp(up, -7, 7): (g / (1 + exp(-1.702 g))) * (u + 1). A NaN stays one.
inline float swiglu_clamped_f32(float gate, float up) {
  const float g = gate > kSwigluLimit ? kSwigluLimit : gate;
  float u = up > kSwigluLimit ? kSwigluLimit : up;
  u = u < -kSwigluLimit ? -kSwigluLimit : u;
  return g / (1.0f + exp_f32(-(kSwigluAlpha * g))) * (u + 1.0f);
}

// What an attention's sums are multiplied by at its end: 1 / sum, or with a sink as AttentionArgs says.
inline float attention_inverse(float max, float sum, const float* sink) {
  if (sink == nullptr) return 1.0f / sum;
  const float merged = *sink > max ? *sink : max;
  const float a = exp_f32(max - merged);
  return a / std::fma(sum, a, exp_f32(*sink - merged));
}

}  // namespace engine::math

#endif  // ENGINE_BACKENDS_CPU_MATH_SCALAR_H_
