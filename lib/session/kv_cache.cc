// Pages of the key/value cache.
#include "lib/session/kv_cache.h"

#include <utility>

namespace engine {
namespace {

constexpr int64_t kLayerAlignBytes = 64;

int64_t aligned(int64_t n_bytes) {
  return (n_bytes + kLayerAlignBytes - 1) / kLayerAlignBytes * kLayerAlignBytes;
}

}  // namespace

KvCache::KvCache(const std::vector<KvGeometry>& layers, KvType type, int64_t n_ctx,
                 HostMemory memory)
    : layers_(layers), type_(type), memory_(memory) {
  const int64_t value_bytes = type == KvType::kF16 ? 2 : 4;
  for (const KvGeometry& layer : layers) {
    const int64_t per_dim = layer.n_kv_heads * kKvPagePositions * value_bytes;
    k_offsets_.push_back(page_bytes_);
    page_bytes_ += aligned(per_dim * layer.head_dim_k);
    v_offsets_.push_back(page_bytes_);
    page_bytes_ += aligned(per_dim * layer.head_dim_v);
  }
  table_.resize(static_cast<size_t>((n_ctx + kKvPagePositions - 1) / kKvPagePositions), nullptr);
}

absl::Status KvCache::reserve(int64_t n) {
  const auto needed = static_cast<size_t>((n + kKvPagePositions - 1) / kKvPagePositions);
  while (pages_.size() < needed) {
    ENGINE_ASSIGN_OR_RETURN(AlignedBuffer page,
                            AlignedBuffer::create(memory_, static_cast<uint64_t>(page_bytes_)));
    table_[pages_.size()] = page.data();
    pages_.push_back(std::move(page));
  }
  return absl::OkStatus();
}

KvLayer KvCache::layer(int32_t index) {
  const auto i = static_cast<size_t>(index);
  return {table_.data(), k_offsets_[i], v_offsets_[i]};
}

}  // namespace engine
