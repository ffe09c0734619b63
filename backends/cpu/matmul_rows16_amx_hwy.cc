// Matmul rows of all packed formats on AMX tiles, for the target amx alone.
#ifndef ENGINE_AMX_ROWS  // the file is included once per target
#define ENGINE_AMX_ROWS(ROW)           \
  ROW(q4_0, Tiles32<rows16::Q4_0>)     \
  ROW(q4_1, Tiles32<rows16::Q4_1>)     \
  ROW(q5_0, Tiles32<rows16::Q5_0>)     \
  ROW(q5_1, Tiles32<rows16::Q5_1>)     \
  ROW(q8_0, Tiles32<rows16::Q8_0>)     \
  ROW(iq4_nl, Tiles32<rows16::IQ4_NL>) \
  ROW(mxfp4, Tiles32<rows16::MXFP4>)   \
  ROW(q2_k, Tiles256<rows16::Q2_K>)    \
  ROW(q3_k, Tiles256<rows16::Q3_K>)    \
  ROW(q4_k, Tiles256<rows16::Q4_K>)    \
  ROW(q5_k, Tiles256<rows16::Q5_K>)    \
  ROW(q6_k, Tiles256<rows16::Q6_K>)    \
  ROW(iq4_xs, Tiles256<rows16::IQ4_XS>)
#endif

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
ENGINE_AMX_ROWS(ENGINE_AMX_ROW)
#undef ENGINE_AMX_ROW

}  // namespace engine::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET == HWY_AVX3_SPR

#if HWY_ONCE
namespace engine {

#define ENGINE_AMX_ENTRY(name, Rule)                                                    \
  KernelEntry matmul_##name##_rows16_amx(Target target) {                               \
    return target == Target::kAmx ? HWY_CHOOSE_AVX3_SPR(matmul_##name##_amx) : nullptr; \
  }
ENGINE_AMX_ROWS(ENGINE_AMX_ENTRY)
#undef ENGINE_AMX_ENTRY

}  // namespace engine
#endif  // HWY_ONCE
