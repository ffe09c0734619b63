// Pages of the key/value cache: made, shared, and copied before they are written.
#include "lib/session/kv_cache.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "lib/contract/derive.h"

namespace engine {
namespace {

size_t pages_of(int64_t n_positions) {
  return static_cast<size_t>((n_positions + kKvPagePositions - 1) / kKvPagePositions);
}

}  // namespace

KvCache::KvCache(const std::vector<KvGeometry>& layers, KvType type, int64_t n_ctx,
                 HostMemory memory)
    : layers_(layers),
      type_(type),
      n_ctx_(n_ctx),
      layout_(kv_layout(layers, type)),
      memory_(memory) {
  table_.resize(pages_of(n_ctx), nullptr);
  pages_.reserve(table_.size());
}

absl::Status KvCache::reserve(int64_t first, int64_t n) {
  const size_t end = pages_of(first + n);
  for (auto i = static_cast<size_t>(first / kKvPagePositions); i < end; ++i) {
    if (i < pages_.size() && !pages_[i].is_shared()) continue;
    ENGINE_ASSIGN_OR_RETURN(KvPageRef page,
                            KvPageRef::create(memory_, static_cast<uint64_t>(layout_.page_bytes)));
    if (i == pages_.size()) {
      pages_.emplace_back();
    } else if (static_cast<int64_t>(i) * kKvPagePositions < first) {
      std::memcpy(page.data(), pages_[i].data(), page.n_bytes());
    }
    pages_[i] = std::move(page);
    table_[i] = pages_[i].data();
  }
  return absl::OkStatus();
}

void KvCache::share(const KvCache& from, int64_t n) {
  const auto n_shared = static_cast<std::ptrdiff_t>(pages_of(n));
  pages_.assign(from.pages_.begin(), from.pages_.begin() + n_shared);
  fill_table();
}

void KvCache::share(std::vector<KvPageRef> pages) {
  pages_.assign(std::make_move_iterator(pages.begin()), std::make_move_iterator(pages.end()));
  fill_table();
}

void KvCache::fill_table() {
  for (size_t i = 0; i < table_.size(); ++i) {
    table_[i] = i < pages_.size() ? pages_[i].data() : nullptr;
  }
}

void KvCache::truncate(int64_t n) {
  const auto is_own = [](const KvPageRef& page) { return !page.is_shared(); };
  const auto first = pages_.begin() + static_cast<std::ptrdiff_t>(pages_of(n));
  if (first >= pages_.end()) return;
  // No gap may appear: the pages that stay move up, their contents are not needed.
  pages_.erase(std::partition(first, pages_.end(), is_own), pages_.end());
  fill_table();
}

KvLayer KvCache::layer(int32_t index) const {
  const auto i = static_cast<size_t>(index);
  return {table_.data(), layout_.k_offset_bytes[i], layout_.v_offset_bytes[i]};
}

uint64_t KvCache::own_bytes() const {
  const auto n = std::count_if(pages_.begin(), pages_.end(),
                               [](const KvPageRef& page) { return !page.is_shared(); });
  return static_cast<uint64_t>(n) * static_cast<uint64_t>(layout_.page_bytes);
}

}  // namespace engine
