// Matmul rows of all packed formats on AMX tiles, for the target amx alone.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/matmul_rows16_amx_hwy.cc"
#include "backends/cpu/hwy_targets.h"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target.h
#include "backends/cpu/cpu_kernels.h"
#include "backends/cpu/rows16_amx-inl.h"

#if HWY_TARGET == HWY_AVX3_SPR
HWY_BEFORE_NAMESPACE();
namespace engine::HWY_NAMESPACE {
namespace rows16 {

// A tile instruction takes as long for one token as for 16 (shared design notes, 2 x Sapphire Rapids): up to three
// tokens the vector row is faster.
constexpr int64_t kFewTokens = 3;

template <class Rule>
HWY_INLINE void matmul_amx(const void* args, KernelEntry few_tokens) {
  if (static_cast<const MatmulArgs*>(args)->n_tokens <= kFewTokens) return few_tokens(args);
  HardwareTiles tiles;
  for_tile_strips<Rule>(args, tiles);
}

}  // namespace rows16

#define ENGINE_AMX_ROW(name, Rule)                                                    \
  void matmul_##name##_amx(const void* args) {                                        \
    rows16::matmul_amx<rows16::Rule>(args, matmul_##name##_rows16_hwy(Target::kAmx)); \
  }
ENGINE_AMX_ROW(q4_0, Tiles32<rows16::Q4_0>)
ENGINE_AMX_ROW(q4_1, Tiles32<rows16::Q4_1>)
ENGINE_AMX_ROW(q5_0, Tiles32<rows16::Q5_0>)
ENGINE_AMX_ROW(q5_1, Tiles32<rows16::Q5_1>)
ENGINE_AMX_ROW(q8_0, Tiles32<rows16::Q8_0>)
ENGINE_AMX_ROW(iq4_nl, Tiles32<rows16::IQ4_NL>)
ENGINE_AMX_ROW(q2_k, Tiles256<rows16::Q2_K>)
ENGINE_AMX_ROW(q3_k, Tiles256<rows16::Q3_K>)
ENGINE_AMX_ROW(q4_k, Tiles256<rows16::Q4_K>)
ENGINE_AMX_ROW(q5_k, Tiles256<rows16::Q5_K>)
ENGINE_AMX_ROW(q6_k, Tiles256<rows16::Q6_K>)
ENGINE_AMX_ROW(iq4_xs, Tiles256<rows16::IQ4_XS>)
#undef ENGINE_AMX_ROW

}  // namespace engine::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET == HWY_AVX3_SPR

#if HWY_ONCE
namespace engine {

#define ENGINE_AMX_ENTRY(name)                                                          \
  KernelEntry matmul_##name##_rows16_amx(Target target) {                               \
    return target == Target::kAmx ? HWY_CHOOSE_AVX3_SPR(matmul_##name##_amx) : nullptr; \
  }
ENGINE_AMX_ENTRY(q4_0)
ENGINE_AMX_ENTRY(q4_1)
ENGINE_AMX_ENTRY(q5_0)
ENGINE_AMX_ENTRY(q5_1)
ENGINE_AMX_ENTRY(q8_0)
ENGINE_AMX_ENTRY(q2_k)
ENGINE_AMX_ENTRY(q3_k)
ENGINE_AMX_ENTRY(q4_k)
ENGINE_AMX_ENTRY(q5_k)
ENGINE_AMX_ENTRY(q6_k)
ENGINE_AMX_ENTRY(iq4_nl)
ENGINE_AMX_ENTRY(iq4_xs)
#undef ENGINE_AMX_ENTRY

}  // namespace engine
#endif  // HWY_ONCE
