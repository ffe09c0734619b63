// The tile unit of backends/cpu/amx_tiles.h in plain C++, with the checks that make the hardware raise #UD (Intel SDM
// volume 2, TILELOADD and TDPBSSD): a kernel that runs clean here uses shapes that exist.
#ifndef ENGINE_TESTS_KERNELS_EMULATED_TILES_H_
#define ENGINE_TESTS_KERNELS_EMULATED_TILES_H_

#include <cstdint>
#include <cstring>

#include "backends/cpu/amx_tiles.h"

namespace engine::test {

class EmulatedTiles {
 public:
  void configure(const TileConfig& config) {
    config_ = config;
    std::memset(tiles_, 0, sizeof(tiles_));
    if (config.palette != 1) ++faults;
    for (int i = 0; i < 8; ++i) {
      if (config.rows[i] > 16 || config.row_bytes[i] > 64) ++faults;
      if ((config.rows[i] == 0) != (config.row_bytes[i] == 0)) ++faults;
    }
    ++configured;
  }
  void release() { config_ = {}; }

  template <int kTile>
  void zero() {
    check(kTile);
    std::memset(tiles_[kTile], 0, sizeof(tiles_[kTile]));
  }
  template <int kTile>
  void load(const void* rows, int64_t stride_bytes) {
    zero<kTile>();
    for (int r = 0; r < config_.rows[kTile]; ++r) {
      std::memcpy(tiles_[kTile][r], static_cast<const uint8_t*>(rows) + r * stride_bytes,
                  config_.row_bytes[kTile]);
    }
  }
  template <int kTile>
  void store(void* rows, int64_t stride_bytes) {
    check(kTile);
    for (int r = 0; r < config_.rows[kTile]; ++r) {
      std::memcpy(static_cast<uint8_t*>(rows) + r * stride_bytes, tiles_[kTile][r],
                  config_.row_bytes[kTile]);
    }
  }
  template <int kSums, int kA, int kB, bool kSignedB>
  void multiply() {
    check(kSums);
    check(kA);
    check(kB);
    if (config_.rows[kSums] != config_.rows[kA]) ++faults;
    if (config_.row_bytes[kSums] != config_.row_bytes[kB]) ++faults;
    if (config_.row_bytes[kA] != 4 * config_.rows[kB]) ++faults;
    for (int m = 0; m < config_.rows[kSums]; ++m) {
      for (int n = 0; n < config_.row_bytes[kSums] / 4; ++n) {
        int32_t sum;
        std::memcpy(&sum, tiles_[kSums][m] + 4 * n, sizeof(sum));
        for (int k = 0; k < config_.row_bytes[kA]; ++k) {
          const uint8_t b = tiles_[kB][k / 4][4 * n + k % 4];
          sum += static_cast<int8_t>(tiles_[kA][m][k]) * (kSignedB ? static_cast<int8_t>(b) : b);
        }
        std::memcpy(tiles_[kSums][m] + 4 * n, &sum, sizeof(sum));
      }
    }
    ++multiplied;
  }

  int faults = 0;  // what the hardware refuses
  int64_t configured = 0;
  int64_t multiplied = 0;

 private:
  void check(int tile) { faults += config_.palette != 1 || config_.rows[tile] == 0 ? 1 : 0; }

  TileConfig config_;
  uint8_t tiles_[8][16][64] = {};
};

}  // namespace engine::test

#endif  // ENGINE_TESTS_KERNELS_EMULATED_TILES_H_
