// Random weights and activations for the kernel tests, and the lookup of rows to test.
#ifndef ENGINE_TESTS_KERNELS_MATMUL_DATA_H_
#define ENGINE_TESTS_KERNELS_MATMUL_DATA_H_

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <string_view>
#include <vector>

#include "lib/base/half.h"
#include "lib/contract/kernel.h"
#include "lib/quant/blocks.h"
#include "lib/quant/format.h"
#include "lib/quant/quant_ref.h"

namespace engine::test {

inline constexpr Format kAllFormats[] = {
    Format::kF32,   Format::kF16,   Format::kBF16, Format::kQ4_0,   Format::kQ4_1,
    Format::kQ5_0,  Format::kQ5_1,  Format::kQ8_0, Format::kQ2_K,   Format::kQ3_K,
    Format::kQ4_K,  Format::kQ5_K,  Format::kQ6_K, Format::kIQ4_NL, Format::kIQ4_XS,
    Format::kTQ1_0, Format::kTQ2_0, Format::kMXFP4};

// Bytes aligned to 64, with 64 more bytes behind them that hold 0xFF (NaN in every float format).
class Bytes {
 public:
  explicit Bytes(int64_t size) : storage_(static_cast<size_t>(size) + 128, 0xFF) {
    const uintptr_t address = reinterpret_cast<uintptr_t>(storage_.data());
    skip_ = (64 - address % 64) % 64;
    std::memset(data(), 0, static_cast<size_t>(size));
  }
  Bytes(const Bytes&) = delete;
  Bytes& operator=(const Bytes&) = delete;
  uint8_t* data() { return storage_.data() + skip_; }

 private:
  std::vector<uint8_t> storage_;
  size_t skip_ = 0;
};

using Rng = std::mt19937;

inline float uniform(Rng& rng, float low, float high) {
  return std::uniform_real_distribution<float>(low, high)(rng);
}

// How wild the numbers are: kModerate keeps float sums well inside f32 and away from subnormals.
enum class Range { kModerate, kExtreme };

// A finite half. Extreme: also zeros, subnormals, the largest and the smallest.
inline uint16_t random_half(Rng& rng, Range range) {
  const uint16_t sign = (rng() & 1) ? 0x8000 : 0;
  if (range == Range::kExtreme) {
    switch (rng() % 8) {
      case 0: return sign;
      case 1: return sign | 0x7BFF;
      case 2: return sign | 0x0001;
      case 3: return static_cast<uint16_t>(sign | (rng() % 0x400));
      case 4: return static_cast<uint16_t>(sign | (rng() % 0x7C00));
      default: break;
    }
  }
  return static_cast<uint16_t>(sign | f32_to_f16(uniform(rng, 0.001f, 0.5f)));
}

template <class Block>
void fill_block(Block* block, Rng& rng, Range range) {
  uint8_t* bytes = reinterpret_cast<uint8_t*>(block);
  // Some blocks of all-equal bytes, which give the extremes of every packed field.
  const uint32_t kind = rng() % 16;
  for (size_t i = 0; i < sizeof(Block); ++i) {
    bytes[i] = static_cast<uint8_t>(kind == 0 ? 0xFF : kind == 1 ? 0x00 : kind == 2 ? 0x80 : rng());
  }
  if constexpr (sizeof(block->d) == 1) {  // 2^(d - 128)
    block->d = static_cast<uint8_t>(range == Range::kExtreme ? rng() % 145 : 116 + rng() % 12);
  } else {
    block->d = random_half(rng, range);
  }
  if constexpr (requires { block->m; }) block->m = random_half(rng, range);
  if constexpr (requires { block->dmin; }) block->dmin = random_half(rng, range);
}

template <class Block>
void fill_blocks(uint8_t* data, int64_t count, Rng& rng, Range range) {
  for (int64_t i = 0; i < count; ++i) fill_block(reinterpret_cast<Block*>(data) + i, rng, range);
}

inline float random_float(Rng& rng, Range range) {
  if (range == Range::kExtreme) {
    switch (rng() % 8) {
      case 0: return (rng() & 1) ? 0.0f : -0.0f;
      case 1: return std::ldexp(uniform(rng, -1, 1), -140);  // subnormal
      case 2: return std::ldexp(uniform(rng, -1, 1), static_cast<int>(rng() % 40) - 20);
      default: break;
    }
  }
  return uniform(rng, -2, 2);
}

// `rows` rows of `cols` random weights.
inline void fill_weights(Format format, int64_t rows, int64_t cols, Rng& rng, Range range,
                         uint8_t* data) {
  const int64_t n = rows * cols / format_info(format)->block_elements;
  switch (format) {
    case Format::kF32:
      for (int64_t i = 0; i < n; ++i) reinterpret_cast<float*>(data)[i] = random_float(rng, range);
      return;
    case Format::kF16:
      for (int64_t i = 0; i < n; ++i)
        reinterpret_cast<uint16_t*>(data)[i] = random_half(rng, range);
      return;
    case Format::kBF16:
      for (int64_t i = 0; i < n; ++i) {
        reinterpret_cast<uint16_t*>(data)[i] = f32_to_bf16(random_float(rng, range));
      }
      return;
    case Format::kQ4_0: return fill_blocks<BlockQ4_0>(data, n, rng, range);
    case Format::kQ4_1: return fill_blocks<BlockQ4_1>(data, n, rng, range);
    case Format::kQ5_0: return fill_blocks<BlockQ5_0>(data, n, rng, range);
    case Format::kQ5_1: return fill_blocks<BlockQ5_1>(data, n, rng, range);
    case Format::kQ8_0: return fill_blocks<BlockQ8_0>(data, n, rng, range);
    case Format::kQ2_K: return fill_blocks<BlockQ2_K>(data, n, rng, range);
    case Format::kQ3_K: return fill_blocks<BlockQ3_K>(data, n, rng, range);
    case Format::kQ4_K: return fill_blocks<BlockQ4_K>(data, n, rng, range);
    case Format::kQ5_K: return fill_blocks<BlockQ5_K>(data, n, rng, range);
    case Format::kQ6_K: return fill_blocks<BlockQ6_K>(data, n, rng, range);
    case Format::kIQ4_NL: return fill_blocks<BlockIQ4_NL>(data, n, rng, range);
    case Format::kIQ4_XS: return fill_blocks<BlockIQ4_XS>(data, n, rng, range);
    case Format::kTQ1_0: return fill_blocks<BlockTQ1_0>(data, n, rng, range);
    case Format::kTQ2_0: return fill_blocks<BlockTQ2_0>(data, n, rng, range);
    case Format::kMXFP4: return fill_blocks<BlockMXFP4>(data, n, rng, range);
  }
}

inline int64_t act_row_bytes(ActType act, int64_t cols) {
  const int64_t bytes = act == ActType::kF32     ? cols * 4
                        : act == ActType::kQ8x32 ? cols / 32 * int64_t{sizeof(ActQ8x32)}
                                                 : cols / 256 * int64_t{sizeof(ActQ8x256)};
  return (bytes + 63) / 64 * 64 + 64;
}

// Activations whose products stay finite: |x| below 1e20, blocks of many magnitudes, some with all
// values at the largest magnitude.
inline void fill_act(ActType act, int64_t cols, int64_t n_tokens, Rng& rng, uint8_t* out) {
  std::vector<float> x(static_cast<size_t>(cols));
  for (int64_t t = 0; t < n_tokens; ++t) {
    float scale = 1;
    bool flat = false;
    for (int64_t i = 0; i < cols; ++i) {
      if (i % 32 == 0) {
        flat = rng() % 8 == 0;
        scale = act == ActType::kF32 ? 1 : std::ldexp(1.0f, static_cast<int>(rng() % 180) - 130);
        if (rng() % 4 != 0) scale = 1;
      }
      const float value = flat ? ((rng() & 1) ? 2.0f : -2.0f) : random_float(rng, Range::kExtreme);
      x[static_cast<size_t>(i)] = value * scale;
    }
    uint8_t* row = out + t * act_row_bytes(act, cols);
    if (act == ActType::kF32) {
      std::memset(row, 0xFF, static_cast<size_t>(act_row_bytes(act, cols)));  // NaN behind the row
      std::memcpy(row, x.data(), x.size() * sizeof(float));
    } else if (act == ActType::kQ8x32) {
      quantize_act_q8x32(x.data(), cols, reinterpret_cast<ActQ8x32*>(row));
    } else {
      quantize_act_q8x256(x.data(), cols, reinterpret_cast<ActQ8x256*>(row));
    }
  }
}

inline bool is_scalar_row(const KernelRow& row) {
  return std::string_view(row.name).ends_with("_scalar");
}

inline bool same_key(const KernelKey& a, const KernelKey& b) {
  return a.op == b.op && a.format == b.format && a.layout == b.layout && a.act == b.act &&
         a.kv == b.kv;
}

// The scalar row of a key, nullptr when the table has none.
inline const KernelRow* scalar_row(const KernelKey& key) {
  for (const KernelRow& row : kernel_rows()) {
    if (is_scalar_row(row) && same_key(row.key, key)) return &row;
  }
  return nullptr;
}

// The rows of an op that are measured against their scalar row.
inline std::vector<const KernelRow*> vector_rows(Op op) {
  std::vector<const KernelRow*> rows;
  for (const KernelRow& row : kernel_rows()) {
    if (row.key.op == op && !is_scalar_row(row)) rows.push_back(&row);
  }
  return rows;
}

}  // namespace engine::test

#endif  // ENGINE_TESTS_KERNELS_MATMUL_DATA_H_
