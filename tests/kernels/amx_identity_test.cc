// Gate A for the AMX rows on emulated tiles: the bits of the scalar row on the stored matrix. On a machine with AMX
// rows16_identity_test.cc runs the same rows on the hardware.
// clang-format off: the order matters, foreach_target.h includes this file once per target
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/kernels/amx_identity_test.cc"
#include "backends/cpu/hwy_targets.h"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
// clang-format on

#include "backends/cpu/rows16_amx-inl.h"
#include "tests/kernels/emulated_tiles.h"

// The target of the hardware row, and the one that every x86 machine here runs.
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3_SPR
HWY_BEFORE_NAMESPACE();
namespace engine::HWY_NAMESPACE {

void emulated_matmul(Format format, const MatmulArgs& args, test::EmulatedTiles& tiles) {
  using namespace rows16;
  switch (format) {
    case Format::kQ4_0: return for_tile_strips<Tiles32<Q4_0>>(&args, tiles);
    case Format::kQ4_1: return for_tile_strips<Tiles32<Q4_1>>(&args, tiles);
    case Format::kQ5_0: return for_tile_strips<Tiles32<Q5_0>>(&args, tiles);
    case Format::kQ5_1: return for_tile_strips<Tiles32<Q5_1>>(&args, tiles);
    case Format::kQ8_0: return for_tile_strips<Tiles32<Q8_0>>(&args, tiles);
    case Format::kIQ4_NL: return for_tile_strips<Tiles32<IQ4_NL>>(&args, tiles);
    case Format::kMXFP4: return for_tile_strips<Tiles32<MXFP4>>(&args, tiles);
    case Format::kIQ4_XS: return for_tile_strips<Tiles256<IQ4_XS>>(&args, tiles);
    case Format::kQ2_K: return for_tile_strips<Tiles256<Q2_K>>(&args, tiles);
    case Format::kQ3_K: return for_tile_strips<Tiles256<Q3_K>>(&args, tiles);
    case Format::kQ4_K: return for_tile_strips<Tiles256<Q4_K>>(&args, tiles);
    case Format::kQ5_K: return for_tile_strips<Tiles256<Q5_K>>(&args, tiles);
    case Format::kQ6_K: return for_tile_strips<Tiles256<Q6_K>>(&args, tiles);
    default: return;
  }
}

}  // namespace engine::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif

#if HWY_ONCE
#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <string>

#include "tests/kernels/matmul_data.h"
#include "tests/kernels/packed_case.h"

namespace engine::test {
namespace {

using Emulated = void (*)(Format, const MatmulArgs&, EmulatedTiles&);

Emulated emulated(Target target) {
  switch (target) {
    case Target::kAvx2: return HWY_CHOOSE_AVX2(emulated_matmul);
    case Target::kAvx3Spr: return HWY_CHOOSE_AVX3_SPR(emulated_matmul);
    default: return nullptr;
  }
}

}  // namespace

TEST_CASE("AMX rows on emulated tiles equal the scalar row on the stored matrix bit for bit") {
  Rng rng(164);
  int targets = 0;
  for (const Target target : cpu_targets()) {
    const Emulated matmul = emulated(target);
    if (matmul == nullptr) continue;
    ++targets;
    INFO("target " << target_name(target));
    for (const Format format : kAllFormats) {
      if (!can_pack(format)) continue;
      INFO(std::string(format_info(format)->name));
      const int64_t unit = format_info(format)->block_elements;
      const auto check = [&](const PackedCase& c) {
        EmulatedTiles tiles;
        check_packed(format, c, rng, [&](const MatmulArgs& args) { matmul(format, args, tiles); });
        const int64_t groups = (c.n_tokens + 15) / 16;
        const int64_t strips = (c.row_end - c.row_begin + 15) / 16;
        CHECK(tiles.faults == 0);
        CHECK(tiles.multiplied >= groups * strips * (c.cols / unit));
      };
      for (const int64_t tokens : {1, 4, 15, 16, 17, 31, 33, 128, 129, 150}) {
        check({40, 3 * unit, 0, 40, tokens});
      }
      for (int64_t n = 1; n <= 17; ++n) check({16 + n, n * unit, 0, 16 + n, 20});
      check({112, 2 * unit, 16, 96, 8});
    }
  }
  if (targets == 0) SKIP("no target of this machine has the rows");
}

TEST_CASE("the AMX rows split long rows of activations into chunks of tokens") {
  Rng rng(165);
  for (const Target target : cpu_targets()) {
    const Emulated matmul = emulated(target);
    if (matmul == nullptr) continue;
    EmulatedTiles tiles;
    // 16,384 columns are 20 KB a token: 48 tokens are chunks of 48, with 50 two chunks of 32 and 18.
    const PackedCase c = {16, 64 * 256, 0, 16, 50};
    check_packed(Format::kQ4_K, c, rng,
                 [&](const MatmulArgs& args) { matmul(Format::kQ4_K, args, tiles); });
    CHECK(tiles.multiplied == (2 + 2) * 64 * 4 * 2);
  }
}

}  // namespace engine::test
#endif  // HWY_ONCE
