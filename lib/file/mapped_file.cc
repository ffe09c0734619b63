// POSIX mapping and reading of model files.
#include "lib/file/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace engine {
namespace {

// "what: No such file or directory"; absl's text of errno is thread safe, unlike strerror.
absl::Status system_error(int error_number, std::string_view what) {
  return error(Code::kFileOpen, absl::ErrnoToStatus(error_number, what).message());
}

uint64_t page_bytes() { return static_cast<uint64_t>(::sysconf(_SC_PAGESIZE)); }

int to_madvise(Advice advice) {
  switch (advice) {
    case Advice::kSequential: return MADV_SEQUENTIAL;
    case Advice::kRandom: return MADV_RANDOM;
    case Advice::kWillNeed: return MADV_WILLNEED;
    case Advice::kDontNeed: return MADV_DONTNEED;
    case Advice::kNormal: break;
  }
  return MADV_NORMAL;
}

// A descriptor that is closed at the end.
class Descriptor {
 public:
  explicit Descriptor(int descriptor) : descriptor_(descriptor) {}
  Descriptor(Descriptor&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Descriptor& operator=(Descriptor&&) = delete;
  ~Descriptor() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  int get() const { return descriptor_; }

 private:
  int descriptor_;
};

absl::StatusOr<Descriptor> open_readable(std::string_view path) {
  if (path.empty()) return error(Code::kArgument, "the path is empty");
  if (path.find('\0') != std::string_view::npos) {
    return error(Code::kArgument, "the path holds a NUL byte");
  }
  const std::string terminated(path);
  int descriptor = -1;
  do {
    // Without O_NONBLOCK opening a FIFO would wait for a writer.
    descriptor = ::open(terminated.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  } while (descriptor < 0 && errno == EINTR);
  if (descriptor < 0) return system_error(errno, absl::StrCat("cannot open ", path));
  return Descriptor(descriptor);
}

absl::Status with_path(std::string_view path, const absl::Status& status) {
  return error(code_of(status), absl::StrCat(path, ": ", status.message()));
}

// The length of a part of an open file; `length` 0 = up to its end.
absl::StatusOr<uint64_t> part_length(int descriptor, uint64_t offset, uint64_t length) {
  struct stat info;
  if (::fstat(descriptor, &info) != 0) return system_error(errno, "cannot read the file's size");
  if (!S_ISREG(info.st_mode)) return error(Code::kFileOpen, "not a regular file");
  const uint64_t file_bytes = static_cast<uint64_t>(info.st_size);
  if (offset > file_bytes) {
    return error(Code::kFileOpen,
                 absl::StrCat("offset ", offset, " lies beyond the end of the file of ", file_bytes,
                              " bytes"));
  }
  if (length > file_bytes - offset) {
    return error(Code::kFileOpen, absl::StrCat(length, " bytes from offset ", offset,
                                               " end beyond the file of ", file_bytes, " bytes"));
  }
  return length == 0 ? file_bytes - offset : length;
}

// Without a descriptor of one's own the mapping is read instead.
int duplicate(int descriptor) { return ::fcntl(descriptor, F_DUPFD_CLOEXEC, 0); }

absl::Status read_descriptor(int descriptor, uint64_t offset, std::span<uint8_t> out) {
  for (size_t done = 0; done < out.size();) {
    const ssize_t n = ::pread(descriptor, out.data() + done, out.size() - done,
                              static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return system_error(errno, "cannot read the file");
    if (n == 0) return error(Code::kFileOpen, "the file became shorter while it was open");
    done += static_cast<size_t>(n);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<MappedFile> MappedFile::open_path(std::string_view path) {
  ENGINE_ASSIGN_OR_RETURN(const Descriptor descriptor, open_readable(path));
  absl::StatusOr<MappedFile> file = open_descriptor(descriptor.get(), 0, 0);
  if (!file.ok()) return with_path(path, file.status());
  return file;
}

absl::StatusOr<MappedFile> MappedFile::open_descriptor(int descriptor, uint64_t offset,
                                                       uint64_t length) {
  ENGINE_ASSIGN_OR_RETURN(length, part_length(descriptor, offset, length));
  MappedFile file;
  if (length == 0) return file;
  const uint64_t lead_bytes = offset % page_bytes();
  const uint64_t map_bytes = lead_bytes + length;
  if (map_bytes > std::numeric_limits<size_t>::max()) {
    return error(Code::kMemory, "the file is larger than the address space");
  }
  void* map = ::mmap(nullptr, static_cast<size_t>(map_bytes), PROT_READ, MAP_SHARED, descriptor,
                     static_cast<off_t>(offset - lead_bytes));
  if (map == MAP_FAILED) return system_error(errno, "cannot map the file");
  file.map_ = map;
  file.map_bytes_ = map_bytes;
  file.bytes_ = {static_cast<const uint8_t*>(map) + lead_bytes, static_cast<size_t>(length)};
  file.parts_.push_back({0, length, duplicate(descriptor), offset});
  return file;
}

absl::StatusOr<MappedFile> MappedFile::open_set(std::span<const std::string> paths) {
  std::vector<Descriptor> descriptors;
  std::vector<uint64_t> lengths;
  uint64_t map_bytes = 0;
  uint64_t end = 0;
  for (const std::string& path : paths) {
    ENGINE_ASSIGN_OR_RETURN(Descriptor descriptor, open_readable(path));
    const auto length = part_length(descriptor.get(), 0, 0);
    if (!length.ok()) return with_path(path, length.status());
    if (*length == 0) return error(Code::kFileFormat, absl::StrCat(path, ": the file is empty"));
    descriptors.push_back(std::move(descriptor));
    lengths.push_back(*length);
    end = map_bytes + *length;
    map_bytes = (end + page_bytes() - 1) / page_bytes() * page_bytes();
    if (end < *length || map_bytes < end || map_bytes > std::numeric_limits<size_t>::max()) {
      return error(Code::kMemory, "the files are larger than the address space");
    }
  }
  MappedFile file;
  if (map_bytes == 0) return file;
  // The range is reserved first, so that the files can be put one behind the other.
  void* map = ::mmap(nullptr, static_cast<size_t>(map_bytes), PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (map == MAP_FAILED) return system_error(errno, "cannot reserve addresses for the files");
  file.map_ = map;
  file.map_bytes_ = map_bytes;
  uint64_t begin = 0;
  for (size_t i = 0; i < paths.size(); ++i) {
    uint8_t* const at = static_cast<uint8_t*>(map) + begin;
    if (::mmap(at, static_cast<size_t>(lengths[i]), PROT_READ, MAP_SHARED | MAP_FIXED,
               descriptors[i].get(), 0) == MAP_FAILED) {
      return with_path(paths[i], system_error(errno, "cannot map the file"));
    }
    file.parts_.push_back({begin, lengths[i], duplicate(descriptors[i].get()), 0});
    file.files_.push_back({at, static_cast<size_t>(lengths[i])});
    begin = (begin + lengths[i] + page_bytes() - 1) / page_bytes() * page_bytes();
  }
  file.bytes_ = {static_cast<const uint8_t*>(map), static_cast<size_t>(end)};
  return file;
}

absl::StatusOr<MappedFile> MappedFile::copy(const HostMemory& memory, uint64_t length,
                                            ReadFn read) {
  constexpr uint64_t kPieceBytes = uint64_t{4} << 20;
  MappedFile file;
  if (length == 0) return file;
  ENGINE_ASSIGN_OR_RETURN(file.owned_, AlignedBuffer::create(memory, length));
  for (uint64_t at = 0; at < length; at += kPieceBytes) {
    const uint64_t n_bytes = std::min(kPieceBytes, length - at);
    ENGINE_RETURN_IF_ERROR(read(at, {file.owned_.data() + at, static_cast<size_t>(n_bytes)}));
  }
  file.bytes_ = {file.owned_.data(), static_cast<size_t>(length)};
  return file;
}

absl::StatusOr<MappedFile> MappedFile::copy_descriptor(const HostMemory& memory, int descriptor,
                                                       uint64_t offset, uint64_t length) {
  ENGINE_ASSIGN_OR_RETURN(length, part_length(descriptor, offset, length));
  return copy(memory, length, [&](uint64_t at, std::span<uint8_t> out) {
    return read_descriptor(descriptor, offset + at, out);
  });
}

MappedFile MappedFile::wrap(std::span<const uint8_t> bytes, ReleaseFn release, void* user) {
  MappedFile file;
  file.bytes_ = bytes;
  file.release_ = release;
  file.user_ = user;
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept { *this = std::move(other); }

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  if (this == &other) return *this;
  release();
  bytes_ = std::exchange(other.bytes_, {});
  map_ = std::exchange(other.map_, nullptr);
  map_bytes_ = std::exchange(other.map_bytes_, 0);
  release_ = std::exchange(other.release_, nullptr);
  user_ = std::exchange(other.user_, nullptr);
  parts_ = std::exchange(other.parts_, {});
  files_ = std::exchange(other.files_, {});
  owned_ = std::move(other.owned_);
  return *this;
}

MappedFile::~MappedFile() { release(); }

void MappedFile::release() {
  if (map_ != nullptr) ::munmap(map_, static_cast<size_t>(map_bytes_));
  for (const Part& part : parts_) {
    if (part.descriptor >= 0) ::close(part.descriptor);
  }
  if (release_ != nullptr) release_(user_, bytes_.data(), bytes_.size());
  parts_.clear();
  map_ = nullptr;
  release_ = nullptr;
}

absl::Status MappedFile::read(uint64_t offset, std::span<uint8_t> out) const {
  if (offset > bytes_.size() || out.size() > bytes_.size() - offset) {
    return error(Code::kInternal, "a range outside the file");
  }
  for (const Part& part : parts_) {
    const uint64_t begin = std::max(offset, part.begin);
    const uint64_t end = std::min(offset + out.size(), part.begin + part.n_bytes);
    if (part.descriptor < 0 || begin >= end) continue;
    if (begin == offset && end == offset + out.size()) {
      return read_descriptor(part.descriptor, part.descriptor_offset + offset - part.begin, out);
    }
  }
  if (!out.empty()) std::memcpy(out.data(), bytes_.data() + offset, out.size());
  return absl::OkStatus();
}

uint64_t MappedFile::file_bytes() const {
  if (files_.empty()) return bytes_.size();
  uint64_t n_bytes = 0;
  for (const std::span<const uint8_t>& file : files_) n_bytes += file.size();
  return n_bytes;
}

uint64_t MappedFile::readable_past_end() const {
  if (owned_.data() != nullptr) return AlignedBuffer::kSlackBytes;
  if (map_ == nullptr) return 0;
  const uint64_t page = page_bytes();
  const auto end = reinterpret_cast<uintptr_t>(bytes_.data()) + bytes_.size();
  return (page - end % page) % page;
}

void MappedFile::advise(Advice advice, uint64_t offset, uint64_t length) const {
  if (map_ == nullptr || offset >= bytes_.size()) return;
  length = std::min<uint64_t>(length, bytes_.size() - offset);
  const uint64_t page = page_bytes();
  // Positions relative to the mapping, which begins on a page.
  const uint64_t lead = static_cast<uint64_t>(bytes_.data() - static_cast<const uint8_t*>(map_));
  uint64_t begin = lead + offset;
  uint64_t end = begin + length;
  if (advice == Advice::kDontNeed) {
    begin = (begin + page - 1) / page * page;
    end =
        end == map_bytes_ ? end : end / page * page;  // the last page holds nothing behind the file
  } else {
    begin = begin / page * page;
  }
  if (begin >= end) return;
  (void)::madvise(static_cast<uint8_t*>(map_) + begin, static_cast<size_t>(end - begin),
                  to_madvise(advice));
}

}  // namespace engine
