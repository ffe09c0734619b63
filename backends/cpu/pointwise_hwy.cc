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
  for (int64_t row = 0; row < args.n_rows; ++row) {
    const float* a = args.a + row * args.a_stride;
    const float* b = args.b + row * args.b_stride;
    float* out = args.out + row * args.out_stride;
    int64_t i = 0;
    for (; i + n <= args.width; i += n) {
      hn::StoreU(hn::Add(hn::LoadU(d, a + i), hn::LoadU(d, b + i)), d, out + i);
    }
    const size_t rest = static_cast<size_t>(args.width - i);
    if (rest > 0) {
      hn::StoreN(hn::Add(hn::LoadN(d, a + i, rest), hn::LoadN(d, b + i, rest)), d, out + i, rest);
    }
  }
}

template <Activation kAct>
HWY_INLINE VF gated(VF gate, VF up) {
  const DF d;
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
  if (args.act == Activation::kSilu) {
    gated_act_rows<Activation::kSilu>(args);
  } else {
    gated_act_rows<Activation::kGeluTanh>(args);
  }
}

void softcap(const void* raw_args) {
  const SoftcapArgs& args = *static_cast<const SoftcapArgs*>(raw_args);
  const DF d;
  const int64_t n = kLanesF;
  const VF cap = hn::Set(d, args.cap);
  for (int64_t row = 0; row < args.n_rows; ++row) {
    float* x = args.x + row * args.stride;
    int64_t i = 0;
    for (; i + n <= args.width; i += n) {
      hn::StoreU(softcap_v(d, hn::LoadU(d, x + i), cap), d, x + i);
    }
    const size_t rest = static_cast<size_t>(args.width - i);
    if (rest > 0) hn::StoreN(softcap_v(d, hn::LoadN(d, x + i, rest), cap), d, x + i, rest);
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
