// Short convolutions over the positions of KV pages: the sequence of ShortConvArgs.
#include <algorithm>
#include <cmath>

#include "backends/cpu/cpu_kernels.h"
#include "lib/base/half.h"

namespace engine {
namespace {

float load(uint16_t half) { return f16_to_f32(half); }
float load(float value) { return value; }

struct Q8 {};

// out[i] = fma(z[i], taps[i], out[i]) for the z that is stored in `slot` of a page.
template <class Stored>
void add_tap(const uint8_t* v_page, int64_t slot, int64_t width, const float* taps, float* out) {
  const Stored* z = reinterpret_cast<const Stored*>(v_page) + slot * width;
  for (int64_t i = 0; i < width; ++i) out[i] = std::fma(load(z[i]), taps[i], out[i]);
}
template <>
void add_tap<Q8>(const uint8_t* v_page, int64_t slot, int64_t width, const float* taps,
                 float* out) {
  const auto* codes = reinterpret_cast<const int8_t*>(v_page) + slot * width;
  const auto* scales = reinterpret_cast<const uint16_t*>(v_page + kKvPagePositions * width) +
                       slot * kv_blocks(width);
  for (int64_t first = 0; first < width; first += kKvBlock) {
    const float scale = f16_to_f32(scales[first / kKvBlock]);
    const int64_t end = std::min(width, first + kKvBlock);
    for (int64_t i = first; i < end; ++i) {
      out[i] = std::fma(scale * static_cast<float>(codes[i]), taps[i], out[i]);
    }
  }
}

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
      add_tap<Stored>(page + args.kv.v_offset_bytes, position % kKvPagePositions, args.width,
                      args.taps + j * args.width, out);
    }
  }
}

}  // namespace

KernelEntry short_conv_f16_scalar(Target) { return &short_conv<uint16_t>; }
KernelEntry short_conv_f32_scalar(Target) { return &short_conv<float>; }
KernelEntry short_conv_q8_0_scalar(Target) { return &short_conv<Q8>; }

}  // namespace engine
