// Which Highway targets are compiled, and how a kernel's entry for one of them is picked.
//
// Include this before any Highway header, in every file that uses foreach_target.h. Pattern of a
// file:
//
//   #undef HWY_TARGET_INCLUDE
//   #define HWY_TARGET_INCLUDE "backends/cpu/add.cc"
//   #include "backends/cpu/hwy_targets.h"
//   #include "hwy/foreach_target.h"  // IWYU pragma: keep
//   #include "hwy/highway.h"
//   #if ENGINE_HWY_FMA_TARGET
//   HWY_BEFORE_NAMESPACE();
//   namespace engine::HWY_NAMESPACE {
//   void add(const void* args) { ... }
//   }  // namespace engine::HWY_NAMESPACE
//   HWY_AFTER_NAMESPACE();
//   #endif
//   #if HWY_ONCE
//   namespace engine {
//   ENGINE_HWY_ENTRY(add__cpu_hwy, add)
//   }
//   #endif
#ifndef ENGINE_BACKENDS_CPU_HWY_TARGETS_H_
#define ENGINE_BACKENDS_CPU_HWY_TARGETS_H_

#ifdef HIGHWAY_HWY_DETECT_TARGETS_H_
#error "include backends/cpu/hwy_targets.h before any Highway header"
#endif

// Highway compiles AVX3_DL (VNNI; Ice Lake, Zen 4) only for those who ask.
#define HWY_WANT_AVX3_DL

// Compiled: AVX2, AVX3, AVX3_DL, AVX3_SPR; NEON. SSE and the emulated baselines have no fused
// multiply-add and would break bit identity; SVE is not tested; NEON with AES or bf16 would repeat
// the code of plain NEON, since no kernel uses those instructions. Bit 3 is
// HWY_AVX10_2, which Highway 1.2 does not name yet.
// Builds for sanitizers, fuzzers and coverage have one of the four x86 targets (CMakeLists.txt): the
// others are the same templates, and clang needs minutes for each with a sanitizer.
#ifdef ENGINE_FEW_TARGETS
#define ENGINE_LEFT_OUT_TARGETS (HWY_AVX3 | HWY_AVX3_DL | HWY_AVX3_SPR)
#else
#define ENGINE_LEFT_OUT_TARGETS 0
#endif
#define HWY_DISABLED_TARGETS                                                                 \
  (HWY_SSE2 | HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_ZEN4 | (1LL << 3) | HWY_NEON | HWY_NEON_BF16 | \
   HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | ENGINE_LEFT_OUT_TARGETS)

// True while compiling a target that has fused multiply-add. Highway always compiles one baseline,
// which on x86-64 is scalar emulation: kernels leave it out with #if ENGINE_HWY_FMA_TARGET.
#define ENGINE_HWY_FMA_TARGET (HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128)

#include "lib/contract/kernel.h"

// Defines `KernelEntry entry(Target)`: the function `fn` of each compiled target's namespace,
// nullptr for a target that is not compiled. It reads no process-wide state, unlike
// HWY_DYNAMIC_DISPATCH.
#define ENGINE_HWY_ENTRY(entry, fn)                                         \
  ::engine::KernelEntry entry(::engine::Target target) {                    \
    switch (target) {                                                       \
      case ::engine::Target::kAvx2: return HWY_CHOOSE_AVX2(fn);             \
      case ::engine::Target::kAvx3: return HWY_CHOOSE_AVX3(fn);             \
      case ::engine::Target::kAvx3Dl: return HWY_CHOOSE_AVX3_DL(fn);        \
      case ::engine::Target::kAvx3Spr:                                      \
      case ::engine::Target::kAmx: return HWY_CHOOSE_AVX3_SPR(fn);          \
      case ::engine::Target::kNeon: return HWY_CHOOSE_NEON_WITHOUT_AES(fn); \
      case ::engine::Target::kScalar: break;                                \
    }                                                                       \
    return nullptr;                                                         \
  }

#endif  // ENGINE_BACKENDS_CPU_HWY_TARGETS_H_
