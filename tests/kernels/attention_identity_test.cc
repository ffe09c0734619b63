// Gate A of attention: every row gives the scalar row's bits at page, group and split edges, with
// windows, soft-cap, shared KV heads and odd head sizes; unwritten slots hold NaN and must not be
// felt.
#include "tests/kernels/attention_case.h"

namespace engine::test {
namespace {

constexpr KvType kTypes[] = {KvType::kF16, KvType::kF32, KvType::kQ8_0};

void check_identity(const AttentionShape& shape, Rng& rng) {
  CAPTURE(shape.type, shape.n_heads, shape.kv.n_kv_heads, shape.kv.head_dim_k, shape.kv.head_dim_v,
          shape.first_position, shape.n_tokens, shape.softcap, shape.window, shape.sinks);
  const AttentionCase problem(shape, rng);
  const Floats want = problem.run(scalar_entry(Op::kAttention, shape.type), 0, problem.n_items());
  for (int64_t t = 0; t < shape.n_tokens; ++t) {
    for (int64_t i = 0; i < problem.out_stride(); ++i) {
      const float value = want[t * problem.out_stride() + i];
      const bool ours = i < shape.n_heads * shape.kv.head_dim_v;
      if (ours ? !std::isfinite(value) : value != -7.0f) FAIL("the scalar row is wrong at " << i);
    }
  }
  for_each_vector_entry(Op::kAttention, shape.type, [&](KernelEntry entry) {
    CHECK(same_bits(problem.run(entry, 0, problem.n_items()), want));
  });
}

}  // namespace

TEST_CASE("attention rows give the scalar row's bits at every edge of positions") {
  Rng rng(31);
  for (const KvType type : kTypes) {
    for (const int64_t length : {1,   2,   15,  16,  17,  31,  48,  49,  63,  64,  65,  80,
                                 127, 128, 129, 192, 255, 256, 257, 272, 320, 511, 512, 513}) {
      check_identity({.type = type, .n_heads = 2, .kv = {1, 32, 24}, .first_position = length - 1},
                     rng);
    }
    for (const int64_t length : {1, 40, 300, 600}) {
      check_identity({.type = type, .first_position = length - 1, .sinks = true}, rng);
      check_identity({.type = type, .first_position = length - 1, .window = 20, .sinks = true},
                     rng);
    }
    // A chunk that runs over a page's and a split's edge.
    check_identity({.type = type, .kv = {2, 16, 16}, .first_position = 250, .n_tokens = 12}, rng);
    check_identity({.type = type, .kv = {2, 16, 16}, .first_position = 0, .n_tokens = 70}, rng);
  }
}

TEST_CASE("attention rows give the scalar row's bits with every window") {
  Rng rng(32);
  for (const KvType type : kTypes) {
    for (const int64_t window :
         {1, 2, 15, 16, 17, 63, 64, 65, 100, 255, 256, 257, 300, 512, 1000}) {
      for (const int64_t length : {1, 40, 64, 256, 257, 300, 511, 512, 520, 770}) {
        check_identity({.type = type,
                        .n_heads = 2,
                        .kv = {1, 16, 8},
                        .first_position = length - 1,
                        .window = window},
                       rng);
      }
    }
    check_identity(
        {.type = type, .kv = {2, 24, 24}, .first_position = 240, .n_tokens = 40, .window = 30},
        rng);
  }
}

TEST_CASE("attention rows give the scalar row's bits for every head shape") {
  Rng rng(33);
  for (const KvType type : kTypes) {
    for (const KvShape kv :
         {KvShape{3, 64, 64}, KvShape{1, 80, 80}, KvShape{2, 128, 128}, KvShape{1, 256, 256},
          KvShape{2, 72, 40}, KvShape{1, 33, 17}, KvShape{1, 192, 128}, KvShape{2, 8, 5},
          KvShape{1, 1, 1}, KvShape{1, 96, 100}, KvShape{1, 20, 31}}) {
      for (const int64_t shared : {1, 3}) {
        for (const float softcap : {0.0f, 2.0f, 50.0f}) {
          check_identity({.type = type,
                          .n_heads = kv.n_kv_heads * shared,
                          .kv = kv,
                          .first_position = 299,
                          .n_tokens = 1,
                          .softcap = softcap},
                         rng);
        }
      }
    }
  }
}

TEST_CASE("attention items are independent: any ranges give the whole's bits") {
  Rng rng(34);
  const AttentionShape shape = {
      .n_heads = 6, .kv = {2, 24, 24}, .first_position = 260, .n_tokens = 3};
  const AttentionCase problem(shape, rng);
  const auto check = [&](KernelEntry entry) {
    const Floats whole = problem.run(entry, 0, problem.n_items());
    for (int64_t begin = 0; begin < problem.n_items(); ++begin) {
      for (const int64_t count : {1, 2, 5}) {
        const int64_t end = std::min(problem.n_items(), begin + count);
        const Floats part = problem.run(entry, begin, end);
        for (int64_t item = 0; item < problem.n_items(); ++item) {
          const int64_t at = item / 6 * problem.out_stride() + item % 6 * 24;
          for (int64_t d = 0; d < 24; ++d) {
            const bool inside = item >= begin && item < end;
            const float want = inside ? whole[at + d] : -7.0f;
            if (part[at + d] != want)
              FAIL("item " << item << " of [" << begin << ", " << end << ")");
          }
        }
      }
    }
  };
  check(scalar_entry(Op::kAttention, KvType::kF16));
  for_each_vector_entry(Op::kAttention, KvType::kF16, check);
}

}  // namespace engine::test
