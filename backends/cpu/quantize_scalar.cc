// Scalar rows that quantise activations, by the reference quantiser.
#include "lib/contract/kernel.h"
#include "lib/quant/quant_ref.h"

namespace engine {
namespace {

template <class Act, bool (*quantize_row)(const float*, int64_t, Act*)>
void quantize(const void* raw_args) {
  const QuantizeArgs& args = *static_cast<const QuantizeArgs*>(raw_args);
  uint8_t* out = static_cast<uint8_t*>(args.out);
  for (int64_t r = 0; r < args.n_rows; ++r) {
    Act* row = reinterpret_cast<Act*>(out + r * args.out_stride_bytes);
    if (!quantize_row(args.x + r * args.x_stride, args.width, row)) *args.finite = false;
  }
}

}  // namespace

KernelEntry quantize_q8x32_scalar(Target) { return &quantize<ActQ8x32, quantize_act_q8x32>; }
KernelEntry quantize_q8x256_scalar(Target) { return &quantize<ActQ8x256, quantize_act_q8x256>; }

}  // namespace engine
