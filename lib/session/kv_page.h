// A page of a key/value cache, shared by the sequences that hold the same tokens in it.
#ifndef ENGINE_LIB_SESSION_KV_PAGE_H_
#define ENGINE_LIB_SESSION_KV_PAGE_H_

#include <atomic>
#include <cstdint>
#include <utility>

#include "lib/base/host_memory.h"
#include "lib/base/status.h"

namespace engine {

// One owner's hold on a page; the page goes with its last owner. Different holds on one page may be used from
// different threads. Whoever is the only owner may write; nobody else can become one meanwhile.
class KvPageRef {
 public:
  KvPageRef() = default;
  // Zeroed, at a multiple of 64, with AlignedBuffer::kSlackBytes behind it that may be read. One allocation. kMemory.
  static absl::StatusOr<KvPageRef> create(const HostMemory& memory, uint64_t n_bytes);

  KvPageRef(const KvPageRef& other) : page_(other.page_) {
    if (page_ != nullptr) page_->owners.fetch_add(1, std::memory_order_relaxed);
  }
  KvPageRef(KvPageRef&& other) noexcept : page_(std::exchange(other.page_, nullptr)) {}
  KvPageRef& operator=(KvPageRef other) noexcept {
    std::swap(page_, other.page_);
    return *this;
  }
  ~KvPageRef() { drop(); }

  explicit operator bool() const { return page_ != nullptr; }
  uint8_t* data() const { return page_->data; }
  uint64_t n_bytes() const { return page_->n_bytes; }
  // Acquires: when it says no, what other owners read and wrote lies before.
  bool is_shared() const { return page_->owners.load(std::memory_order_acquire) > 1; }

 private:
  // In one block of memory with the data, behind them.
  struct Page {
    std::atomic<uint32_t> owners{1};
    uint8_t* data;
    uint64_t n_bytes;
    HostMemory memory;
  };
  explicit KvPageRef(Page* page) : page_(page) {}
  void drop() {
    if (page_ != nullptr && page_->owners.fetch_sub(1, std::memory_order_acq_rel) == 1) destroy();
  }
  void destroy();

  Page* page_ = nullptr;
};

}  // namespace engine

#endif  // ENGINE_LIB_SESSION_KV_PAGE_H_
