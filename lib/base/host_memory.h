// Memory from the host's allocator or the aligned heap, and a zeroed buffer of it.
#ifndef ENGINE_LIB_BASE_HOST_MEMORY_H_
#define ENGINE_LIB_BASE_HOST_MEMORY_H_

#include <cstdint>

#include "absl/status/statusor.h"

namespace engine {

// A copyable handle; what it was made of must outlive all copies and all blocks.
class HostMemory {
 public:
  using AllocateFn = void* (*)(void* user, uint64_t n_bytes, uint64_t alignment);
  using ReleaseFn = void (*)(void* user, void* block, uint64_t n_bytes, uint64_t alignment);

  HostMemory() = default;
  // The aligned heap when either function is null.
  HostMemory(void* user, AllocateFn allocate_fn, ReleaseFn release_fn);

  // Alignment is a power of two. Null when there is no memory, and for a block of the host that is
  // not aligned as asked.
  void* allocate(uint64_t n_bytes, uint64_t alignment) const;
  // n_bytes and alignment as they were asked for; null is allowed.
  void release(void* p, uint64_t n_bytes, uint64_t alignment) const;
  // Whether fresh blocks are known to be zero.
  bool gives_zeroed() const { return allocate_ == nullptr; }

 private:
  void* user_ = nullptr;
  AllocateFn allocate_ = nullptr;
  ReleaseFn release_ = nullptr;
};

// Move-only; 64-byte aligned; zeroed; given back to its HostMemory.
class AlignedBuffer {
 public:
  static constexpr uint64_t kAlignmentBytes = 64;
  // Bytes past size() that may be read (they are zero), for whole-vector loads at the end.
  static constexpr uint64_t kSlackBytes = 64;

  AlignedBuffer() = default;
  ~AlignedBuffer();
  AlignedBuffer(AlignedBuffer&& other) noexcept;
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept;
  AlignedBuffer(const AlignedBuffer&) = delete;
  AlignedBuffer& operator=(const AlignedBuffer&) = delete;

  // kMemory, naming the size, when the memory gives none.
  static absl::StatusOr<AlignedBuffer> create(const HostMemory& memory, uint64_t n_bytes);
  // For what is streamed through again and again: at a multiple of 2 MiB, and on huge pages where the system
  // grants them (own heap, Linux). They cost one miss of the address translation for 512 small ones: 8 to 10 %
  // of the read bandwidth (cpu_probes.md).
  static absl::StatusOr<AlignedBuffer> create_large(const HostMemory& memory, uint64_t n_bytes);

  uint8_t* data() const { return data_; }
  uint64_t size() const { return size_; }
  template <class T>
  T* as() const {
    static_assert(alignof(T) <= kAlignmentBytes);
    return reinterpret_cast<T*>(data_);
  }

 private:
  AlignedBuffer(const HostMemory& memory, uint8_t* data, uint64_t size, uint64_t alignment)
      : memory_(memory), data_(data), size_(size), alignment_(alignment) {}
  static absl::StatusOr<AlignedBuffer> create_at(const HostMemory& memory, uint64_t n_bytes,
                                                 uint64_t alignment);

  HostMemory memory_;
  uint8_t* data_ = nullptr;
  uint64_t size_ = 0;
  uint64_t alignment_ = kAlignmentBytes;
};

}  // namespace engine

#endif  // ENGINE_LIB_BASE_HOST_MEMORY_H_
