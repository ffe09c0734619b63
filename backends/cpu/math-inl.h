// Vector exp, tanh, silu and gelu_tanh in f32; the algorithm is stated in math_constants.h.
#if defined(ENGINE_BACKENDS_CPU_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ENGINE_BACKENDS_CPU_MATH_INL_H_
#undef ENGINE_BACKENDS_CPU_MATH_INL_H_
#else
#define ENGINE_BACKENDS_CPU_MATH_INL_H_
#endif

#include <limits>

#include "backends/cpu/hwy_targets.h"
#include "backends/cpu/math_constants.h"
#include "hwy/highway.h"

#if ENGINE_HWY_FMA_TARGET
HWY_BEFORE_NAMESPACE();
namespace engine::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class D, class V = hn::Vec<D>>
HWY_INLINE V exp_v(D d, V x) {
  const hn::RebindToUnsigned<D> du;
  const V magic = hn::Set(d, math::kRoundMagic);
  const V t = hn::MulAdd(x, hn::Set(d, math::kLog2E), magic);
  const V n = hn::Sub(t, magic);
  V r = hn::NegMulAdd(n, hn::Set(d, math::kLn2Hi), x);
  r = hn::NegMulAdd(n, hn::Set(d, math::kLn2Lo), r);
  V q = hn::MulAdd(hn::Set(d, math::kExp6), r, hn::Set(d, math::kExp5));
  q = hn::MulAdd(q, r, hn::Set(d, math::kExp4));
  q = hn::MulAdd(q, r, hn::Set(d, math::kExp3));
  q = hn::MulAdd(q, r, hn::Set(d, math::kExp2));
  const V p = hn::Add(hn::Set(d, 1.0f), hn::MulAdd(hn::Mul(r, r), q, r));
  const auto n_bits = hn::ShiftLeft<23>(hn::BitCast(du, t));
  V y = hn::BitCast(d, hn::Add(hn::BitCast(du, p), n_bits));
  const V inf = hn::Set(d, std::numeric_limits<float>::infinity());
  y = hn::IfThenElse(hn::Le(x, hn::Set(d, math::kExpHigh)), y, hn::Add(x, inf));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, math::kExpLow)), y);
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V tanh_v(D d, V x) {
  const V a = hn::Abs(x);
  const V z = hn::Mul(a, a);
  V p = hn::MulAdd(hn::Set(d, math::kTanh5), z, hn::Set(d, math::kTanh4));
  p = hn::MulAdd(p, z, hn::Set(d, math::kTanh3));
  p = hn::MulAdd(p, z, hn::Set(d, math::kTanh2));
  p = hn::MulAdd(p, z, hn::Set(d, math::kTanh1));
  const V small = hn::MulAdd(hn::Mul(a, z), p, a);
  const V one = hn::Set(d, 1.0f);
  const V e = exp_v(d, hn::Add(a, a));
  const V large = hn::Sub(one, hn::Div(hn::Set(d, 2.0f), hn::Add(e, one)));
  const V y = hn::IfThenElse(hn::Lt(a, hn::Set(d, math::kTanhSmall)), small, large);
  return hn::CopySign(y, x);
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V silu_v(D d, V x) {
  return hn::Div(x, hn::Add(hn::Set(d, 1.0f), exp_v(d, hn::Neg(x))));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V gelu_tanh_v(D d, V x) {
  const V u2 =
      hn::Mul(x, hn::MulAdd(hn::Set(d, math::kGelu3), hn::Mul(x, x), hn::Set(d, math::kGelu1)));
  return hn::Div(x, hn::Add(hn::Set(d, 1.0f), exp_v(d, hn::Neg(u2))));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V swiglu_clamped_v(D d, V gate, V up) {
  const V one = hn::Set(d, 1.0f);
  const V high = hn::Set(d, math::kSwigluLimit);
  const V low = hn::Set(d, -math::kSwigluLimit);
  const V g = hn::IfThenElse(hn::Gt(gate, high), high, gate);
  V u = hn::IfThenElse(hn::Gt(up, high), high, up);
  u = hn::IfThenElse(hn::Lt(u, low), low, u);
  const V e = exp_v(d, hn::Neg(hn::Mul(hn::Set(d, math::kSwigluAlpha), g)));
  return hn::Mul(hn::Div(g, hn::Add(one, e)), hn::Add(u, one));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V softcap_v(D d, V x, V cap) {
  return hn::Mul(cap, tanh_v(d, hn::Div(x, cap)));
}

}  // namespace engine::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // ENGINE_HWY_FMA_TARGET

#endif  // include guard
