// The table of ggml tensor types: what we execute, what we only size, and why the rest is refused.
#include "lib/quant/format.h"

namespace engine {
namespace {

constexpr FormatInfo executable(Format format, std::string_view name, uint32_t elements,
                                uint32_t bytes, ActType act) {
  return {format, name, elements, bytes, act, true};
}
// Sizes only: enough to walk a tensor table and name the type in an error.
constexpr FormatInfo sized(uint32_t id, std::string_view name, uint32_t elements, uint32_t bytes) {
  return {static_cast<Format>(id), name, elements, bytes, ActType::kF32, false};
}

constexpr FormatInfo kFormats[] = {
    executable(Format::kF32, "F32", 1, 4, ActType::kF32),
    executable(Format::kF16, "F16", 1, 2, ActType::kF32),
    executable(Format::kQ4_0, "Q4_0", 32, 18, ActType::kQ8x32),
    executable(Format::kQ4_1, "Q4_1", 32, 20, ActType::kQ8x32),
    executable(Format::kQ5_0, "Q5_0", 32, 22, ActType::kQ8x32),
    executable(Format::kQ5_1, "Q5_1", 32, 24, ActType::kQ8x32),
    executable(Format::kQ8_0, "Q8_0", 32, 34, ActType::kQ8x32),
    executable(Format::kQ2_K, "Q2_K", 256, 84, ActType::kQ8x256),
    executable(Format::kQ3_K, "Q3_K", 256, 110, ActType::kQ8x256),
    executable(Format::kQ4_K, "Q4_K", 256, 144, ActType::kQ8x256),
    executable(Format::kQ5_K, "Q5_K", 256, 176, ActType::kQ8x256),
    executable(Format::kQ6_K, "Q6_K", 256, 210, ActType::kQ8x256),
    executable(Format::kIQ4_NL, "IQ4_NL", 32, 18, ActType::kQ8x32),
    executable(Format::kIQ4_XS, "IQ4_XS", 256, 136, ActType::kQ8x256),
    executable(Format::kBF16, "BF16", 1, 2, ActType::kF32),
    executable(Format::kTQ1_0, "TQ1_0", 256, 54, ActType::kQ8x256),
    executable(Format::kTQ2_0, "TQ2_0", 256, 66, ActType::kQ8x256),
    executable(Format::kMXFP4, "MXFP4", 32, 17, ActType::kQ8x32),
    sized(9, "Q8_1", 32, 36),
    sized(15, "Q8_K", 256, 292),
    sized(16, "IQ2_XXS", 256, 66),
    sized(17, "IQ2_XS", 256, 74),
    sized(18, "IQ3_XXS", 256, 98),
    sized(19, "IQ1_S", 256, 50),
    sized(21, "IQ3_S", 256, 110),
    sized(22, "IQ2_S", 256, 82),
    sized(24, "I8", 1, 1),
    sized(25, "I16", 1, 2),
    sized(26, "I32", 1, 4),
    sized(27, "I64", 1, 8),
    sized(28, "F64", 1, 8),
    sized(29, "IQ1_M", 256, 56),
    sized(40, "NVFP4", 64, 36),
    sized(41, "Q1_0", 128, 18),
    sized(42, "Q2_0", 64, 18),
};

// Ids from 97 on are used by forks (interleaved and K/KS/KT types); the table of GGUF ends well
// below.
constexpr uint32_t kFirstForkId = 97;
constexpr uint32_t kLastForkId = 999;

}  // namespace

const FormatInfo* format_info(uint32_t ggml_type) {
  for (const FormatInfo& info : kFormats) {
    if (static_cast<uint32_t>(info.format) == ggml_type) return &info;
  }
  return nullptr;
}

std::string_view refused_reason(uint32_t ggml_type) {
  switch (ggml_type) {
    case 4:
    case 5:  // Q4_2, Q4_3
    case 31:
    case 32:
    case 33:  // Q4_0 stored interleaved for one CPU
    case 36:
    case 37:
    case 38:  // IQ4_NL stored interleaved; 36 was taken again by a fork
      return "removed from GGUF, re-quantise the model";
    default: break;
  }
  if (ggml_type >= kFirstForkId && ggml_type <= kLastForkId) return "belongs to a fork";
  return "unknown";
}

}  // namespace engine
