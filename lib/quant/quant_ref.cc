// Scalar decoders of the weight formats and quantisers of the activation formats.
#include "lib/quant/quant_ref.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "lib/base/half.h"
#include "lib/quant/blocks.h"

namespace engine {
namespace {

// The 4-bit number of element e in a 32-element block: the low nibbles come first.
int nibble32(const uint8_t* qs, int e) { return e < 16 ? qs[e] & 15 : qs[e - 16] >> 4; }
int bit32(const uint8_t* qh, int e) { return (qh[e / 8] >> (e % 8)) & 1; }

void decode(const BlockQ4_0& block, float* out) {
  const float d = f16_to_f32(block.d);
  for (int e = 0; e < 32; ++e) out[e] = d * static_cast<float>(nibble32(block.qs, e) - 8);
}

void decode(const BlockQ4_1& block, float* out) {
  const float d = f16_to_f32(block.d);
  const float m = f16_to_f32(block.m);
  for (int e = 0; e < 32; ++e) out[e] = d * static_cast<float>(nibble32(block.qs, e)) + m;
}

void decode(const BlockQ5_0& block, float* out) {
  const float d = f16_to_f32(block.d);
  for (int e = 0; e < 32; ++e) {
    const int q = nibble32(block.qs, e) + 16 * bit32(block.qh, e) - 16;
    out[e] = d * static_cast<float>(q);
  }
}

void decode(const BlockQ5_1& block, float* out) {
  const float d = f16_to_f32(block.d);
  const float m = f16_to_f32(block.m);
  for (int e = 0; e < 32; ++e) {
    const int q = nibble32(block.qs, e) + 16 * bit32(block.qh, e);
    out[e] = d * static_cast<float>(q) + m;
  }
}

void decode(const BlockQ8_0& block, float* out) {
  const float d = f16_to_f32(block.d);
  for (int e = 0; e < 32; ++e) out[e] = d * static_cast<float>(block.qs[e]);
}

void decode(const BlockQ2_K& block, float* out) {
  const float d = f16_to_f32(block.d);
  const float dmin = f16_to_f32(block.dmin);
  for (int e = 0; e < 256; ++e) {
    const int q = (block.qs[32 * (e / 128) + e % 32] >> (2 * (e % 128 / 32))) & 3;
    const float scale = d * static_cast<float>(block.scales[e / 16] & 15);
    const float min = dmin * static_cast<float>(block.scales[e / 16] >> 4);
    out[e] = scale * static_cast<float>(q) - min;
  }
}

void decode(const BlockQ3_K& block, float* out) {
  const float d = f16_to_f32(block.d);
  int8_t scales[16];
  unpack_q3_k_scales(block.scales, scales);
  for (int e = 0; e < 256; ++e) {
    const int low = (block.qs[32 * (e / 128) + e % 32] >> (2 * (e % 128 / 32))) & 3;
    const int q = low - ((block.hmask[e % 32] >> (e / 32)) & 1 ? 0 : 4);
    out[e] = d * static_cast<float>(scales[e / 16]) * static_cast<float>(q);
  }
}

// Q4_K and Q5_K: quant(b, l) is element l of sub-block b without its scale.
template <class Block, class Quant>
void decode_k4(const Block& block, float* out, Quant quant) {
  const float d = f16_to_f32(block.d);
  const float dmin = f16_to_f32(block.dmin);
  const K4Scales scales = unpack_k4_scales(block.scales);
  for (int b = 0; b < 8; ++b) {
    const float scale = d * static_cast<float>(scales.scale[b]);
    const float min = dmin * static_cast<float>(scales.min[b]);
    for (int l = 0; l < 32; ++l) out[32 * b + l] = scale * static_cast<float>(quant(b, l)) - min;
  }
}

// The nibble of element l of sub-block b.
template <class Block>
int k4_nibble(const Block& block, int b, int l) {
  return (block.qs[32 * (b / 2) + l] >> (4 * (b % 2))) & 15;
}

void decode(const BlockQ4_K& block, float* out) {
  decode_k4(block, out, [&](int b, int l) { return k4_nibble(block, b, l); });
}

void decode(const BlockQ5_K& block, float* out) {
  decode_k4(block, out,
            [&](int b, int l) { return k4_nibble(block, b, l) + 16 * ((block.qh[l] >> b) & 1); });
}

void decode(const BlockQ6_K& block, float* out) {
  const float d = f16_to_f32(block.d);
  for (int e = 0; e < 256; ++e) {
    const int h = e / 128;
    const int k = e % 128 / 32;
    const int l = e % 32;
    const int low = (block.ql[64 * h + l + 32 * (k & 1)] >> (k < 2 ? 0 : 4)) & 15;
    const int q = low + 16 * ((block.qh[32 * h + l] >> (2 * k)) & 3) - 32;
    out[e] = d * static_cast<float>(block.scales[e / 16]) * static_cast<float>(q);
  }
}

void decode(const BlockIQ4_NL& block, float* out) {
  const float d = f16_to_f32(block.d);
  for (int e = 0; e < 32; ++e) out[e] = d * static_cast<float>(kIq4Values[nibble32(block.qs, e)]);
}

void decode(const BlockIQ4_XS& block, float* out) {
  const float d = f16_to_f32(block.d);
  int8_t scales[8];
  unpack_iq4_xs_scales(block, scales);
  for (int e = 0; e < 256; ++e) {
    const int q = nibble32(block.qs + 16 * (e / 32), e % 32);
    out[e] = d * static_cast<float>(scales[e / 32]) * static_cast<float>(kIq4Values[q]);
  }
}

void decode(const BlockTQ1_0& block, float* out) {
  const float d = f16_to_f32(block.d);
  for (int e = 0; e < 256; ++e) out[e] = d * static_cast<float>(tq1_trit(block, e) - 1);
}

void decode(const BlockTQ2_0& block, float* out) {
  const float d = f16_to_f32(block.d);
  for (int e = 0; e < 256; ++e) {
    const int q = (block.qs[32 * (e / 128) + e % 32] >> (2 * (e % 128 / 32))) & 3;
    out[e] = d * static_cast<float>(q - 1);
  }
}

void decode(const BlockMXFP4& block, float* out) {
  const float d = mxfp4_scale(block.d);
  for (int e = 0; e < 32; ++e) out[e] = d * static_cast<float>(kMxfp4Values[nibble32(block.qs, e)]);
}

template <class Block, int kElements>
void decode_row(const void* row, int64_t n, float* out) {
  const Block* blocks = static_cast<const Block*>(row);
  for (int64_t i = 0; i < n / kElements; ++i) decode(blocks[i], out + i * kElements);
}

// Quantises one block of `n` values; false when one of them is not finite.
bool quantize_block(const float* x, int n, float* d, int8_t* q) {
  float amax = 0;
  bool finite = true;
  for (int i = 0; i < n; ++i) {
    finite = finite && std::isfinite(x[i]);
    amax = std::max(amax, std::fabs(x[i]));
  }
  const float inv = amax > 0 ? 127.0f / amax : 0;
  if (!finite || inv == 0 || std::isinf(inv)) {
    *d = finite ? 0 : std::numeric_limits<float>::quiet_NaN();
    std::memset(q, 0, static_cast<size_t>(n));
    return finite;
  }
  *d = amax / 127.0f;
  // nearbyint rounds half to even in the default rounding mode.
  for (int i = 0; i < n; ++i) q[i] = static_cast<int8_t>(std::nearbyint(x[i] * inv));
  return true;
}

}  // namespace

void dequantize_row(Format format, const void* row, int64_t n, float* out) {
  switch (format) {
    case Format::kF32:
      if (n > 0) std::memcpy(out, row, static_cast<size_t>(n) * sizeof(float));
      return;
    case Format::kF16:
      for (int64_t i = 0; i < n; ++i) out[i] = f16_to_f32(static_cast<const uint16_t*>(row)[i]);
      return;
    case Format::kBF16:
      for (int64_t i = 0; i < n; ++i) out[i] = bf16_to_f32(static_cast<const uint16_t*>(row)[i]);
      return;
    case Format::kQ4_0: return decode_row<BlockQ4_0, 32>(row, n, out);
    case Format::kQ4_1: return decode_row<BlockQ4_1, 32>(row, n, out);
    case Format::kQ5_0: return decode_row<BlockQ5_0, 32>(row, n, out);
    case Format::kQ5_1: return decode_row<BlockQ5_1, 32>(row, n, out);
    case Format::kQ8_0: return decode_row<BlockQ8_0, 32>(row, n, out);
    case Format::kQ2_K: return decode_row<BlockQ2_K, 256>(row, n, out);
    case Format::kQ3_K: return decode_row<BlockQ3_K, 256>(row, n, out);
    case Format::kQ4_K: return decode_row<BlockQ4_K, 256>(row, n, out);
    case Format::kQ5_K: return decode_row<BlockQ5_K, 256>(row, n, out);
    case Format::kQ6_K: return decode_row<BlockQ6_K, 256>(row, n, out);
    case Format::kIQ4_NL: return decode_row<BlockIQ4_NL, 32>(row, n, out);
    case Format::kIQ4_XS: return decode_row<BlockIQ4_XS, 256>(row, n, out);
    case Format::kTQ1_0: return decode_row<BlockTQ1_0, 256>(row, n, out);
    case Format::kTQ2_0: return decode_row<BlockTQ2_0, 256>(row, n, out);
    case Format::kMXFP4: return decode_row<BlockMXFP4, 32>(row, n, out);
  }
}

bool quantize_act_q8x32(const float* x, int64_t n, ActQ8x32* out) {
  bool finite = true;
  for (int64_t i = 0; i < n / 32; ++i) {
    finite = quantize_block(x + i * 32, 32, &out[i].d, out[i].q) && finite;
    out[i].sum = 0;
    for (int8_t q : out[i].q) out[i].sum += q;
  }
  return finite;
}

bool quantize_act_q8x256(const float* x, int64_t n, ActQ8x256* out) {
  bool finite = true;
  for (int64_t i = 0; i < n / 256; ++i) {
    ActQ8x256& block = out[i];
    finite = quantize_block(x + i * 256, 256, &block.d, block.q) && finite;
    std::memset(block.pad, 0, sizeof(block.pad));
    for (int j = 0; j < 16; ++j) {
      int sum = 0;
      for (int k = 0; k < 16; ++k) sum += block.q[16 * j + k];
      block.sum16[j] = static_cast<int16_t>(sum);
    }
  }
  return finite;
}

}  // namespace engine
