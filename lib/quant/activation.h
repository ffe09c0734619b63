// Quantised activation blocks: the operand that every block-format dot product shares (numerics.md rule 1).
#ifndef ENGINE_LIB_QUANT_ACTIVATION_H_
#define ENGINE_LIB_QUANT_ACTIVATION_H_

#include <cstdint>

namespace engine {

// Rule, the same for both: amax = max |x| over the block; d = amax / 127 (f32 division);
// inv = amax > 0 ? 127 / amax : 0; q = round-half-even(x * inv), which lies in [-127, 127].
// One f32 scale per block, never rounded to f16 (that would lose what llama.cpp loses). When amax is so
// small that 127 / amax overflows (amax < 127 / FLT_MAX), d = 0 and q = 0.
struct ActQ8x32 {
  float d;
  int32_t sum;  // sum of q
  int8_t q[32];
};
static_assert(sizeof(ActQ8x32) == 40);

struct ActQ8x256 {
  float d;
  int32_t pad[7];     // keeps q 32-byte aligned in a 64-byte aligned row
  int16_t sum16[16];  // sums of 16 consecutive q
  int8_t q[256];
};
static_assert(sizeof(ActQ8x256) == 320);

}  // namespace engine

#endif  // ENGINE_LIB_QUANT_ACTIVATION_H_
