// The bytes of one model file: a read-only mapping of a path or descriptor, or the caller's own
// memory.
#ifndef ENGINE_LIB_FILE_MAPPED_FILE_H_
#define ENGINE_LIB_FILE_MAPPED_FILE_H_

#include <cstdint>
#include <span>
#include <string_view>

#include "lib/base/status.h"

namespace engine {

// How a range will be used; hints that never change the contents.
enum class Advice {
  kNormal,
  kSequential,  // read once, front to back
  kRandom,      // no read-ahead
  kWillNeed,    // start reading now
  kDontNeed,    // the pages may leave memory; reading them again is slow but right
};

// Move only. The bytes stay at one address until destruction, moves included. A file that another
// process shortens while it is mapped faults on access (a property of mappings on every system).
class MappedFile {
 public:
  // Same signature as engine_model_params.release_data.
  using ReleaseFn = void (*)(void* user, const void* data, uint64_t length);

  // `path` is UTF-8. Only regular files; an empty one gives an empty span.
  static absl::StatusOr<MappedFile> open_path(std::string_view path);

  // `length` bytes from byte `offset` on of an open file, 0 = up to its end. Any offset is allowed,
  // but Gguf::parse wants the first byte at a multiple of 4. The descriptor stays the caller's, who
  // may close it right afterwards; its file position is not used.
  static absl::StatusOr<MappedFile> open_descriptor(int descriptor, uint64_t offset,
                                                    uint64_t length);

  // Memory of the caller, who keeps it valid and unchanged. `release` (may be null) is called once,
  // when the last owner is destroyed. advise() does nothing on such memory.
  static MappedFile wrap(std::span<const uint8_t> bytes, ReleaseFn release, void* user);

  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const uint8_t> bytes() const { return bytes_; }
  uint64_t size_bytes() const { return bytes_.size(); }
  // How many bytes after bytes() may be read without a fault: the rest of the last mapped page, 0
  // for memory.
  uint64_t readable_past_end() const;

  // Copies bytes [offset, offset + out.size()), which must lie inside, without mapping them: reading through
  // the mapping would count them as this process's memory, on Linux 6 in pieces of up to 2 MiB. Any thread.
  absl::Status read(uint64_t offset, std::span<uint8_t> out) const;

  // Applies to the pages of [offset, offset + length): all that it touches, or, for kDontNeed,
  // those that lie wholly inside. A range beyond the end is cut. Failures of the system are
  // ignored: these are hints.
  void advise(Advice advice, uint64_t offset, uint64_t length) const;

 private:
  void release();

  std::span<const uint8_t> bytes_;
  void* map_ = nullptr;  // start of the mapping, page aligned; null for wrapped memory
  uint64_t map_bytes_ = 0;
  ReleaseFn release_ = nullptr;
  void* user_ = nullptr;
  int descriptor_ = -1;             // of the mapped file, ours
  uint64_t descriptor_offset_ = 0;  // of bytes_[0] in it
};

}  // namespace engine

#endif  // ENGINE_LIB_FILE_MAPPED_FILE_H_
