// KV pages for the tests: a shuffled page table over memory that starts as NaN, and readers of one
// value.
#ifndef ENGINE_TESTS_KERNELS_KV_PAGES_H_
#define ENGINE_TESTS_KERNELS_KV_PAGES_H_

#include <cstdint>
#include <cstring>
#include <vector>

#include "lib/base/half.h"
#include "lib/contract/derive.h"
#include "lib/contract/op.h"
#include "tests/kernels/pointwise_data.h"

namespace engine::test {

struct KvShape {
  int64_t n_kv_heads, head_dim_k, head_dim_v;
};

// Pages hold some bytes, K, some bytes, V, some bytes; every byte starts as 0xFF, NaN in f16,
// f32 and as a scale.
class KvPages {
 public:
  KvPages(KvType type, const KvShape& shape, int64_t positions) : type_(type), shape_(shape) {
    k_offset_ = 64;
    const int64_t k_bytes =
        shape.n_kv_heads * kKvPagePositions * kv_row_bytes(type, shape.head_dim_k);
    const int64_t v_bytes =
        shape.n_kv_heads * kKvPagePositions * kv_row_bytes(type, shape.head_dim_v);
    v_offset_ = k_offset_ + k_bytes + 64;
    page_bytes_ = (v_offset_ + v_bytes + 64 + 63) / 64 * 64;
    const int64_t n_pages = (positions + kKvPagePositions - 1) / kKvPagePositions;
    storage_.assign(static_cast<size_t>(n_pages * page_bytes_ + 64), 0xFF);
    uint8_t* base = storage_.data() + (64 - reinterpret_cast<uintptr_t>(storage_.data()) % 64) % 64;
    for (int64_t i = 0; i < n_pages; ++i) pages_.push_back(base + (n_pages - 1 - i) * page_bytes_);
  }
  KvPages(const KvPages&) = delete;
  KvPages& operator=(const KvPages&) = delete;

  KvLayer layer() const {
    return {.pages = pages_.data(), .k_offset_bytes = k_offset_, .v_offset_bytes = v_offset_};
  }
  bool same_bytes(const KvPages& other) const {
    for (size_t i = 0; i < pages_.size(); ++i) {
      if (std::memcmp(pages_[i], other.pages_[i], static_cast<size_t>(page_bytes_)) != 0)
        return false;
    }
    return true;
  }
  float k(int64_t position, int64_t head, int64_t d) const {
    const int64_t blocks = kv_blocks(shape_.head_dim_k);
    return read(position, k_offset_, shape_.head_dim_k,
                (head * blocks + d / kKvBlock) * kKvPagePositions + position % kKvPagePositions,
                (head * shape_.head_dim_k + d) * kKvPagePositions + position % kKvPagePositions);
  }
  float v(int64_t position, int64_t head, int64_t d) const {
    const int64_t row = head * kKvPagePositions + position % kKvPagePositions;
    return read(position, v_offset_, shape_.head_dim_v,
                row * kv_blocks(shape_.head_dim_v) + d / kKvBlock,
                (head * kKvPagePositions + position % kKvPagePositions) * shape_.head_dim_v + d);
  }

 private:
  // Value `index` of a layer's K or V, whose block has the scale of that index behind the codes.
  float read(int64_t position, int64_t offset, int64_t head_dim, int64_t scale_index,
             int64_t index) const {
    const uint8_t* from = pages_[static_cast<size_t>(position / kKvPagePositions)] + offset;
    if (type_ == KvType::kF16) {
      uint16_t half;
      std::memcpy(&half, from + index * 2, 2);
      return f16_to_f32(half);
    }
    if (type_ == KvType::kQ8_0) {
      uint16_t scale;
      const int64_t n_codes = shape_.n_kv_heads * head_dim * kKvPagePositions;
      std::memcpy(&scale, from + n_codes + scale_index * 2, 2);
      return f16_to_f32(scale) * static_cast<float>(static_cast<int8_t>(from[index]));
    }
    float value;
    std::memcpy(&value, from + index * 4, 4);
    return value;
  }

  KvType type_;
  KvShape shape_;
  int64_t k_offset_, v_offset_, page_bytes_;
  std::vector<uint8_t> storage_;
  std::vector<uint8_t*> pages_;
};

// Runs a kKvStore entry; returns the finite flag, which was true before.
inline bool store_kv(KernelEntry entry, const KvShape& shape, const Floats& k, const Floats& v,
                     int64_t first_position, int64_t n_tokens, const KvPages& pages) {
  bool finite = true;
  const KvStoreArgs args = {.k = k.data(),
                            .k_stride = k.size() / n_tokens,
                            .v = v.data(),
                            .v_stride = v.size() / n_tokens,
                            .n_kv_heads = shape.n_kv_heads,
                            .head_dim_k = shape.head_dim_k,
                            .head_dim_v = shape.head_dim_v,
                            .first_position = first_position,
                            .n_tokens = n_tokens,
                            .kv = pages.layer(),
                            .finite = &finite};
  entry(&args);
  return finite;
}

}  // namespace engine::test

#endif  // ENGINE_TESTS_KERNELS_KV_PAGES_H_
