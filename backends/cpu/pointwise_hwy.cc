// Vector rows of the element-wise ops: add, gated activation, soft-cap, finite check.
// clang-format off: the order matters, foreach_target.h includes this file once per target
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/pointwise_hwy.cc"
#include "backends/cpu/hwy_targets.h"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
// clang-format on

#include <limits>

#include "backends/cpu/lane_tree-inl.h"
#include "backends/cpu/math-inl.h"

#if ENGINE_HWY_FMA_TARGET
HWY_BEFORE_NAMESPACE();
namespace engine::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

void add(const void* raw_args) {
  const AddArgs& args = *static_cast<const AddArgs*>(raw_args);
  const DF d;
  const int64_t n = kLanesF;
  const VF scale = hn::Set(d, args.scale);
  for (int64_t row = 0; row < args.n_rows; ++row) {
    const float* a = args.a + row * args.a_stride;
    const float* b = args.b + row * args.b_stride;
    float* out = args.out + row * args.out_stride;
    int64_t i = 0;
    for (; i + n <= args.width; i += n) {
      hn::StoreU(hn::MulAdd(hn::LoadU(d, b + i), scale, hn::LoadU(d, a + i)), d, out + i);
    }
    const size_t rest = static_cast<size_t>(args.width - i);
    if (rest > 0) {
      const VF y = hn::MulAdd(hn::LoadN(d, b + i, rest), scale, hn::LoadN(d, a + i, rest));
      hn::StoreN(y, d, out + i, rest);
    }
  }
}

template <Activation kAct>
HWY_INLINE VF gated(VF gate, VF up) {
  const DF d;
  if constexpr (kAct == Activation::kNone) return hn::Mul(gate, up);
  if constexpr (kAct == Activation::kSwigluClamped) return swiglu_clamped_v(d, gate, up);
  return hn::Mul(kAct == Activation::kSilu ? silu_v(d, gate) : gelu_tanh_v(d, gate), up);
}

template <Activation kAct>
void gated_act_rows(const GatedActArgs& args) {
  const DF d;
  const int64_t n = kLanesF;
  for (int64_t row = 0; row < args.n_rows; ++row) {
    const float* gate = args.gate + row * args.stride;
    const float* up = args.up + row * args.stride;
    float* out = args.out + row * args.stride;
    int64_t i = 0;
    for (; i + n <= args.width; i += n) {
      hn::StoreU(gated<kAct>(hn::LoadU(d, gate + i), hn::LoadU(d, up + i)), d, out + i);
    }
    const size_t rest = static_cast<size_t>(args.width - i);
    if (rest > 0) {
      const VF y = gated<kAct>(hn::LoadN(d, gate + i, rest), hn::LoadN(d, up + i, rest));
      hn::StoreN(y, d, out + i, rest);
    }
  }
}

void gated_act(const void* raw_args) {
  const GatedActArgs& args = *static_cast<const GatedActArgs*>(raw_args);
  switch (args.act) {
    case Activation::kSilu: gated_act_rows<Activation::kSilu>(args); break;
    case Activation::kGeluTanh: gated_act_rows<Activation::kGeluTanh>(args); break;
    case Activation::kNone: gated_act_rows<Activation::kNone>(args); break;
    case Activation::kSwigluClamped: gated_act_rows<Activation::kSwigluClamped>(args); break;
  }
}

void softcap(const void* raw_args) {
  const SoftcapArgs& args = *static_cast<const SoftcapArgs*>(raw_args);
  const DF d;
  const int64_t n = kLanesF;
  const VF cap = hn::Set(d, args.cap);
  const VF scale = hn::Set(d, args.scale);
  const auto capped = [&](VF x) HWY_ATTR {
    const VF y = hn::Mul(x, scale);
    return args.cap > 0.0f ? softcap_v(d, y, cap) : y;
  };
  for (int64_t row = 0; row < args.n_rows; ++row) {
    float* x = args.x + row * args.stride;
    int64_t i = 0;
    for (; i + n <= args.width; i += n) {
      hn::StoreU(capped(hn::LoadU(d, x + i)), d, x + i);
    }
    const size_t rest = static_cast<size_t>(args.width - i);
    if (rest > 0) hn::StoreN(capped(hn::LoadN(d, x + i, rest)), d, x + i, rest);
  }
}

void check_finite(const void* raw_args) {
  const CheckFiniteArgs& args = *static_cast<const CheckFiniteArgs*>(raw_args);
  const DF d;
  const int64_t n = kLanesF;
  const VF inf = hn::Set(d, std::numeric_limits<float>::infinity());
  for (int64_t row = 0; row < args.n_rows; ++row) {
    const float* x = args.x + row * args.stride;
    auto finite = hn::Eq(inf, inf);
    int64_t i = 0;
    for (; i + n <= args.width; i += n) {
      finite = hn::And(finite, hn::Lt(hn::Abs(hn::LoadU(d, x + i)), inf));  // false for a NaN
    }
    const size_t rest = static_cast<size_t>(args.width - i);
    if (rest > 0) finite = hn::And(finite, hn::Lt(hn::Abs(hn::LoadN(d, x + i, rest)), inf));
    if (!hn::AllTrue(d, finite)) *args.finite = false;
  }
}

}  // namespace engine::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // ENGINE_HWY_FMA_TARGET

#if HWY_ONCE
namespace engine {
ENGINE_HWY_ENTRY(add_hwy, add)
ENGINE_HWY_ENTRY(gated_act_hwy, gated_act)
ENGINE_HWY_ENTRY(softcap_hwy, softcap)
ENGINE_HWY_ENTRY(check_finite_hwy, check_finite)
}  // namespace engine
#endif  // HWY_ONCE
