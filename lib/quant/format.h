// One row per weight format: name, ggml id, block elements and bytes, activation type of dots.
#ifndef ENGINE_LIB_QUANT_FORMAT_H_
#define ENGINE_LIB_QUANT_FORMAT_H_

#include <cstdint>
#include <string_view>

namespace engine {

// Weight formats; the values are ggml type ids (gguf specification, tensor types).
enum class Format : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ2_K = 10,
  kQ3_K = 11,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kIQ4_NL = 20,
  kIQ4_XS = 23,
  kBF16 = 30,
  kTQ1_0 = 34,
  kTQ2_0 = 35,
  kMXFP4 = 39,
};

// How a row of activations is presented to a dot product (quant/activation.h).
enum class ActType : uint8_t {
  kF32 = 0,  // plain float
  kQ8x32,    // blocks of 32: int8, one f32 scale, the sum of the int8
  kQ8x256,   // blocks of 256: int8, one f32 scale, sums of 16
};

struct FormatInfo {
  Format format;
  std::string_view name;  // as printed everywhere: "Q4_K"
  uint32_t block_elements;
  uint32_t block_bytes;
  ActType act;      // activation type its dot products use
  bool executable;  // false: sized and named, but refused by the forward pass
};

// The row of a ggml type id; nullptr for an unknown, removed or foreign one. Formats that are only
// sized (IQ1* to IQ3*, NVFP4, integers) have rows too, with executable = false.
const FormatInfo* format_info(uint32_t ggml_type);
inline const FormatInfo* format_info(Format format) {
  return format_info(static_cast<uint32_t>(format));
}
// Why a type id is refused: "removed from GGUF, re-quantise the model", "belongs to a fork",
// "unknown".
std::string_view refused_reason(uint32_t ggml_type);

}  // namespace engine

#endif  // ENGINE_LIB_QUANT_FORMAT_H_
