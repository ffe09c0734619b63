// Gate A: every matmul row gives the bits of its scalar row, on every CPU target of this machine.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <string>

#include "tests/kernels/matmul_data.h"

namespace engine::test {
namespace {

constexpr int64_t kMatrixRows = 24;

struct Case {
  int64_t cols;
  int64_t row_begin, row_end;  // at most kMatrixRows
  int64_t n_tokens;
};

// The whole output, the places outside the asked rows included, as bytes.
std::vector<float> run(KernelEntry entry, const Case& c, const uint8_t* weights, int64_t row_bytes,
                       const uint8_t* act, int64_t act_stride_bytes) {
  constexpr int64_t kOutStride = kMatrixRows + 3;
  std::vector<float> out(static_cast<size_t>(c.n_tokens * kOutStride), -1234.5f);
  const MatmulArgs args = {.weights = weights,
                           .row_bytes = row_bytes,
                           .cols = c.cols,
                           .row_begin = c.row_begin,
                           .row_end = c.row_end,
                           .act = act,
                           .act_stride_bytes = act_stride_bytes,
                           .n_tokens = c.n_tokens,
                           .out = out.data(),
                           .out_stride = kOutStride};
  entry(&args);
  return out;
}

void check_case(const KernelRow& row, const KernelRow& scalar, Target target, const Case& c,
                Rng& rng) {
  const FormatInfo& info = *format_info(row.key.format);
  const int64_t row_bytes = c.cols / info.block_elements * info.block_bytes;
  Bytes weights(kMatrixRows * row_bytes);
  fill_weights(row.key.format, kMatrixRows, c.cols, rng, Range::kExtreme, weights.data());
  const int64_t stride = act_row_bytes(row.key.act, c.cols);
  Bytes act(c.n_tokens * stride);
  fill_act(row.key.act, c.cols, c.n_tokens, rng, act.data());
  const auto want =
      run(scalar.entry(Target::kScalar), c, weights.data(), row_bytes, act.data(), stride);
  const auto got = run(row.entry(target), c, weights.data(), row_bytes, act.data(), stride);
  INFO("cols " << c.cols << ", rows " << c.row_begin << ".." << c.row_end << ", tokens "
               << c.n_tokens);
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

}  // namespace

TEST_CASE("every matmul row equals its scalar row bit for bit") {
  Rng rng(20261130);
  for (const KernelRow* row : vector_rows(Op::kMatmul)) {
    if (row->key.layout != Layout::kStored) continue;
    const KernelRow* scalar = scalar_row(row->key);
    INFO(row->name);
    REQUIRE(scalar != nullptr);
    const int64_t unit = format_info(row->key.format)->block_elements;
    for (const Target target : cpu_targets()) {
      if (row->entry(target) == nullptr) continue;
      INFO("target " << static_cast<int>(target));
      // All sizes of K: 1 to 40 blocks, or 1 to 80 elements and a few larger ones for the float
      // formats.
      for (int64_t n = 1; n <= (unit == 1 ? 80 : 40); ++n) {
        const int64_t begin = n % 8;
        check_case(*row, *scalar, target, {n * unit, begin, begin + 1 + n % 16, 1 + n % 9}, rng);
      }
      // All row counts and token counts.
      for (int64_t rows = 1; rows <= 17; ++rows) {
        for (int64_t tokens = 1; tokens <= 9; ++tokens) {
          const int64_t begin = (rows + tokens) % 7;
          check_case(*row, *scalar, target,
                     {unit == 1 ? 333 : 3 * unit, begin, begin + rows, tokens}, rng);
        }
      }
    }
  }
}

TEST_CASE(
    "every executable format has a scalar matmul row, and a vector row where a target needs one") {
  for (const Format format : kAllFormats) {
    const FormatInfo* info = format_info(format);
    INFO(std::string(info->name));
    REQUIRE(info->executable);
    const KernelKey key = {
        .op = Op::kMatmul, .format = format, .layout = Layout::kStored, .act = info->act};
    const KernelRow* scalar = scalar_row(key);
    REQUIRE(scalar != nullptr);
    for (const Target target : cpu_targets()) {
      CHECK(scalar->entry(target) != nullptr);
      if (target == Target::kScalar) continue;
      bool found = false;
      for (const KernelRow* row : vector_rows(Op::kMatmul)) {
        found = found || (same_key(row->key, key) && row->entry(target) != nullptr);
      }
      CHECK(found);
    }
  }
}

}  // namespace engine::test
