// Rotary embedding: angles against libm, rotation rows against the scalar row and against double.
#include "lib/base/det_math.h"
#include "tests/kernels/pointwise_data.h"

namespace engine::test {
namespace {

Floats angles_of(const std::vector<double>& theta, float mscale, int64_t first, int64_t n_tokens,
                 int64_t stride) {
  Floats out(n_tokens * stride, -7.0f);
  const RopeAnglesArgs args = {.theta = theta.data(),
                               .n_pairs = static_cast<int64_t>(theta.size()),
                               .mscale = mscale,
                               .first_position = first,
                               .n_tokens = n_tokens,
                               .out = out.data(),
                               .out_stride = stride};
  scalar_entry(Op::kRopeAngles)(&args);
  return out;
}

struct Shape {
  int64_t n_heads, head_dim, n_rot;
  RopePairing pairing;
};

Floats rotate(KernelEntry entry, const Shape& shape, const Floats& x, int64_t x_stride,
              const Floats& angles, int64_t n_tokens, bool in_place) {
  Floats work(x);
  Floats out(x.size(), -7.0f);
  const RopeArgs args = {.x = work.data(),
                         .x_stride = x_stride,
                         .n_heads = shape.n_heads,
                         .head_dim = shape.head_dim,
                         .n_rot = shape.n_rot,
                         .pairing = shape.pairing,
                         .angles = angles.data(),
                         .angles_stride = shape.n_rot + 3,
                         .n_tokens = n_tokens,
                         .out = in_place ? work.data() : out.data(),
                         .out_stride = x_stride};
  entry(&args);
  return in_place ? work : out;
}

}  // namespace

TEST_CASE("rope angles are cos and sin of position * theta, rounded once") {
  std::vector<double> theta;
  for (int i = 0; i < 64; ++i) theta.push_back(rope_theta(10000.0, -2.0 * i / 128.0));
  for (int i = 0; i < 64; ++i) {
    CHECK(std::fabs(theta[static_cast<size_t>(i)] - std::pow(10000.0, -2.0 * i / 128.0)) < 1e-15);
  }
  for (const int64_t first :
       {int64_t{0}, int64_t{1}, int64_t{4095}, int64_t{131071}, int64_t{1000000}}) {
    for (const float mscale : {1.0f, 1.19f}) {
      const Floats got = angles_of(theta, mscale, first, 3, 130);
      for (int64_t t = 0; t < 3; ++t) {
        for (int64_t i = 0; i < 64; ++i) {
          const double angle = static_cast<double>(first + t) * theta[static_cast<size_t>(i)];
          const double c = std::cos(angle) * mscale, s = std::sin(angle) * mscale;
          // One rounding to f32, and 1e-12 for the double before it.
          CHECK(std::fabs(got[t * 130 + i] - c) <= kUnit * std::fabs(c) + 1e-12);
          CHECK(std::fabs(got[t * 130 + 64 + i] - s) <= kUnit * std::fabs(s) + 1e-12);
        }
        CHECK(got[t * 130 + 128] == -7.0f);
      }
    }
  }
}

TEST_CASE("rope rows give the scalar row's bits") {
  Rng rng(21);
  const KernelEntry scalar = scalar_entry(Op::kRope);
  for (const RopePairing pairing : {RopePairing::kAdjacent, RopePairing::kHalves}) {
    for (const Shape shape :
         {Shape{9, 64, 64, pairing}, Shape{4, 80, 80, pairing}, Shape{2, 256, 256, pairing},
          Shape{3, 128, 64, pairing}, Shape{2, 96, 2, pairing}, Shape{2, 32, 20, pairing},
          Shape{2, 10, 6, pairing}, Shape{1, 64, 34, pairing}, Shape{3, 7, 0, pairing}}) {
      std::vector<double> theta;
      for (int64_t i = 0; i < shape.n_rot / 2; ++i) {
        theta.push_back(rope_theta(5e5, -2.0 * static_cast<double>(i) / 64.0));
      }
      for (const int64_t n_tokens : {1, 3}) {
        const int64_t stride = shape.n_heads * shape.head_dim + 5;
        const Floats x = random_floats(rng, n_tokens * stride, -5.0f, 5.0f);
        const Floats angles = angles_of(theta, 1.1f, 777, n_tokens, shape.n_rot + 3);
        for (const bool in_place : {false, true}) {
          CAPTURE(pairing, shape.head_dim, shape.n_rot, n_tokens, in_place);
          const Floats want = rotate(scalar, shape, x, stride, angles, n_tokens, in_place);
          for_each_vector_entry(Op::kRope, KvType::kF16, [&](KernelEntry entry) {
            CHECK(same_bits(rotate(entry, shape, x, stride, angles, n_tokens, in_place), want));
          });
        }
      }
    }
  }
}

TEST_CASE("the scalar rope rotates pairs") {
  Rng rng(22);
  for (const RopePairing pairing : {RopePairing::kAdjacent, RopePairing::kHalves}) {
    const Shape shape{2, 20, 12, pairing};
    std::vector<double> theta;
    for (int i = 0; i < 6; ++i) theta.push_back(rope_theta(1e4, -i / 6.0));
    const Floats x = random_floats(rng, 2 * 40, -5.0f, 5.0f);
    const Floats angles = angles_of(theta, 1.0f, 9, 2, 15);
    const Floats got = rotate(scalar_entry(Op::kRope), shape, x, 40, angles, 2, false);
    for (int64_t t = 0; t < 2; ++t) {
      for (int64_t h = 0; h < 2; ++h) {
        const int64_t base = t * 40 + h * 20;
        for (int64_t i = 0; i < 6; ++i) {
          const int64_t first = pairing == RopePairing::kAdjacent ? 2 * i : i;
          const int64_t second = pairing == RopePairing::kAdjacent ? 2 * i + 1 : i + 6;
          const double a = x[base + first], b = x[base + second];
          const double angle = static_cast<double>(9 + t) * theta[static_cast<size_t>(i)];
          // The two angles, a product and the sum are each rounded once.
          const double bound = 3.0 * kUnit * (std::fabs(a) + std::fabs(b)) + 1e-11;
          CHECK(std::fabs(got[base + first] - (a * std::cos(angle) - b * std::sin(angle))) <=
                bound);
          CHECK(std::fabs(got[base + second] - (a * std::sin(angle) + b * std::cos(angle))) <=
                bound);
        }
        for (int64_t i = 12; i < 20; ++i) CHECK(got[base + i] == x[base + i]);
      }
    }
  }
}

}  // namespace engine::test
