// Scalar reference of the weight and activation formats: the values that every kernel is measured
// against.
#ifndef ENGINE_LIB_QUANT_QUANT_REF_H_
#define ENGINE_LIB_QUANT_QUANT_REF_H_

#include <cstdint>

#include "lib/quant/activation.h"
#include "lib/quant/format.h"

namespace engine {

// Decodes one row of `n` values of an executable format. `n` is a multiple of the block elements,
// `row` is aligned as in lib/quant/blocks.h. Every value is formed as (d * scale) * q - (dmin *
// min), rounded to f32 after each operation: bit for bit what PyPI `gguf` gives. A format that is
// only sized writes nothing.
void dequantize_row(Format format, const void* row, int64_t n, float* out);

// Quantise `n` activations (a multiple of 32, of 256) by the rule in lib/quant/activation.h. False
// when a value is NaN or infinite: then the block that holds it has d = NaN and q = 0, so that a
// caller who overlooks the result still meets a NaN.
bool quantize_act_q8x32(const float* x, int64_t n, ActQ8x32* out);
bool quantize_act_q8x256(const float* x, int64_t n, ActQ8x256* out);

}  // namespace engine

#endif  // ENGINE_LIB_QUANT_QUANT_REF_H_
