// Random weights in every format, from integer arithmetic and exact float steps: the same bytes on every machine.
#ifndef ENGINE_TESTS_UNIT_RANDOM_BLOCKS_H_
#define ENGINE_TESTS_UNIT_RANDOM_BLOCKS_H_

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "lib/base/half.h"
#include "lib/quant/blocks.h"
#include "lib/quant/format.h"

namespace engine {

// splitmix64 (Steele, Lea, Flood 2014): deterministic bits without state.
inline uint64_t toy_bits(uint64_t seed, uint64_t index) {
  uint64_t z = seed * 0x9E3779B97F4A7C15u + (index + 1) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}
// In [-1, 1).
inline float toy_noise(uint64_t seed, uint64_t index) {
  return static_cast<float>(static_cast<double>(toy_bits(seed, index) >> 11) * 0x1p-52 - 1.0);
}

// Blocks of random bits. `d` is near `scale` / `spread`, which is the standard deviation of the weights at d = 1;
// the minimum is near `mean` * d, so that weights are around zero.
template <class Block>
std::vector<uint8_t> random_blocks_of(int64_t n_blocks, uint64_t seed, float scale, float spread,
                                      float mean) {
  std::vector<uint8_t> out(static_cast<size_t>(n_blocks) * sizeof(Block));
  for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<uint8_t>(toy_bits(seed, i));
  const auto near_half = [&](float value, uint64_t index) {  // within 3 %
    return static_cast<uint16_t>(f32_to_f16(value) ^ (toy_bits(~seed, index) & 31));
  };
  for (int64_t i = 0; i < n_blocks; ++i) {
    uint8_t* at = out.data() + static_cast<size_t>(i) * sizeof(Block);
    Block block;
    std::memcpy(&block, at, sizeof(Block));
    const uint64_t index = static_cast<uint64_t>(i) * 2;
    const float d = scale / spread;
    if constexpr (std::is_same_v<Block, BlockMXFP4>) {  // a power of two, or its double
      block.d =
          static_cast<uint8_t>(std::ilogb(d) + 128 + static_cast<int>(toy_bits(~seed, index) & 1));
    } else {
      block.d = near_half(d, index);
    }
    if constexpr (requires { block.m; }) block.m = near_half(-mean * d, index + 1);
    if constexpr (requires { block.dmin; }) block.dmin = near_half(mean * d, index + 1);
    std::memcpy(at, &block, sizeof(Block));
  }
  return out;
}

// n_elements weights, whole blocks, around zero and of the order of `scale`, as they lie in a file.
inline std::vector<uint8_t> random_weights(Format format, int64_t n_elements, uint64_t seed,
                                           float scale) {
  const int64_t n = n_elements / format_info(format)->block_elements;
  std::vector<uint8_t> out;
  const auto numbers = [&](auto convert) {
    for (int64_t i = 0; i < n; ++i) {
      const auto value = convert(toy_noise(seed, static_cast<uint64_t>(i)) * scale);
      const auto* bytes = reinterpret_cast<const uint8_t*>(&value);
      out.insert(out.end(), bytes, bytes + sizeof(value));
    }
    return std::move(out);
  };
  const float s = scale * 0.6f;  // the deviation of toy_noise * scale
  switch (format) {
    case Format::kF32: return numbers([](float x) { return x; });
    case Format::kF16: return numbers([](float x) { return f32_to_f16(x); });
    case Format::kBF16: return numbers([](float x) { return f32_to_bf16(x); });
    case Format::kQ4_0: return random_blocks_of<BlockQ4_0>(n, seed, s, 4.6f, 0);
    case Format::kQ4_1: return random_blocks_of<BlockQ4_1>(n, seed, s, 4.6f, 7.5f);
    case Format::kQ5_0: return random_blocks_of<BlockQ5_0>(n, seed, s, 9.2f, 0);
    case Format::kQ5_1: return random_blocks_of<BlockQ5_1>(n, seed, s, 9.2f, 15.5f);
    case Format::kQ8_0: return random_blocks_of<BlockQ8_0>(n, seed, s, 74, 0);
    case Format::kQ2_K: return random_blocks_of<BlockQ2_K>(n, seed, s, 14, 1.5f);
    case Format::kQ3_K: return random_blocks_of<BlockQ3_K>(n, seed, s, 43, 0);
    case Format::kQ4_K: return random_blocks_of<BlockQ4_K>(n, seed, s, 260, 7.5f);
    case Format::kQ5_K: return random_blocks_of<BlockQ5_K>(n, seed, s, 530, 15.5f);
    case Format::kQ6_K: return random_blocks_of<BlockQ6_K>(n, seed, s, 1370, 0);
    case Format::kIQ4_NL: return random_blocks_of<BlockIQ4_NL>(n, seed, s, 70, 0);
    case Format::kIQ4_XS: return random_blocks_of<BlockIQ4_XS>(n, seed, s, 1300, 0);
    case Format::kTQ1_0: return random_blocks_of<BlockTQ1_0>(n, seed, s, 0.8f, 0);
    case Format::kTQ2_0: return random_blocks_of<BlockTQ2_0>(n, seed, s, 1.2f, 0);
    case Format::kMXFP4: return random_blocks_of<BlockMXFP4>(n, seed, s, 5.9f, 0);
  }
  return out;
}

}  // namespace engine

#endif  // ENGINE_TESTS_UNIT_RANDOM_BLOCKS_H_
