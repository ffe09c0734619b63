// The tile unit of AMX (Intel SDM volume 2, "AMX Instruction Set"): eight registers of up to 16 rows of 64 bytes, and
// one that multiplies int8 matrices into an int32 one, exactly.
//
// Kernels take the unit as a template parameter: this is the hardware's; tests/kernels/emulated_tiles.h does the same
// in plain C++, so that their logic is checked on machines without AMX. Assembler statements, not intrinsics, since
// those need a target attribute that Highway's targets do not carry.
#ifndef ENGINE_BACKENDS_CPU_AMX_TILES_H_
#define ENGINE_BACKENDS_CPU_AMX_TILES_H_

#include <cstdint>

namespace engine {

// What LDTILECFG reads. Palette 0: no tiles.
struct TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};
static_assert(sizeof(TileConfig) == 64);

#if defined(__x86_64__)

class HardwareTiles {
 public:
  void configure(const TileConfig& config) { asm volatile("ldtilecfg %0" ::"m"(config)); }
  // Without it a switch to another process saves the tiles.
  void release() { asm volatile("tilerelease" ::); }

  template <int kTile>
  void zero() {
    asm volatile("tilezero %%tmm%c0" ::"i"(kTile));
  }
  template <int kTile>
  void load(const void* rows, int64_t stride_bytes) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(rows), "r"(stride_bytes), "i"(kTile)
                 : "memory");
  }
  template <int kTile>
  void store(void* rows, int64_t stride_bytes) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(rows), "r"(stride_bytes), "i"(kTile)
                 : "memory");
  }
  // sums[m][n] += a[m][4k + i] * b[k][4n + i] over k and i; a signed, b unsigned or signed.
  template <int kSums, int kA, int kB, bool kSignedB>
  void multiply() {
    if constexpr (kSignedB) {
      asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSums), "i"(kA), "i"(kB));
    } else {
      asm volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSums), "i"(kA), "i"(kB));
    }
  }
};

#endif  // __x86_64__

}  // namespace engine

#endif  // ENGINE_BACKENDS_CPU_AMX_TILES_H_
