// Gate A of the element-wise ops: every row gives the bits of its scalar row.
#include "tests/kernels/pointwise_data.h"

namespace engine::test {
namespace {

constexpr int64_t kWidths[] = {1,  2,  3,  4,  5,  7,  8,  9,  12, 15, 16,  17,  23,
                               24, 25, 31, 32, 33, 47, 48, 63, 64, 65, 127, 576, 1000};

}  // namespace

TEST_CASE("add rows give the scalar row's bits") {
  Rng rng(1);
  const KernelEntry scalar = scalar_entry(Op::kAdd);
  for (const int64_t width : kWidths) {
    for (const float scale : {1.0f, 0.22f}) {
      const bool one_row = rng() % 2 == 0;
      const int64_t stride = width + 3;
      const Floats a = wild_floats(rng, 3 * stride);
      const Floats b = wild_floats(rng, 3 * stride);
      const auto run = [&](KernelEntry entry, int alias) {
        Floats x(a), y(b), z(3 * stride, -7.0f);
        Floats& out = alias == 0 ? z : alias == 1 ? x : y;
        const AddArgs args = {.a = x.data(),
                              .a_stride = stride,
                              .b = y.data(),
                              .b_stride = one_row ? 0 : stride,
                              .width = width,
                              .n_rows = 3,
                              .out = out.data(),
                              .out_stride = stride,
                              .scale = scale};
        entry(&args);
        return Floats(out);
      };
      for (const int alias : {0, 1, 2}) {
        if (alias == 2 && one_row) continue;  // rows would overwrite the one b
        const Floats want = run(scalar, alias);
        CAPTURE(width, one_row, alias, scale);
        for_each_vector_entry(Op::kAdd, KvType::kF16, [&](KernelEntry entry) {
          CHECK(same_bits(run(entry, alias), want));
        });
      }
    }
  }
}

TEST_CASE("gated activation rows give the scalar row's bits") {
  Rng rng(2);
  const KernelEntry scalar = scalar_entry(Op::kGatedAct);
  for (const int64_t width : kWidths) {
    for (const Activation act :
         {Activation::kSilu, Activation::kGeluTanh, Activation::kSwigluClamped}) {
      const int64_t stride = width + 5;
      const Floats gate = wild_floats(rng, 2 * stride);
      const Floats up = random_floats(rng, 2 * stride, -9.0f, 9.0f);
      const auto run = [&](KernelEntry entry, int alias) {
        Floats x(gate), y(up), z(2 * stride, -7.0f);
        Floats& out = alias == 0 ? z : alias == 1 ? x : y;
        const GatedActArgs args = {.gate = x.data(),
                                   .up = y.data(),
                                   .stride = stride,
                                   .width = width,
                                   .n_rows = 2,
                                   .act = act,
                                   .out = out.data()};
        entry(&args);
        return Floats(out);
      };
      for (const int alias : {0, 1, 2}) {
        const Floats want = run(scalar, alias);
        CAPTURE(width, act, alias);
        for_each_vector_entry(Op::kGatedAct, KvType::kF16, [&](KernelEntry entry) {
          CHECK(same_bits(run(entry, alias), want));
        });
      }
    }
  }
}

TEST_CASE("soft-cap rows give the scalar row's bits") {
  Rng rng(3);
  const KernelEntry scalar = scalar_entry(Op::kSoftcap);
  for (const int64_t width : kWidths) {
    for (const float cap : {0.0f, 1.0f, 30.0f, 50.0f}) {
      const int64_t stride = width + 2;
      const Floats x = wild_floats(rng, 2 * stride);
      const auto run = [&](KernelEntry entry) {
        Floats out(x);
        const SoftcapArgs args = {.x = out.data(),
                                  .stride = stride,
                                  .width = width,
                                  .n_rows = 2,
                                  .cap = cap,
                                  .scale = cap == 30.0f ? 1.0f : 0.125f};
        entry(&args);
        return Floats(out);
      };
      const Floats want = run(scalar);
      CAPTURE(width, cap);
      for_each_vector_entry(Op::kSoftcap, KvType::kF16,
                            [&](KernelEntry entry) { CHECK(same_bits(run(entry), want)); });
    }
  }
}

TEST_CASE("finite checks see every place and nothing behind a row") {
  const auto check = [](KernelEntry entry) {
    for (const int64_t width : {1, 7, 8, 16, 17, 31, 70}) {
      const int64_t stride = width + 4;
      const auto verdict = [&](int64_t bad_at, float bad, bool before) {
        Floats x(2 * stride, std::numeric_limits<float>::max());
        for (int64_t row = 0; row < 2; ++row) {
          for (int64_t i = width; i < stride; ++i) x[row * stride + i] = kNanF;  // not ours
        }
        if (bad_at >= 0) x[bad_at] = bad;
        bool finite = before;
        const CheckFiniteArgs args = {
            .x = x.data(), .stride = stride, .width = width, .n_rows = 2, .finite = &finite};
        entry(&args);
        return finite;
      };
      CAPTURE(width);
      CHECK(verdict(-1, 0.0f, true));
      CHECK_FALSE(verdict(-1, 0.0f, false));  // left alone
      for (int64_t row = 0; row < 2; ++row) {
        for (int64_t i = 0; i < width; ++i) {
          for (const float bad : {kNanF, -kNanF, kInfF, -kInfF}) {
            CHECK_FALSE(verdict(row * stride + i, bad, true));
          }
        }
      }
    }
  };
  check(scalar_entry(Op::kCheckFinite));
  for_each_vector_entry(Op::kCheckFinite, KvType::kF16, check);
}

}  // namespace engine::test
