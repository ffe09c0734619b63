// RMSNorm: every row gives the scalar row's bits, and the scalar row is right within a derived
// bound.
#include "tests/kernels/pointwise_data.h"

namespace engine::test {
namespace {

Floats run(KernelEntry entry, const Floats& x, const float* weight, int64_t width, int64_t n_rows,
           int64_t stride, bool in_place) {
  Floats work(x);
  Floats out(n_rows * stride, -7.0f);
  const RmsNormArgs args = {.x = work.data(),
                            .x_stride = stride,
                            .weight = weight,
                            .width = width,
                            .n_rows = n_rows,
                            .eps = 1e-5f,
                            .out = in_place ? work.data() : out.data(),
                            .out_stride = stride};
  entry(&args);
  return in_place ? work : out;
}

}  // namespace

TEST_CASE("rms_norm rows give the scalar row's bits") {
  Rng rng(7);
  const KernelEntry scalar = scalar_entry(Op::kRmsNorm);
  for (const int64_t width : {1,  2,  3,  7,  8,  9,  15,  16,  17,  23,  24,  25,  31,   32,  33,
                              40, 47, 49, 63, 64, 65, 100, 127, 128, 256, 576, 640, 1000, 2048}) {
    const int64_t stride = width + 3;
    const Floats x = random_floats(rng, 3 * stride, -30.0f, 30.0f);
    Floats weight = random_floats(rng, width, -2.0f, 2.0f);
    for (const bool weighted : {false, true}) {
      for (const bool in_place : {false, true}) {
        CAPTURE(width, weighted, in_place);
        const float* w = weighted ? weight.data() : nullptr;
        const Floats want = run(scalar, x, w, width, 3, stride, in_place);
        for_each_vector_entry(Op::kRmsNorm, KvType::kF16, [&](KernelEntry entry) {
          CHECK(same_bits(run(entry, x, w, width, 3, stride, in_place), want));
        });
      }
    }
  }
}

// Every term of the sum is rounded at most ceil(width / 16) + 4 times, all terms are positive; the
// mean, eps, root and quotient add 4 roundings, the two products 2; the root halves what comes
// before it.
TEST_CASE("the scalar rms_norm is right") {
  Rng rng(8);
  for (const int64_t width : {1, 16, 17, 576, 2048}) {
    const Floats x = random_floats(rng, width, -4.0f, 4.0f);
    Floats weight = random_floats(rng, width, -2.0f, 2.0f);
    const Floats got = run(scalar_entry(Op::kRmsNorm), x, weight.data(), width, 1, width, false);
    double sum = 0;
    for (int64_t i = 0; i < width; ++i) sum += static_cast<double>(x[i]) * x[i];
    const double inv =
        1.0 / std::sqrt(sum / static_cast<double>(width) + static_cast<double>(1e-5f));
    const double roundings = 0.5 * (static_cast<double>((width + 15) / 16) + 4 + 2) + 4;
    for (int64_t i = 0; i < width; ++i) {
      const double want = x[i] * inv * weight[i];
      CHECK(std::fabs(got[i] - want) <= 1.01 * roundings * kUnit * std::fabs(want));
    }
  }
}

}  // namespace engine::test
