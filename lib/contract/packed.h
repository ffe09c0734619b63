// Weights in the layout that a plan's kernels read.
#ifndef ENGINE_LIB_CONTRACT_PACKED_H_
#define ENGINE_LIB_CONTRACT_PACKED_H_

#include <cstdint>
#include <vector>

namespace engine {

// Layout::kRows16 form of a weight; data is nullptr where there is none.
struct PackedWeight {
  const uint8_t* data = nullptr;
  int64_t row_bytes = 0;     // a sixteenth of a strip
  int64_t matrix_bytes = 0;  // from an expert's matrix to the next one's
};
using PackedWeights = std::vector<PackedWeight>;  // per weight of the program

}  // namespace engine

#endif  // ENGINE_LIB_CONTRACT_PACKED_H_
