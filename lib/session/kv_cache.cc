// Pages of the key/value cache.
#include "lib/session/kv_cache.h"

#include <utility>

#include "lib/contract/derive.h"

namespace engine {

KvCache::KvCache(const std::vector<KvGeometry>& layers, KvType type, int64_t n_ctx,
                 HostMemory memory)
    : layers_(layers),
      type_(type),
      n_ctx_(n_ctx),
      layout_(kv_layout(layers, type)),
      memory_(memory) {
  table_.resize(static_cast<size_t>((n_ctx + kKvPagePositions - 1) / kKvPagePositions), nullptr);
  pages_.reserve(table_.size());
}

absl::Status KvCache::reserve(int64_t n) {
  const auto needed = static_cast<size_t>((n + kKvPagePositions - 1) / kKvPagePositions);
  while (pages_.size() < needed) {
    ENGINE_ASSIGN_OR_RETURN(
        AlignedBuffer page,
        AlignedBuffer::create(memory_, static_cast<uint64_t>(layout_.page_bytes)));
    table_[pages_.size()] = page.data();
    pages_.push_back(std::move(page));
  }
  return absl::OkStatus();
}

KvLayer KvCache::layer(int32_t index) {
  const auto i = static_cast<size_t>(index);
  return {table_.data(), layout_.k_offset_bytes[i], layout_.v_offset_bytes[i]};
}

}  // namespace engine
