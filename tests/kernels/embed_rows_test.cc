// Every embed row: the right rows, decoded by the reference decoder, scaled, in their places.
#include <catch2/catch_test_macros.hpp>
#include <cstring>

#include "lib/quant/pack.h"
#include "lib/quant/quant_ref.h"
#include "tests/kernels/matmul_data.h"

namespace engine::test {

TEST_CASE("every embed row gives decoded rows times the scale") {
  constexpr int64_t kVocab = 11;
  constexpr int64_t kWidth = 512;
  constexpr int64_t kTokens = 4;
  constexpr int64_t kStride = kWidth + 7;
  constexpr int32_t kIds[kTokens] = {10, 0, 3, 10};
  Rng rng(3);
  int checked = 0;
  for (const KernelRow& row : kernel_rows()) {
    if (row.key.op != Op::kEmbed) continue;
    const FormatInfo& info = *format_info(row.key.format);
    const int64_t row_bytes = kWidth / info.block_elements * info.block_bytes;
    Bytes weights(kVocab * row_bytes);
    fill_weights(row.key.format, kVocab, kWidth, rng, Range::kModerate, weights.data());
    const bool is_packed = row.key.layout == Layout::kRows16;
    Bytes packed(is_packed ? packed_bytes(row.key.format, kVocab, kWidth) : 0);
    if (is_packed) {
      pack_rows(row.key.format, weights.data(), row_bytes, kWidth, 0, kVocab, packed.data());
    }
    for (const Target target : cpu_targets()) {
      if (row.entry(target) == nullptr) continue;
      for (const float scale : {1.0f, 25.298221f}) {
        INFO(row.name << ", scale " << scale);
        std::vector<float> got(kTokens * kStride, -7.0f);
        const EmbedArgs args = {.weights = is_packed ? packed.data() : weights.data(),
                                .row_bytes = row_bytes,
                                .width = kWidth,
                                .ids = kIds,
                                .n_tokens = kTokens,
                                .scale = scale,
                                .out = got.data(),
                                .out_stride = kStride};
        row.entry(target)(&args);
        std::vector<float> want(kTokens * kStride, -7.0f);
        for (int64_t t = 0; t < kTokens; ++t) {
          float* out = want.data() + t * kStride;
          dequantize_row(row.key.format, weights.data() + kIds[t] * row_bytes, kWidth, out);
          for (int64_t i = 0; i < kWidth; ++i) out[i] *= scale;
        }
        CHECK(std::memcmp(got.data(), want.data(), got.size() * sizeof(float)) == 0);
        ++checked;
      }
    }
  }
  CHECK(checked >= 46);
}

}  // namespace engine::test
