// Short convolutions over stored positions against the sum written out, at the start and across pages.
#include "tests/kernels/kv_pages.h"

namespace engine::test {

TEST_CASE("a short convolution is the fma chain over its taps") {
  Rng rng(51);
  constexpr int64_t kWidth = 37;
  for (const KvType type : {KvType::kF16, KvType::kF32, KvType::kQ8_0}) {
    for (const int64_t n_taps : {1, 3, 5}) {
      for (const int64_t first : {0, 1, 3, 62, 64, 130}) {
        constexpr int64_t kTokens = 4;
        const int64_t n = first + kTokens;
        const KvShape shape = {1, 0, kWidth};
        KvPages pages(type, shape, n);
        const Floats z = random_floats(rng, n * kWidth, -3.0f, 3.0f);
        const Floats taps = random_floats(rng, n_taps * kWidth, -1.0f, 1.0f);
        REQUIRE(store_kv(scalar_entry(Op::kKvStore, type), shape, Floats(1), z, 0, n, pages));
        Floats out(kTokens * kWidth, kNanF);
        const ShortConvArgs args = {.taps = taps.data(),
                                    .n_taps = n_taps,
                                    .width = kWidth,
                                    .first_position = first,
                                    .n_tokens = kTokens,
                                    .kv = pages.layer(),
                                    .out = out.data(),
                                    .out_stride = kWidth};
        scalar_entry(Op::kShortConv, type)(&args);
        for (int64_t t = 0; t < kTokens; ++t) {
          for (int64_t i = 0; i < kWidth; ++i) {
            float want = 0;
            for (int64_t j = 0; j < n_taps; ++j) {
              const int64_t p = first + t - n_taps + 1 + j;
              if (p < 0) continue;
              want = std::fma(static_cast<float>(pages.v(p, 0, i)), taps[j * kWidth + i], want);
            }
            CAPTURE(type, n_taps, first, t, i);
            CHECK(out[t * kWidth + i] == want);
          }
        }
      }
    }
  }
}

}  // namespace engine::test
