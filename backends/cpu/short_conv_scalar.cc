// Short convolutions over the positions of KV pages: the sequence of ShortConvArgs.
#include <algorithm>
#include <cmath>

#include "backends/cpu/cpu_kernels.h"
#include "lib/base/half.h"

namespace engine {
namespace {

float load(uint16_t half) { return f16_to_f32(half); }
float load(float value) { return value; }

template <class Stored>
void short_conv(const void* raw_args) {
  const ShortConvArgs& args = *static_cast<const ShortConvArgs*>(raw_args);
  for (int64_t t = 0; t < args.n_tokens; ++t) {
    float* out = args.out + t * args.out_stride;
    std::fill(out, out + args.width, 0.0f);
    const int64_t first = args.first_position + t - args.n_taps + 1;
    for (int64_t j = std::max<int64_t>(0, -first); j < args.n_taps; ++j) {
      const int64_t position = first + j;
      const uint8_t* page = args.kv.pages[position / kKvPagePositions];
      const Stored* z = reinterpret_cast<const Stored*>(page + args.kv.v_offset_bytes) +
                        position % kKvPagePositions * args.width;
      const float* taps = args.taps + j * args.width;
      for (int64_t i = 0; i < args.width; ++i) out[i] = std::fma(load(z[i]), taps[i], out[i]);
    }
  }
}

}  // namespace

KernelEntry short_conv_f16_scalar(Target) { return &short_conv<uint16_t>; }
KernelEntry short_conv_f32_scalar(Target) { return &short_conv<float>; }

}  // namespace engine
