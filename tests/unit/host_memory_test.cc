// HostMemory and AlignedBuffer: alignment, zeroes, limits, and the balance of a host's allocator.
#include "lib/base/host_memory.h"

#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <utility>

#include "lib/base/status.h"

namespace engine {
namespace {

// Fills blocks with rubbish, checks that each comes back with the numbers it was asked for.
struct Host {
  std::map<void*, std::pair<uint64_t, uint64_t>> live;
  int n_allocated = 0;
  int n_wrong = 0;
  uint64_t misalign_bytes = 0;
  bool empty = false;

  static void* allocate(void* user, uint64_t n_bytes, uint64_t alignment) {
    Host& host = *static_cast<Host*>(user);
    if (host.empty) return nullptr;
    uint8_t* const block = static_cast<uint8_t*>(
        std::aligned_alloc(alignment, (n_bytes + 2 * alignment - 1) / alignment * alignment));
    uint8_t* const p = block + host.misalign_bytes;
    std::memset(p, 0xA5, n_bytes);
    host.live[p] = {n_bytes, alignment};
    ++host.n_allocated;
    return p;
  }
  static void release(void* user, void* p, uint64_t n_bytes, uint64_t alignment) {
    Host& host = *static_cast<Host*>(user);
    const auto found = host.live.find(p);
    if (found == host.live.end() || found->second != std::pair(n_bytes, alignment)) {
      ++host.n_wrong;
      return;
    }
    host.live.erase(found);
    std::free(static_cast<uint8_t*>(p) - host.misalign_bytes);
  }
  HostMemory memory() { return HostMemory(this, allocate, release); }
};

bool is_aligned(const void* p, uint64_t alignment) {
  return reinterpret_cast<uintptr_t>(p) % alignment == 0;
}

bool all_zero(const uint8_t* p, uint64_t n) {
  for (uint64_t i = 0; i < n; ++i) {
    if (p[i] != 0) return false;
  }
  return true;
}

}  // namespace

TEST_CASE("host_memory: heap blocks are aligned, usable and released") {
  const HostMemory memory;
  for (const uint64_t alignment : {1u, 2u, 8u, 16u, 64u, 4096u, 65536u}) {
    for (const uint64_t n_bytes : {0u, 1u, 63u, 64u, 1000u, 1u << 20}) {
      void* const p = memory.allocate(n_bytes, alignment);
      REQUIRE(p != nullptr);
      CHECK(is_aligned(p, alignment));
      CHECK(all_zero(static_cast<uint8_t*>(p), n_bytes));
      std::memset(p, 0xFF, n_bytes);
      memory.release(p, n_bytes, alignment);
    }
  }
  memory.release(nullptr, 0, 1);
}

TEST_CASE("host_memory: impossible requests give null") {
  const HostMemory memory;
  CHECK(memory.allocate(UINT64_MAX, 64) == nullptr);
  CHECK(memory.allocate(UINT64_MAX - 64, 64) == nullptr);
  CHECK(memory.allocate(8, 0) == nullptr);
  CHECK(memory.allocate(8, 48) == nullptr);
  CHECK(memory.allocate(8, UINT64_MAX / 2 + 1) == nullptr);
}

TEST_CASE("host_memory: buffers are zeroed, aligned, and readable past the end") {
  Host host;
  for (const HostMemory& memory : {HostMemory(), host.memory()}) {
    for (const uint64_t n_bytes : {0u, 1u, 64u, 100000u}) {
      absl::StatusOr<AlignedBuffer> buffer = AlignedBuffer::create(memory, n_bytes);
      REQUIRE(buffer.ok());
      CHECK(buffer->size() == n_bytes);
      CHECK(is_aligned(buffer->data(), 64));
      CHECK(all_zero(buffer->data(), n_bytes + 64));
      CHECK(static_cast<void*>(buffer->as<float>()) == buffer->data());
    }
  }
  CHECK(host.n_allocated == 4);
  CHECK(host.live.empty());
  CHECK(host.n_wrong == 0);
}

TEST_CASE("host_memory: moving a buffer keeps the balance of the host's allocator") {
  Host one, two;
  {
    AlignedBuffer empty;
    AlignedBuffer a = *AlignedBuffer::create(one.memory(), 100);
    AlignedBuffer b = *AlignedBuffer::create(two.memory(), 200);
    uint8_t* const data_of_a = a.data();
    b = std::move(a);
    CHECK(two.live.empty());
    CHECK(one.live.size() == 1);
    CHECK(b.data() == data_of_a);
    CHECK(b.size() == 100);
    AlignedBuffer c(std::move(b));
    CHECK(c.data() == data_of_a);
    AlignedBuffer& same = c;
    c = std::move(same);
    CHECK(c.data() == data_of_a);
    empty = std::move(c);
    CHECK(one.live.size() == 1);
  }
  CHECK(one.live.empty());
  CHECK(one.n_wrong + two.n_wrong == 0);
}

TEST_CASE("host_memory: no memory is an error that names the size") {
  Host host;
  host.empty = true;
  for (const absl::Status& status :
       {AlignedBuffer::create(host.memory(), 12345).status(),
        AlignedBuffer::create(HostMemory(), UINT64_MAX - 12).status()}) {
    REQUIRE_FALSE(status.ok());
    CHECK(code_of(status) == Code::kMemory);
    const std::string text(status.message());
    const bool names_size = text.find("12345") != std::string::npos ||
                            text.find("18446744073709551603") != std::string::npos;
    CHECK(names_size);
  }
}

TEST_CASE("host_memory: a host's block that is not aligned is given back and refused") {
  Host host;
  host.misalign_bytes = 8;
  CHECK(code_of(AlignedBuffer::create(host.memory(), 100).status()) == Code::kMemory);
  CHECK(host.n_allocated == 1);
  CHECK(host.live.empty());
  CHECK(host.n_wrong == 0);
}

TEST_CASE("host_memory: half a pair of functions is the heap") {
  Host host;
  const HostMemory memory(&host, Host::allocate, nullptr);
  void* const p = memory.allocate(8, 8);
  memory.release(p, 8, 8);
  CHECK(host.n_allocated == 0);
}

}  // namespace engine
