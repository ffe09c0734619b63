// POSIX mapping of model files.
#include "lib/file/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
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

}  // namespace

absl::StatusOr<MappedFile> MappedFile::open_path(std::string_view path) {
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
  absl::StatusOr<MappedFile> file = open_descriptor(descriptor, 0, 0);
  ::close(descriptor);  // the mapping keeps the file
  if (!file.ok()) {
    return error(code_of(file.status()), absl::StrCat(path, ": ", file.status().message()));
  }
  return file;
}

absl::StatusOr<MappedFile> MappedFile::open_descriptor(int descriptor, uint64_t offset,
                                                       uint64_t length) {
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
  if (length == 0) length = file_bytes - offset;
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
  file.descriptor_ =
      ::fcntl(descriptor, F_DUPFD_CLOEXEC, 0);  // without one, read() uses the mapping
  file.descriptor_offset_ = offset;
  return file;
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
  descriptor_ = std::exchange(other.descriptor_, -1);
  descriptor_offset_ = std::exchange(other.descriptor_offset_, 0);
  return *this;
}

MappedFile::~MappedFile() { release(); }

void MappedFile::release() {
  if (map_ != nullptr) ::munmap(map_, static_cast<size_t>(map_bytes_));
  if (descriptor_ >= 0) ::close(descriptor_);
  if (release_ != nullptr) release_(user_, bytes_.data(), bytes_.size());
  descriptor_ = -1;
  map_ = nullptr;
  release_ = nullptr;
}

absl::Status MappedFile::read(uint64_t offset, std::span<uint8_t> out) const {
  if (offset > bytes_.size() || out.size() > bytes_.size() - offset) {
    return error(Code::kInternal, "a range outside the file");
  }
  size_t done = 0;
  while (descriptor_ >= 0 && done < out.size()) {
    const ssize_t n = ::pread(descriptor_, out.data() + done, out.size() - done,
                              static_cast<off_t>(descriptor_offset_ + offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return system_error(errno, "cannot read the file");
    if (n == 0) return error(Code::kFileOpen, "the file became shorter while it was open");
    done += static_cast<size_t>(n);
  }
  if (done < out.size()) std::memcpy(out.data(), bytes_.data() + offset, out.size());
  return absl::OkStatus();
}

uint64_t MappedFile::readable_past_end() const {
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
