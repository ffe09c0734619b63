// Gate A': the scalar matmul rows against decoded weights and float64, within a derived bound.
#include <catch2/catch_test_macros.hpp>
#include <cmath>

#include "lib/quant/quant_ref.h"
#include "tests/kernels/matmul_data.h"

namespace engine::test {
namespace {

constexpr double kRound = 0x1p-24;  // one f32 rounding, relative

// The largest minimum that a block of the format can subtract or add, from its own header.
double largest_min(Format format, const uint8_t* row, int64_t element) {
  const auto half = [](uint16_t bits) { return std::fabs(static_cast<double>(f16_to_f32(bits))); };
  switch (format) {
    case Format::kQ4_1: return half(reinterpret_cast<const BlockQ4_1*>(row)[element / 32].m);
    case Format::kQ5_1: return half(reinterpret_cast<const BlockQ5_1*>(row)[element / 32].m);
    case Format::kQ2_K:
      return 15 * half(reinterpret_cast<const BlockQ2_K*>(row)[element / 256].dmin);
    case Format::kQ4_K:
      return 63 * half(reinterpret_cast<const BlockQ4_K*>(row)[element / 256].dmin);
    case Format::kQ5_K:
      return 63 * half(reinterpret_cast<const BlockQ5_K*>(row)[element / 256].dmin);
    default: return 0;
  }
}

// Checks one scalar row on random data; returns the largest error as a part of its bound.
double check_row(const KernelRow& row, int64_t cols, Rng& rng) {
  constexpr int64_t kRows = 5;
  constexpr int64_t kTokens = 3;
  const FormatInfo& info = *format_info(row.key.format);
  const int64_t row_bytes = cols / info.block_elements * info.block_bytes;
  Bytes weights(kRows * row_bytes);
  fill_weights(row.key.format, kRows, cols, rng, Range::kModerate, weights.data());

  std::vector<float> x(static_cast<size_t>(kTokens * cols));
  for (float& value : x) value = uniform(rng, -3, 3);
  const bool is_float = row.key.act == ActType::kF32;
  const int64_t block = row.key.act == ActType::kQ8x32 ? 32 : 256;
  const int64_t act_bytes =
      row.key.act == ActType::kQ8x32 ? int64_t{sizeof(ActQ8x32)} : int64_t{sizeof(ActQ8x256)};
  const int64_t stride = is_float ? cols * 4 : cols / block * act_bytes;
  Bytes act(kTokens * stride);
  for (int64_t t = 0; t < kTokens; ++t) {
    uint8_t* out = act.data() + t * stride;
    if (is_float) {
      std::memcpy(out, x.data() + t * cols, static_cast<size_t>(stride));
    } else if (block == 32) {
      REQUIRE(quantize_act_q8x32(x.data() + t * cols, cols, reinterpret_cast<ActQ8x32*>(out)));
    } else {
      REQUIRE(quantize_act_q8x256(x.data() + t * cols, cols, reinterpret_cast<ActQ8x256*>(out)));
    }
  }

  std::vector<float> got(kTokens * kRows);
  const MatmulArgs args = {.weights = weights.data(),
                           .row_bytes = row_bytes,
                           .cols = cols,
                           .row_begin = 0,
                           .row_end = kRows,
                           .act = act.data(),
                           .act_stride_bytes = stride,
                           .n_tokens = kTokens,
                           .out = got.data(),
                           .out_stride = kRows};
  row.entry(Target::kScalar)(&args);

  // Roundings that a term meets: product of scales, integer to float, every later fma (two a block,
  // or one in 16 elements and four in the tree), and up to three in the decoded weight.
  const double float_steps =
      5 + (is_float ? static_cast<double>(cols) / 16 + 5
                    : 2 * static_cast<double>(cols) / static_cast<double>(block));
  double worst = 0;
  std::vector<float> w(static_cast<size_t>(cols));
  for (int64_t r = 0; r < kRows; ++r) {
    const uint8_t* weight_row = weights.data() + r * row_bytes;
    dequantize_row(row.key.format, weight_row, cols, w.data());
    for (int64_t t = 0; t < kTokens; ++t) {
      double exact = 0;
      double bound = 0;
      for (int64_t k = 0; k < cols; ++k) {
        const double wk = w[static_cast<size_t>(k)];
        const double xk = x[static_cast<size_t>(t * cols + k)];
        float d = 0;
        if (!is_float) std::memcpy(&d, act.data() + t * stride + k / block * act_bytes, sizeof(d));
        exact += wk * xk;
        // Activation rounding: half a step, and the roundings of x * (127 / amax) at up to 127
        // steps.
        bound += std::fabs(wk) * d * (0.5 + 4 * 127 * kRound);
        // A weight is the difference of two terms, each at most |w| + the minimum.
        const double parts = std::fabs(wk) + 2 * largest_min(row.key.format, weight_row, k);
        bound += float_steps * kRound * parts * (std::fabs(xk) + d);
      }
      const double error = std::fabs(got[static_cast<size_t>(t * kRows + r)] - exact);
      INFO("cols " << cols << ", row " << r << ", token " << t << ", exact " << exact);
      CHECK(error <= bound);
      worst = std::fmax(worst, error / bound);
    }
  }
  return worst;
}

}  // namespace

TEST_CASE("the scalar matmul rows stay within the derived bound of float64") {
  Rng rng(7);
  int checked = 0;
  for (const KernelRow& row : kernel_rows()) {
    if (row.key.op != Op::kMatmul || !is_scalar_row(row)) continue;
    if (row.key.layout != Layout::kStored) continue;
    INFO(row.name);
    double worst = 0;
    for (const int64_t cols : {256, 512, 1024, 2048}) {
      for (int i = 0; i < 4; ++i) worst = std::fmax(worst, check_row(row, cols, rng));
    }
    // A bound that nothing comes near would hide faults. Rounding errors of random signs reach a
    // few percent of a bound that adds them all up; float rows far less.
    CHECK((row.key.act == ActType::kF32 || worst > 0.01));
    ++checked;
  }
  CHECK(checked == 18);
}

}  // namespace engine::test
