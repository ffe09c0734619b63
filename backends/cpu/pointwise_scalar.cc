// Scalar rows of the element-wise ops: add, gated activation, soft-cap, finite check.
#include <bit>
#include <cmath>
#include <cstdint>

#include "backends/cpu/cpu_kernels.h"
#include "backends/cpu/math_scalar.h"

namespace engine {
namespace {

void add(const void* raw_args) {
  const AddArgs& args = *static_cast<const AddArgs*>(raw_args);
  for (int64_t row = 0; row < args.n_rows; ++row) {
    const float* a = args.a + row * args.a_stride;
    const float* b = args.b + row * args.b_stride;
    float* out = args.out + row * args.out_stride;
    for (int64_t i = 0; i < args.width; ++i) out[i] = std::fma(b[i], args.scale, a[i]);
  }
}

void gated_act(const void* raw_args) {
  const GatedActArgs& args = *static_cast<const GatedActArgs*>(raw_args);
  for (int64_t row = 0; row < args.n_rows; ++row) {
    const float* gate = args.gate + row * args.stride;
    const float* up = args.up + row * args.stride;
    float* out = args.out + row * args.stride;
    switch (args.act) {
      case Activation::kSilu:
        for (int64_t i = 0; i < args.width; ++i) out[i] = math::silu_f32(gate[i]) * up[i];
        break;
      case Activation::kGeluTanh:
        for (int64_t i = 0; i < args.width; ++i) out[i] = math::gelu_tanh_f32(gate[i]) * up[i];
        break;
      case Activation::kNone:
        for (int64_t i = 0; i < args.width; ++i) out[i] = gate[i] * up[i];
        break;
      case Activation::kSwigluClamped:
        for (int64_t i = 0; i < args.width; ++i) {
          out[i] = math::swiglu_clamped_f32(gate[i], up[i]);
        }
        break;
    }
  }
}

void softcap(const void* raw_args) {
  const SoftcapArgs& args = *static_cast<const SoftcapArgs*>(raw_args);
  for (int64_t row = 0; row < args.n_rows; ++row) {
    float* x = args.x + row * args.stride;
    for (int64_t i = 0; i < args.width; ++i) {
      const float y = x[i] * args.scale;
      x[i] = args.cap > 0.0f ? math::softcap_f32(y, args.cap) : y;
    }
  }
}

void check_finite(const void* raw_args) {
  const CheckFiniteArgs& args = *static_cast<const CheckFiniteArgs*>(raw_args);
  for (int64_t row = 0; row < args.n_rows; ++row) {
    const float* x = args.x + row * args.stride;
    for (int64_t i = 0; i < args.width; ++i) {
      if ((std::bit_cast<uint32_t>(x[i]) & 0x7F800000u) == 0x7F800000u) *args.finite = false;
    }
  }
}

}  // namespace

KernelEntry add_scalar(Target) { return &add; }
KernelEntry gated_act_scalar(Target) { return &gated_act; }
KernelEntry softcap_scalar(Target) { return &softcap; }
KernelEntry check_finite_scalar(Target) { return &check_finite; }

}  // namespace engine
