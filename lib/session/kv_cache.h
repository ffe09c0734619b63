// The key/value cache of one sequence: fixed pages, a page table, a length.
#ifndef ENGINE_LIB_SESSION_KV_CACHE_H_
#define ENGINE_LIB_SESSION_KV_CACHE_H_

#include <cstdint>
#include <vector>

#include "lib/base/host_memory.h"
#include "lib/base/status.h"
#include "lib/contract/op.h"
#include "lib/contract/plan.h"
#include "lib/contract/step.h"

namespace engine {

// A page holds kKvPagePositions positions of every layer (layout: KvLayer in contract/op.h). Pages are
// made when a position in them is first needed and kept until the cache goes.
class KvCache {
 public:
  KvCache(const std::vector<KvGeometry>& layers, KvType type, int64_t n_ctx, HostMemory memory);

  // Makes the pages for positions [0, n).
  absl::Status reserve(int64_t n);
  KvLayer layer(int32_t index);
  const KvGeometry& geometry(int32_t index) const { return layers_[static_cast<size_t>(index)]; }
  KvType type() const { return type_; }
  int64_t n_ctx() const { return n_ctx_; }
  const KvLayout& layout() const { return layout_; }
  uint64_t allocated_bytes() const {
    return pages_.size() * static_cast<uint64_t>(layout_.page_bytes);
  }

 private:
  std::vector<KvGeometry> layers_;
  KvType type_;
  int64_t n_ctx_;
  KvLayout layout_;
  HostMemory memory_;
  std::vector<AlignedBuffer> pages_;
  std::vector<uint8_t*> table_;  // sized for n_ctx at construction, so that it never moves
};

}  // namespace engine

#endif  // ENGINE_LIB_SESSION_KV_CACHE_H_
