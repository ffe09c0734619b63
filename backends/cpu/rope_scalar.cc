// Scalar rows of the rotary embedding: the angles of positions, and the rotation.
#include <cmath>

#include "backends/cpu/cpu_kernels.h"
#include "lib/base/det_math.h"

namespace engine {
namespace {

// The only row of its op: it runs once per token and its doubles need no second version.
void rope_angles(const void* raw_args) {
  const RopeAnglesArgs& args = *static_cast<const RopeAnglesArgs*>(raw_args);
  const double mscale = static_cast<double>(args.mscale);
  for (int64_t t = 0; t < args.n_tokens; ++t) {
    const double position = static_cast<double>(args.first_position + t);
    float* out = args.out + t * args.out_stride;
    for (int64_t i = 0; i < args.n_pairs; ++i) {
      const SinCos angle = det_sin_cos(position * args.theta[i]);
      out[i] = static_cast<float>(angle.cos * mscale);
      out[args.n_pairs + i] = static_cast<float>(angle.sin * mscale);
    }
  }
}

void rope(const void* raw_args) {
  const RopeArgs& args = *static_cast<const RopeArgs*>(raw_args);
  const int64_t n_pairs = args.n_rot / 2;
  const bool adjacent = args.pairing == RopePairing::kAdjacent;
  for (int64_t t = 0; t < args.n_tokens; ++t) {
    const float* cos = args.angles + t * args.angles_stride;
    const float* sin = cos + n_pairs;
    for (int64_t h = 0; h < args.n_heads; ++h) {
      const float* x = args.x + t * args.x_stride + h * args.head_dim;
      float* out = args.out + t * args.out_stride + h * args.head_dim;
      for (int64_t i = 0; i < n_pairs; ++i) {
        const int64_t first = adjacent ? 2 * i : i;
        const int64_t second = adjacent ? 2 * i + 1 : i + n_pairs;
        const float a = x[first];
        const float b = x[second];
        out[first] = std::fma(a, cos[i], -(b * sin[i]));
        out[second] = std::fma(a, sin[i], b * cos[i]);
      }
      for (int64_t i = args.n_rot; i < args.head_dim; ++i) out[i] = x[i];
    }
  }
}

}  // namespace

KernelEntry rope_angles_scalar(Target) { return &rope_angles; }
KernelEntry rope_scalar(Target) { return &rope; }

}  // namespace engine
