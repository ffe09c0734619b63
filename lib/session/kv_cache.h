// The key/value cache of one sequence: a table of pages, some of them shared with other sequences.
#ifndef ENGINE_LIB_SESSION_KV_CACHE_H_
#define ENGINE_LIB_SESSION_KV_CACHE_H_

#include <cstdint>
#include <vector>

#include "lib/base/host_memory.h"
#include "lib/base/status.h"
#include "lib/contract/op.h"
#include "lib/contract/plan.h"
#include "lib/contract/step.h"
#include "lib/session/kv_page.h"

namespace engine {

// A page holds kKvPagePositions positions of every layer (layout: KvLayer in contract/op.h). Pages are made
// when a position in them is first needed. Kernels write only where reserve() was called before, so that no
// page is written that another sequence reads.
class KvCache {
 public:
  KvCache(const std::vector<KvGeometry>& layers, KvType type, int64_t n_ctx, HostMemory memory);

  // Makes positions [first, first + n) writable; what positions before `first` hold stays. Copies a shared
  // page, makes a missing one. kMemory; every position keeps what it holds then, too.
  absl::Status reserve(int64_t first, int64_t n);
  // Takes the pages of the first n positions of a cache of the same layout, in place of all that it has.
  // n_ctx must cover them.
  void share(const KvCache& from, int64_t n);
  // Takes full pages that another owner holds, too, in place of all that it has.
  void share(std::vector<KvPageRef> pages);
  // Positions from n on are not needed any more: gives up shared pages of them, keeps its own for reuse.
  void truncate(int64_t n);

  uint8_t* const* pages() const { return table_.data(); }  // never moves
  const KvPageRef& page(int64_t index) const { return pages_[static_cast<size_t>(index)]; }
  int64_t n_pages() const { return static_cast<int64_t>(pages_.size()); }
  KvLayer layer(int32_t index) const;
  const KvGeometry& geometry(int32_t index) const { return layers_[static_cast<size_t>(index)]; }
  const std::vector<KvGeometry>& layers() const { return layers_; }
  KvType type() const { return type_; }
  int64_t n_ctx() const { return n_ctx_; }
  const KvLayout& layout() const { return layout_; }
  // Of all its pages, shared or not.
  uint64_t held_bytes() const { return pages_.size() * static_cast<uint64_t>(layout_.page_bytes); }
  // Of the pages that no other sequence has.
  uint64_t own_bytes() const;

 private:
  void fill_table();

  std::vector<KvGeometry> layers_;
  KvType type_;
  int64_t n_ctx_;
  KvLayout layout_;
  HostMemory memory_;
  std::vector<KvPageRef> pages_;  // of positions 0 .. , without a gap
  std::vector<uint8_t*> table_;   // sized for n_ctx at construction
};

}  // namespace engine

#endif  // ENGINE_LIB_SESSION_KV_CACHE_H_
