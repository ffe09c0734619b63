// KV store: every row writes the bytes of its scalar row and nothing else; values, layout and the
// finite flag.
#include "tests/kernels/kv_pages.h"

namespace engine::test {
namespace {

constexpr KvType kTypes[] = {KvType::kF16, KvType::kF32, KvType::kQ8_0};

}  // namespace

TEST_CASE("kv_store rows write the scalar row's bytes and no others") {
  Rng rng(11);
  for (const KvType type : kTypes) {
    const KernelEntry scalar = scalar_entry(Op::kKvStore, type);
    for (const KvShape shape : {KvShape{1, 64, 64}, KvShape{3, 80, 80}, KvShape{2, 33, 17},
                                KvShape{1, 256, 256}, KvShape{2, 5, 3}, KvShape{1, 8, 24}}) {
      for (const int64_t first : {0, 1, 15, 63, 64, 100}) {
        for (const int64_t n_tokens : {1, 2, 17, 70}) {
          CAPTURE(type, shape.head_dim_k, shape.head_dim_v, first, n_tokens);
          const int64_t k_width = shape.n_kv_heads * shape.head_dim_k;
          const int64_t v_width = shape.n_kv_heads * shape.head_dim_v;
          const Floats k = random_floats(rng, n_tokens * (k_width + 2), -8.0f, 8.0f);
          const Floats v = random_floats(rng, n_tokens * (v_width + 1), -8.0f, 8.0f);
          KvPages want(type, shape, first + n_tokens);
          CHECK(store_kv(scalar, shape, k, v, first, n_tokens, want));
          for_each_vector_entry(Op::kKvStore, type, [&](KernelEntry entry) {
            KvPages got(type, shape, first + n_tokens);
            CHECK(store_kv(entry, shape, k, v, first, n_tokens, got));
            CHECK(got.same_bytes(want));
          });
        }
      }
    }
  }
}

TEST_CASE("the scalar kv_store puts every value where the layout says") {
  Rng rng(12);
  const KvShape shape{2, 24, 10};
  for (const KvType type : kTypes) {
    const int64_t n_tokens = 70;
    const int64_t first = 30;
    const Floats k = random_floats(rng, n_tokens * 2 * 24, -8.0f, 8.0f);
    const Floats v = random_floats(rng, n_tokens * 2 * 10, -8.0f, 8.0f);
    KvPages pages(type, shape, first + n_tokens);
    REQUIRE(store_kv(scalar_entry(Op::kKvStore, type), shape, k, v, first, n_tokens, pages));
    // What kQ8_0 reads back is within half a code of x, and stored again gives the same.
    const auto is_stored = [&](float got, float x) {
      switch (type) {
        case KvType::kF16: return got == f16_to_f32(f32_to_f16(x));
        case KvType::kF32: return got == x;
        case KvType::kQ8_0: return std::fabs(got - x) <= 0.502f * 8.0f / 127.0f;
      }
      return false;
    };
    for (int64_t t = 0; t < n_tokens; ++t) {
      for (int64_t g = 0; g < 2; ++g) {
        for (int64_t d = 0; d < 24; ++d) {
          CHECK(is_stored(pages.k(first + t, g, d), k[(t * 2 + g) * 24 + d]));
        }
        for (int64_t d = 0; d < 10; ++d) {
          CHECK(is_stored(pages.v(first + t, g, d), v[(t * 2 + g) * 10 + d]));
        }
      }
    }
    for (int64_t d = 0; d < 24; ++d) CHECK(std::isnan(pages.k(first - 1, 0, d)));
  }
}

// Every half, the point half way to the next one and its two neighbours: rounding to nearest even.
TEST_CASE("f16 rounding is the same in every row, subnormals included") {
  std::vector<float> list;
  for (uint32_t half = 0; half < 0x7C00; ++half) {
    const float value = f16_to_f32(static_cast<uint16_t>(half));
    const float next = half == 0x7BFF ? 65536.0f : f16_to_f32(static_cast<uint16_t>(half + 1));
    const float middle = 0.5f * (value + next);  // exact
    for (const float x :
         {value, std::nextafter(middle, 0.0f), middle, std::nextafter(middle, 1e9f)}) {
      if (x < 65520.0f) {
        list.push_back(x);
        list.push_back(-x);
      }
    }
  }
  for (const float tiny : {1e-45f, 1e-40f, 1e-38f, 1e-20f, 2.9e-8f}) list.push_back(tiny);
  const KvShape shape{1, 256, 256};
  Floats row(256);
  const KernelEntry scalar = scalar_entry(Op::kKvStore, KvType::kF16);
  for (size_t i = 0; i < list.size(); i += 256) {
    for (size_t j = 0; j < 256; ++j) row[static_cast<int64_t>(j)] = list[(i + j) % list.size()];
    KvPages want(KvType::kF16, shape, 1);
    REQUIRE(store_kv(scalar, shape, row, row, 0, 1, want));
    for_each_vector_entry(Op::kKvStore, KvType::kF16, [&](KernelEntry entry) {
      KvPages got(KvType::kF16, shape, 1);
      CHECK(store_kv(entry, shape, row, row, 0, 1, got));
      CHECK(got.same_bytes(want));
    });
  }
}

TEST_CASE("q8_0: scale and codes as written out, and the same again when what was read is stored") {
  Rng rng(13);
  const KvShape shape{1, 70, 70};
  const KernelEntry scalar = scalar_entry(Op::kKvStore, KvType::kQ8_0);
  for (const float size : {1e-30f, 1e-6f, 3e-4f, 7.7e-3f, 0.02f, 1.0f, 300.0f, 8e6f}) {
    for (int trial = 0; trial < 20; ++trial) {
      CAPTURE(size, trial);
      const Floats x = random_floats(rng, 70, -size, size);
      KvPages first(KvType::kQ8_0, shape, 1), second(KvType::kQ8_0, shape, 1);
      REQUIRE(store_kv(scalar, shape, x, x, 0, 1, first));
      Floats k(70), v(70);
      for (int64_t i = 0; i < 70; ++i) {
        k[i] = first.k(0, 0, i);
        v[i] = first.v(0, 0, i);
        float max = 0;
        for (int64_t j = i / 32 * 32; j < std::min<int64_t>(70, (i / 32 + 1) * 32); ++j) {
          max = std::max(max, std::fabs(x[j]));
        }
        const float d = std::max(f16_to_f32(f32_to_f16(max / 127.0f)), 0x1p-14f);
        CHECK(k[i] == d * std::nearbyint(x[i] * (1.0f / d)));
        CHECK(v[i] == k[i]);
      }
      REQUIRE(store_kv(scalar, shape, k, v, 0, 1, second));
      CHECK(second.same_bytes(first));
    }
  }
}

TEST_CASE("kv_store reports every non-finite value, f16 overflow too") {
  const KvShape shape{2, 19, 21};
  const auto check = [&](KernelEntry entry, KvType type) {
    const auto flag = [&](bool in_k, int64_t at, float value) {
      Floats k(2 * 38, 1.0f), v(2 * 42, 1.0f);  // 2 tokens
      if (at >= 0) (in_k ? k : v)[at] = value;
      KvPages pages(type, shape, 2);
      return store_kv(entry, shape, k, v, 0, 2, pages);
    };
    CHECK(flag(true, -1, 0.0f));
    for (const bool in_k : {true, false}) {
      for (int64_t at = 0; at < (in_k ? 76 : 84); ++at) {
        CAPTURE(in_k, at);
        for (const float bad : {kNanF, kInfF, -kInfF}) CHECK_FALSE(flag(in_k, at, bad));
        const bool f32 = type == KvType::kF32;
        // The value, or that of the block's scale, rounds to an infinite f16 from here on.
        const float limit = type == KvType::kQ8_0 ? 65520.0f * 127.0f : 65520.0f;
        const float below = type == KvType::kQ8_0 ? 65519.996f * 127.0f : 65519.996f;
        CHECK(flag(in_k, at, below));
        CHECK(flag(in_k, at, -below));
        CHECK(flag(in_k, at, limit) == f32);
        CHECK(flag(in_k, at, -limit) == f32);
        CHECK(flag(in_k, at, 3e38f) == f32);
      }
    }
  };
  for (const KvType type : kTypes) {
    check(scalar_entry(Op::kKvStore, type), type);
    for_each_vector_entry(Op::kKvStore, type, [&](KernelEntry entry) { check(entry, type); });
  }
}

}  // namespace engine::test
