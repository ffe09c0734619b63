// Scalar row of RMSNorm: the float sequence of RmsNormArgs.
#include <cmath>

#include "backends/cpu/cpu_kernels.h"
#include "backends/cpu/lane_tree.h"

namespace engine {
namespace {

void rms_norm(const void* raw_args) {
  const RmsNormArgs& args = *static_cast<const RmsNormArgs*>(raw_args);
  for (int64_t row = 0; row < args.n_rows; ++row) {
    const float* x = args.x + row * args.x_stride;
    float* out = args.out + row * args.out_stride;
    float lanes[kVirtualLanes] = {};
    for (int64_t i = 0; i < args.width; ++i) {
      float& lane = lanes[i % kVirtualLanes];
      lane = std::fma(x[i], x[i], lane);
    }
    const float mean = lane_tree_sum(lanes) / static_cast<float>(args.width);
    const float inv = 1.0f / std::sqrt(mean + args.eps);
    for (int64_t i = 0; i < args.width; ++i) {
      const float scaled = x[i] * inv;
      out[i] = args.weight == nullptr ? scaled : scaled * args.weight[i];
    }
  }
}

}  // namespace

KernelEntry rms_norm_scalar(Target) { return &rms_norm; }

}  // namespace engine
