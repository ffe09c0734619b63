// Makes pages and gives them back.
#include "lib/session/kv_page.h"

#include <cstring>
#include <new>

#include "absl/strings/str_cat.h"

namespace engine {
namespace {

constexpr uint64_t kAlign = AlignedBuffer::kAlignmentBytes;

// Where the page's own fields are.
uint64_t fields_offset(uint64_t n_bytes) {
  return (n_bytes + AlignedBuffer::kSlackBytes + kAlign - 1) / kAlign * kAlign;
}

}  // namespace

absl::StatusOr<KvPageRef> KvPageRef::create(const HostMemory& memory, uint64_t n_bytes) {
  static_assert(sizeof(Page) <= kAlign);
  const uint64_t total = fields_offset(n_bytes) + kAlign;
  auto* const data = static_cast<uint8_t*>(memory.allocate(total, kAlign));
  if (data == nullptr) {
    return error(Code::kMemory, absl::StrCat("no memory for a KV page of ", n_bytes, " bytes"));
  }
  if (!memory.gives_zeroed()) std::memset(data, 0, total);
  return KvPageRef(new (data + fields_offset(n_bytes)) Page{{1}, data, n_bytes, memory});
}

void KvPageRef::destroy() {
  const HostMemory memory = page_->memory;
  uint8_t* const data = page_->data;
  const uint64_t n_bytes = page_->n_bytes;
  page_->~Page();
  memory.release(data, fields_offset(n_bytes) + kAlign, kAlign);
}

}  // namespace engine
