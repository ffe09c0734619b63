// Aligned allocation on the heap, the host's allocator, and buffers of either.
#include "lib/base/host_memory.h"

#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "lib/base/status.h"

namespace engine {
namespace {

// calloc gives large blocks as fresh pages, which stay untouched until they are used: a KV cache
// costs only what is filled. The block calloc gave is remembered in front of the aligned one.
void* heap_allocate(uint64_t n_bytes, uint64_t alignment) {
  const uint64_t extra = alignment + sizeof(void*);
  if (n_bytes > UINT64_MAX - extra || n_bytes + extra > SIZE_MAX) return nullptr;
  void* const block = std::calloc(1, static_cast<size_t>(n_bytes + extra));
  if (block == nullptr) return nullptr;
  const uintptr_t first = reinterpret_cast<uintptr_t>(block) + sizeof(void*);
  const uintptr_t mask = static_cast<uintptr_t>(alignment) - 1;
  uint8_t* const aligned =
      static_cast<uint8_t*>(block) + (((first + mask) & ~mask) - (first - sizeof(void*)));
  std::memcpy(aligned - sizeof(void*), &block, sizeof(void*));
  return aligned;
}

void heap_release(void* p) {
  void* block;
  std::memcpy(&block, static_cast<uint8_t*>(p) - sizeof(void*), sizeof(void*));
  std::free(block);
}

bool is_aligned(const void* p, uint64_t alignment) {
  return (reinterpret_cast<uintptr_t>(p) & (alignment - 1)) == 0;
}

}  // namespace

HostMemory::HostMemory(void* user, AllocateFn allocate_fn, ReleaseFn release_fn) {
  if (allocate_fn == nullptr || release_fn == nullptr) return;
  user_ = user;
  allocate_ = allocate_fn;
  release_ = release_fn;
}

void* HostMemory::allocate(uint64_t n_bytes, uint64_t alignment) const {
  if (alignment == 0 || (alignment & (alignment - 1)) != 0 || alignment > (uint64_t{1} << 30)) {
    return nullptr;
  }
  if (allocate_ == nullptr) return heap_allocate(n_bytes, alignment);
  void* const p = allocate_(user_, n_bytes, alignment);
  if (p != nullptr && !is_aligned(p, alignment)) {
    release_(user_, p, n_bytes, alignment);
    return nullptr;
  }
  return p;
}

void HostMemory::release(void* p, uint64_t n_bytes, uint64_t alignment) const {
  if (p == nullptr) return;
  if (release_ == nullptr) {
    heap_release(p);
  } else {
    release_(user_, p, n_bytes, alignment);
  }
}

absl::StatusOr<AlignedBuffer> AlignedBuffer::create_at(const HostMemory& memory, uint64_t n_bytes,
                                                       uint64_t alignment) {
  const bool fits = n_bytes <= UINT64_MAX - kSlackBytes && n_bytes + kSlackBytes <= SIZE_MAX;
  void* const p = fits ? memory.allocate(n_bytes + kSlackBytes, alignment) : nullptr;
  if (p == nullptr) {
    return error(Code::kMemory, "no memory for " + std::to_string(n_bytes) + " bytes");
  }
  return AlignedBuffer(memory, static_cast<uint8_t*>(p), n_bytes, alignment);
}

absl::StatusOr<AlignedBuffer> AlignedBuffer::create(const HostMemory& memory, uint64_t n_bytes) {
  ENGINE_ASSIGN_OR_RETURN(AlignedBuffer buffer, create_at(memory, n_bytes, kAlignmentBytes));
  if (!memory.gives_zeroed()) {
    std::memset(buffer.data_, 0, static_cast<size_t>(n_bytes + kSlackBytes));
  }
  return buffer;
}

absl::StatusOr<AlignedBuffer> AlignedBuffer::create_large(const HostMemory& memory,
                                                          uint64_t n_bytes) {
  constexpr uint64_t kHugePageBytes = uint64_t{2} << 20;
  if (n_bytes < kHugePageBytes) return create(memory, n_bytes);
  ENGINE_ASSIGN_OR_RETURN(AlignedBuffer buffer, create_at(memory, n_bytes, kHugePageBytes));
#ifdef MADV_HUGEPAGE
  if (memory.gives_zeroed()) {
    (void)madvise(buffer.data_, static_cast<size_t>(n_bytes), MADV_HUGEPAGE);  // a hint
    return buffer;
  }
#endif
  if (!memory.gives_zeroed()) {
    std::memset(buffer.data_, 0, static_cast<size_t>(n_bytes + kSlackBytes));
  }
  return buffer;
}

AlignedBuffer::~AlignedBuffer() { memory_.release(data_, size_ + kSlackBytes, alignment_); }

AlignedBuffer::AlignedBuffer(AlignedBuffer&& other) noexcept
    : memory_(other.memory_),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      alignment_(other.alignment_) {}

AlignedBuffer& AlignedBuffer::operator=(AlignedBuffer&& other) noexcept {
  if (this != &other) {
    memory_.release(data_, size_ + kSlackBytes, alignment_);
    memory_ = other.memory_;
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
    alignment_ = other.alignment_;
  }
  return *this;
}

}  // namespace engine
