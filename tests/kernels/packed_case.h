// A product of a packed matrix, compared with the scalar row on the stored one.
#ifndef ENGINE_TESTS_KERNELS_PACKED_CASE_H_
#define ENGINE_TESTS_KERNELS_PACKED_CASE_H_

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstring>
#include <vector>

#include "lib/quant/pack.h"
#include "tests/kernels/matmul_data.h"

namespace engine::test {

struct PackedCase {
  int64_t rows, cols;
  int64_t row_begin, row_end;
  int64_t n_tokens;
};

// A stored matrix, and the same packed.
struct PackedMatrix {
  PackedMatrix(Format format, const PackedCase& c, Rng& rng)
      : row_bytes(c.cols / format_info(format)->block_elements * format_info(format)->block_bytes),
        stored(c.rows * row_bytes),
        packed(packed_bytes(format, c.rows, c.cols)) {
    fill_weights(format, c.rows, c.cols, rng, Range::kExtreme, stored.data());
    pack_rows(format, stored.data(), row_bytes, c.cols, 0, c.rows, packed.data());
  }
  int64_t row_bytes;
  Bytes stored, packed;
};

// The whole output, the places outside the asked rows included. matmul(const MatmulArgs&).
template <class Matmul>
std::vector<float> run_packed(const Matmul& matmul, const PackedCase& c, const uint8_t* weights,
                              int64_t row_bytes, const uint8_t* act, int64_t act_stride_bytes) {
  const int64_t out_stride = c.rows + 3;
  std::vector<float> out(static_cast<size_t>(c.n_tokens * out_stride), -1234.5f);
  const MatmulArgs args = {.weights = weights,
                           .row_bytes = row_bytes,
                           .cols = c.cols,
                           .row_begin = c.row_begin,
                           .row_end = c.row_end,
                           .act = act,
                           .act_stride_bytes = act_stride_bytes,
                           .n_tokens = c.n_tokens,
                           .out = out.data(),
                           .out_stride = out_stride};
  matmul(args);
  return out;
}

template <class Matmul>
void check_packed(Format format, const PackedCase& c, Rng& rng, const Matmul& matmul) {
  PackedMatrix m(format, c, rng);
  const ActType act_type = format_info(format)->act;
  const int64_t stride = act_row_bytes(act_type, c.cols);
  Bytes act(c.n_tokens * stride);
  fill_act(act_type, c.cols, c.n_tokens, rng, act.data());
  const KernelKey key = {
      .op = Op::kMatmul, .format = format, .layout = Layout::kStored, .act = act_type};
  const KernelEntry scalar = scalar_row(key)->entry(Target::kScalar);
  const auto want = run_packed([&](const MatmulArgs& args) { scalar(&args); }, c, m.stored.data(),
                               m.row_bytes, act.data(), stride);
  const auto got = run_packed(matmul, c, m.packed.data(), m.row_bytes, act.data(), stride);
  INFO("cols " << c.cols << ", rows " << c.row_begin << ".." << c.row_end << " of " << c.rows
               << ", tokens " << c.n_tokens);
  const auto differs = std::mismatch(want.begin(), want.end(), got.begin(), [](float a, float b) {
    return std::memcmp(&a, &b, sizeof(float)) == 0;
  });
  if (differs.first != want.end()) {
    INFO("element " << differs.first - want.begin() << ": scalar " << *differs.first << ", row "
                    << *differs.second);
    FAIL();
  }
  for (float value : want) {
    if (std::isnan(value)) FAIL("the case does not test: the scalar row gives a NaN");
  }
}

}  // namespace engine::test

#endif  // ENGINE_TESTS_KERNELS_PACKED_CASE_H_
