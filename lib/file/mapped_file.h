// The bytes of one model: a read-only mapping of a file or of a set of files, the caller's own memory, or a
// copy of what the caller reads.
#ifndef ENGINE_LIB_FILE_MAPPED_FILE_H_
#define ENGINE_LIB_FILE_MAPPED_FILE_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "lib/base/host_memory.h"
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

  // Files in one address range, each from a page on; bytes() covers all of them with zeros between.
  static absl::StatusOr<MappedFile> open_set(std::span<const std::string> paths);

  // A copy of `length` bytes that `read` gives: out.size() bytes from byte `offset` on, front to back, in
  // pieces of a few megabytes. At a multiple of 64.
  using ReadFn = absl::FunctionRef<absl::Status(uint64_t offset, std::span<uint8_t> out)>;
  static absl::StatusOr<MappedFile> copy(const HostMemory& memory, uint64_t length, ReadFn read);
  // The same of a part of an open file, 0 = up to its end: for offsets that Gguf::parse cannot take.
  static absl::StatusOr<MappedFile> copy_descriptor(const HostMemory& memory, int descriptor,
                                                    uint64_t offset, uint64_t length);

  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const uint8_t> bytes() const { return bytes_; }
  uint64_t size_bytes() const { return bytes_.size(); }
  // Of a set: each file, inside bytes(); else empty.
  std::span<const std::span<const uint8_t>> files() const { return files_; }
  // All files together, without what lies between them.
  uint64_t file_bytes() const;
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
  // An open file, at its place in bytes().
  struct Part {
    uint64_t begin;
    uint64_t n_bytes;
    int descriptor;  // ours; -1: none could be had, read() uses the mapping
    uint64_t descriptor_offset;
  };

  void release();

  std::span<const uint8_t> bytes_;
  void* map_ = nullptr;  // start of the mapping, page aligned; null for wrapped memory
  uint64_t map_bytes_ = 0;
  ReleaseFn release_ = nullptr;
  void* user_ = nullptr;
  std::vector<Part> parts_;  // ascending
  std::vector<std::span<const uint8_t>> files_;
  AlignedBuffer owned_;
};

}  // namespace engine

#endif  // ENGINE_LIB_FILE_MAPPED_FILE_H_
