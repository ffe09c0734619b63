// Gate A for the quantise rows, and the rule of lib/quant/activation.h on values chosen by hand.
#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <limits>

#include "tests/kernels/matmul_data.h"

namespace engine::test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

int64_t block_of(ActType act) { return act == ActType::kQ8x32 ? 32 : 256; }
int64_t bytes_of(ActType act) {
  return act == ActType::kQ8x32 ? int64_t{sizeof(ActQ8x32)} : int64_t{sizeof(ActQ8x256)};
}

struct Result {
  std::vector<uint8_t> bytes;
  bool finite = true;
};

Result run(KernelEntry entry, ActType act, const std::vector<float>& x, int64_t width,
           int64_t n_rows) {
  const int64_t stride = (width / block_of(act) * bytes_of(act) + 127) / 64 * 64;
  Bytes out(n_rows * stride);
  Result result;
  const QuantizeArgs args = {.x = x.data(),
                             .x_stride = static_cast<int64_t>(x.size()) / n_rows,
                             .width = width,
                             .n_rows = n_rows,
                             .out = out.data(),
                             .out_stride_bytes = stride,
                             .finite = &result.finite};
  entry(&args);
  result.bytes.assign(out.data(), out.data() + n_rows * stride);
  return result;
}

void check_same(const KernelRow& row, Target target, const std::vector<float>& x, int64_t width,
                int64_t n_rows) {
  const Result want =
      run(scalar_row(row.key)->entry(Target::kScalar), row.key.act, x, width, n_rows);
  const Result got = run(row.entry(target), row.key.act, x, width, n_rows);
  INFO(row.name << ", target " << static_cast<int>(target));
  CHECK(want.finite == got.finite);
  CHECK((want.bytes == got.bytes));
}

}  // namespace

TEST_CASE("every quantise row equals its scalar row bit for bit") {
  Rng rng(11);
  for (const KernelRow* row : vector_rows(Op::kQuantize)) {
    REQUIRE(scalar_row(row->key) != nullptr);
    for (const Target target : cpu_targets()) {
      if (row->entry(target) == nullptr) continue;
      const int64_t block = block_of(row->key.act);
      for (int64_t n_blocks = 1; n_blocks <= 9; ++n_blocks) {
        for (int64_t n_rows = 1; n_rows <= 3; ++n_rows) {
          std::vector<float> x(static_cast<size_t>(n_rows * (n_blocks * block + 5)));
          for (size_t i = 0; i < x.size(); ++i) {
            x[i] = random_float(rng, Range::kExtreme);
            // Magnitudes from subnormal to near the largest float, a block at a time.
            const int exponent = static_cast<int>(i / 32 * 37 % 270) - 145;
            x[i] = std::ldexp(x[i], exponent);
            if (!std::isfinite(x[i])) x[i] = std::numeric_limits<float>::max();
          }
          check_same(*row, target, x, n_blocks * block, n_rows);
        }
      }
      // Ties: with a largest value of 127 the scale is 1, so halves are exact.
      std::vector<float> ties(static_cast<size_t>(block));
      for (size_t i = 0; i < ties.size(); ++i) ties[i] = static_cast<float>(i % 32) - 15.5f;
      ties[3] = -127;
      check_same(*row, target, ties, block, 1);
      // Either side of the largest magnitude whose inverse overflows.
      for (const float amax : {3.7321e-37f, 3.7322e-37f, 3.7323e-37f, 1e-45f, 0.0f, -0.0f}) {
        std::vector<float> tiny(static_cast<size_t>(block), amax / 2);
        tiny[7] = -amax;
        check_same(*row, target, tiny, block, 1);
      }
      // One bad value at every place of the middle one of three blocks.
      for (const float bad : {kNan, -kNan, kInf, -kInf}) {
        for (int64_t i = 0; i < block; ++i) {
          std::vector<float> x(static_cast<size_t>(3 * block), 0.75f);
          x[static_cast<size_t>(block + i)] = bad;
          check_same(*row, target, x, 3 * block, 1);
        }
      }
    }
  }
}

TEST_CASE("the quantise rows follow the rule on values chosen by hand") {
  for (const KernelRow& row : kernel_rows()) {
    if (row.key.op != Op::kQuantize) continue;
    for (const Target target : cpu_targets()) {
      const KernelEntry entry = row.entry(target);
      if (entry == nullptr) continue;
      INFO(row.name << ", target " << static_cast<int>(target));
      const int64_t block = block_of(row.key.act);
      std::vector<float> x(static_cast<size_t>(block), 0.0f);
      const float values[] = {-127, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, 126.5f, 125.5f};
      const int want[] = {-127, 0, 2, 2, 0, -2, 126, 126};
      std::memcpy(x.data(), values, sizeof(values));
      const Result result = run(entry, row.key.act, x, block, 1);
      CHECK(result.finite);
      float d = 0;
      std::memcpy(&d, result.bytes.data(), sizeof(d));
      CHECK(d == 1.0f);
      const size_t q_offset =
          row.key.act == ActType::kQ8x32 ? offsetof(ActQ8x32, q) : offsetof(ActQ8x256, q);
      int sum = 0;
      for (size_t i = 0; i < 8; ++i) {
        CHECK(int{static_cast<int8_t>(result.bytes[q_offset + i])} == want[i]);
        sum += want[i];
      }
      if (row.key.act == ActType::kQ8x32) {
        int32_t stored = 0;
        std::memcpy(&stored, result.bytes.data() + offsetof(ActQ8x32, sum), sizeof(stored));
        CHECK(stored == sum);
      } else {
        int16_t stored[16];
        std::memcpy(stored, result.bytes.data() + offsetof(ActQ8x256, sum16), sizeof(stored));
        CHECK(stored[0] == sum);
        for (int j = 1; j < 16; ++j) CHECK(stored[j] == 0);
      }
      x[static_cast<size_t>(block - 1)] = kNan;
      CHECK_FALSE(run(entry, row.key.act, x, block, 1).finite);
    }
  }
}

}  // namespace engine::test
