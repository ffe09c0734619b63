// Packed blocks of the executable weight formats, as they lie in a GGUF file (little-endian).
#ifndef ENGINE_LIB_QUANT_BLOCKS_H_
#define ENGINE_LIB_QUANT_BLOCKS_H_

#include <bit>
#include <cstdint>

namespace engine {

static_assert(std::endian::native == std::endian::little,
              "blocks are read as they lie in the file");

// Every field is a byte, an int8 or a 16-bit number. Sizes of blocks with 16-bit fields are even and Gguf::parse
// guarantees that a tensor starts at a multiple of 4 in memory, so a block pointer is always
// aligned. F32, F16 and BF16 rows are plain float or uint16_t arrays. `d`, `m` and `dmin` are IEEE
// halves (lib/base/half.h). Formulas of a value: e = index in the block; in 256-element blocks b =
// e / 32 and l = e % 32.

struct BlockQ4_0 {  // d * (q - 8); q = low nibble of qs[e] for e < 16, high nibble of qs[e - 16]
                    // after
  uint16_t d;
  uint8_t qs[16];
};
static_assert(sizeof(BlockQ4_0) == 18);

struct BlockQ4_1 {  // d * q + m; q as in Q4_0
  uint16_t d;
  uint16_t m;
  uint8_t qs[16];
};
static_assert(sizeof(BlockQ4_1) == 20);

struct BlockQ5_0 {  // d * (q - 16); q = nibble as in Q4_0 + 16 * bit e of qh (qh[0] holds bits
                    // 0..7)
  uint16_t d;
  uint8_t qh[4];
  uint8_t qs[16];
};
static_assert(sizeof(BlockQ5_0) == 22);

struct BlockQ5_1 {  // d * q + m; q as in Q5_0
  uint16_t d;
  uint16_t m;
  uint8_t qh[4];
  uint8_t qs[16];
};
static_assert(sizeof(BlockQ5_1) == 24);

struct BlockQ8_0 {  // d * qs[e]
  uint16_t d;
  int8_t qs[32];
};
static_assert(sizeof(BlockQ8_0) == 34);

// In Q2_K and Q3_K, h = e / 128 and k = (e % 128) / 32: q = (qs[32h + l] >> 2k) & 3.
struct BlockQ2_K {  // d * (s & 15) * q - dmin * (s >> 4); s = scales[e / 16]
  uint8_t scales[16];
  uint8_t qs[64];
  uint16_t d;
  uint16_t dmin;
};
static_assert(sizeof(BlockQ2_K) == 84);

struct BlockQ3_K {  // d * (s - 32) * (q - (bit b of hmask[l] set ? 0 : 4)); s = unpacked scale e /
                    // 16
  uint8_t hmask[32];
  uint8_t qs[64];
  uint8_t scales[12];  // unpack_q3_k_scales
  uint16_t d;
};
static_assert(sizeof(BlockQ3_K) == 110);

struct BlockQ4_K {  // d * sc(b) * q - dmin * mn(b); q = nibble of qs[32(b / 2) + l], low for even b
  uint16_t d;
  uint16_t dmin;
  uint8_t scales[12];  // unpack_k4_scales
  uint8_t qs[128];
};
static_assert(sizeof(BlockQ4_K) == 144);

struct BlockQ5_K {  // as Q4_K with q = nibble + 16 * bit b of qh[l]
  uint16_t d;
  uint16_t dmin;
  uint8_t scales[12];  // unpack_k4_scales
  uint8_t qh[32];
  uint8_t qs[128];
};
static_assert(sizeof(BlockQ5_K) == 176);

// With h and k as above: q = nibble of ql[64h + l + 32(k & 1)] (low for k < 2)
// + 16 * ((qh[32h + l] >> 2k) & 3) - 32.
struct BlockQ6_K {  // d * scales[e / 16] * q
  uint8_t ql[128];
  uint8_t qh[64];
  int8_t scales[16];
  uint16_t d;
};
static_assert(sizeof(BlockQ6_K) == 210);

// The numbers that the nibbles of IQ4_NL and IQ4_XS stand for.
alignas(16) inline constexpr int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                      1,    13,   25,  38,  53,  69,  89,  113};
// Twice the numbers of a 4-bit float with two bits of exponent and one of mantissa.
alignas(16) inline constexpr int8_t kMxfp4Values[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                                        0, -1, -2, -3, -4, -6, -8, -12};

struct BlockIQ4_NL {  // d * kIq4Values[q]; q as in Q4_0
  uint16_t d;
  uint8_t qs[16];
};
static_assert(sizeof(BlockIQ4_NL) == 18);

struct
    BlockIQ4_XS {  // d * s * kIq4Values[q]; s = scale b of unpack_iq4_xs_scales; q of part b as in Q4_0
  uint16_t d;
  uint16_t scales_h;
  uint8_t scales_l[4];
  uint8_t qs[128];
};
static_assert(sizeof(BlockIQ4_XS) == 136);

// d * (t - 1): t is a digit of base 3, read from the top of byte * 3^n. Elements 0..159: bytes qs[e % 32], n = e /
// 32; 160..239: qs[32 + (e - 160) % 16], n = (e - 160) / 16; from 240: qh[(e - 240) % 4], n = (e - 240) / 4.
struct BlockTQ1_0 {
  uint8_t qs[48];
  uint8_t qh[4];
  uint16_t d;
};
static_assert(sizeof(BlockTQ1_0) == 54);

struct BlockTQ2_0 {  // d * (q - 1); q as in Q2_K
  uint8_t qs[64];
  uint16_t d;
};
static_assert(sizeof(BlockTQ2_0) == 66);

struct
    BlockMXFP4 {  // 2^(d - 128) * kMxfp4Values[q]; q as in Q4_0. Of odd size, so blocks are not aligned.
  uint8_t d;
  uint8_t qs[16];
};
static_assert(sizeof(BlockMXFP4) == 17);

// 2^(x - 128), subnormal for x < 2.
inline float mxfp4_scale(uint8_t x) {
  const uint32_t bits = x < 2 ? 0x00200000u << x : static_cast<uint32_t>(x - 1) << 23;
  return std::bit_cast<float>(bits);
}

// Digit n of a byte of TQ1_0: 0..2.
inline int tq1_digit(uint8_t byte, int n) {
  constexpr int kPowers[5] = {1, 3, 9, 27, 81};
  return (byte * kPowers[n] % 256 * 3) >> 8;
}
// Element e of a block.
inline int tq1_trit(const BlockTQ1_0& block, int e) {
  if (e < 160) return tq1_digit(block.qs[e % 32], e / 32);
  if (e < 240) return tq1_digit(block.qs[32 + (e - 160) % 16], (e - 160) / 16);
  return tq1_digit(block.qh[(e - 240) % 4], (e - 240) / 4);
}

// The eight signed scales of IQ4_XS, 32 already subtracted: -32..31.
inline void unpack_iq4_xs_scales(const BlockIQ4_XS& block, int8_t out[8]) {
  for (int b = 0; b < 8; ++b) {
    const int low = (block.scales_l[b / 2] >> (4 * (b % 2))) & 15;
    out[b] = static_cast<int8_t>((low | ((block.scales_h >> (2 * b)) & 3) << 4) - 32);
  }
}

// The eight 6-bit scales and eight 6-bit minimums packed in the 12 bytes of Q4_K and Q5_K: 0..3 in
// the low six bits of bytes 0..3 and 4..7; 4..7 in the nibbles of bytes 8..11 with the spare upper
// bits on top.
struct K4Scales {
  uint8_t scale[8];
  uint8_t min[8];
};
inline K4Scales unpack_k4_scales(const uint8_t packed[12]) {
  K4Scales out;
  for (int b = 0; b < 4; ++b) {
    out.scale[b] = packed[b] & 63;
    out.min[b] = packed[b + 4] & 63;
    out.scale[b + 4] = static_cast<uint8_t>((packed[b + 8] & 15) | ((packed[b] >> 6) << 4));
    out.min[b + 4] = static_cast<uint8_t>((packed[b + 8] >> 4) | ((packed[b + 4] >> 6) << 4));
  }
  return out;
}

// The sixteen signed scales of Q3_K, 32 already subtracted: -32..31.
inline void unpack_q3_k_scales(const uint8_t packed[12], int8_t out[16]) {
  for (int j = 0; j < 16; ++j) {
    const int low = j < 8 ? packed[j] & 15 : packed[j - 8] >> 4;
    const int high = (packed[8 + j % 4] >> (2 * (j / 4))) & 3;
    out[j] = static_cast<int8_t>((low | (high << 4)) - 32);
  }
}

}  // namespace engine

#endif  // ENGINE_LIB_QUANT_BLOCKS_H_
