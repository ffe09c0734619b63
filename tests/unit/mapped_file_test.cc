// Mapping by path, by descriptor at any offset, wrapped memory, moves, hints and system errors.
#include "lib/file/mapped_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "catch2/catch_test_macros.hpp"

namespace engine {
namespace {

// A file of `n` bytes, byte i = i mod 251, in a directory of its own; removed at the end.
class TempFile {
 public:
  explicit TempFile(size_t n, const std::string& name = "model.gguf") {
    char pattern[] = "/tmp/engine_mapped_XXXXXX";
    directory_ = ::mkdtemp(pattern);
    path_ = directory_ + "/" + name;
    std::FILE* file = std::fopen(path_.c_str(), "wb");
    REQUIRE(file != nullptr);
    for (size_t i = 0; i < n; ++i) std::fputc(static_cast<int>(i % 251), file);
    std::fclose(file);
  }
  ~TempFile() {
    ::unlink(path_.c_str());
    ::rmdir(directory_.c_str());
  }
  const std::string& path() const { return path_; }
  const std::string& directory() const { return directory_; }

 private:
  std::string directory_;
  std::string path_;
};

bool holds(std::span<const uint8_t> bytes, size_t first) {
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] != (first + i) % 251) return false;
  }
  return true;
}

TEST_CASE("a file is mapped by its UTF-8 path", "[mapped_file]") {
  const TempFile temp(10000, "mod\xC3\xA8le \xE6\x96\x87.gguf");
  const auto file = MappedFile::open_path(temp.path());
  REQUIRE(file.ok());
  CHECK(file->size_bytes() == 10000);
  CHECK(holds(file->bytes(), 0));
}

TEST_CASE("a descriptor is mapped at any offset and may be closed", "[mapped_file]") {
  const TempFile temp(20000);
  for (uint64_t offset : {0u, 1u, 3u, 4095u, 4096u, 4097u, 8192u, 19999u, 20000u}) {
    for (uint64_t length : {0u, 1u, 5000u}) {
      if (offset + length > 20000) continue;
      const int descriptor = ::open(temp.path().c_str(), O_RDONLY);
      const auto file = MappedFile::open_descriptor(descriptor, offset, length);
      ::close(descriptor);
      REQUIRE(file.ok());
      CHECK(file->size_bytes() == (length == 0 ? 20000 - offset : length));
      CHECK(holds(file->bytes(), offset));
    }
  }
}

TEST_CASE("ranges outside the file are refused", "[mapped_file]") {
  const TempFile temp(100);
  const int descriptor = ::open(temp.path().c_str(), O_RDONLY);
  const auto beyond = MappedFile::open_descriptor(descriptor, 101, 0);
  CHECK(code_of(beyond.status()) == Code::kFileOpen);
  CHECK(beyond.status().message() == "offset 101 lies beyond the end of the file of 100 bytes");
  const auto longer = MappedFile::open_descriptor(descriptor, 1, 100);
  CHECK(code_of(longer.status()) == Code::kFileOpen);
  CHECK(longer.status().message() == "100 bytes from offset 1 end beyond the file of 100 bytes");
  CHECK_FALSE(MappedFile::open_descriptor(descriptor, 50, UINT64_MAX).ok());
  CHECK_FALSE(MappedFile::open_descriptor(descriptor, UINT64_MAX, 2).ok());
  ::close(descriptor);
}

TEST_CASE("system errors carry the system's text", "[mapped_file]") {
  const TempFile temp(1);
  const auto missing = MappedFile::open_path(temp.directory() + "/missing.gguf");
  CHECK(code_of(missing.status()) == Code::kFileOpen);
  CHECK(missing.status().message() ==
        "cannot open " + temp.directory() + "/missing.gguf: No such file or directory");
  const auto directory = MappedFile::open_path(temp.directory());
  CHECK(code_of(directory.status()) == Code::kFileOpen);
  CHECK(directory.status().message() == temp.directory() + ": not a regular file");
  const auto closed = MappedFile::open_descriptor(-1, 0, 0);
  CHECK(code_of(closed.status()) == Code::kFileOpen);
  CHECK(closed.status().message() == "cannot read the file's size: Bad file descriptor");
  CHECK(code_of(MappedFile::open_path("").status()) == Code::kArgument);
  CHECK(code_of(MappedFile::open_path(std::string("a\0b", 3)).status()) == Code::kArgument);
  // A FIFO without a writer must not block.
  const std::string fifo = temp.directory() + "/fifo";
  REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
  CHECK(MappedFile::open_path(fifo).status().message() == fifo + ": not a regular file");
  ::unlink(fifo.c_str());
}

TEST_CASE("an empty file gives an empty span", "[mapped_file]") {
  const TempFile temp(0);
  const auto file = MappedFile::open_path(temp.path());
  REQUIRE(file.ok());
  CHECK(file->bytes().empty());
  file->advise(Advice::kWillNeed, 0, 100);
}

TEST_CASE("wrapped memory is released once, by its last owner", "[mapped_file]") {
  struct Seen {
    int calls = 0;
    const void* data = nullptr;
    uint64_t length = 0;
  } seen;
  const auto release = [](void* user, const void* data, uint64_t length) {
    auto* s = static_cast<Seen*>(user);
    *s = {s->calls + 1, data, length};
  };
  const std::vector<uint8_t> memory(5000, 3);
  {
    MappedFile first = MappedFile::wrap(memory, release, &seen);
    MappedFile second = std::move(first);
    CHECK(second.bytes().data() == memory.data());
    CHECK(
        first.bytes().empty());  // NOLINT(bugprone-use-after-move): the moved-from state is stated
    second.advise(Advice::kDontNeed, 0, 5000);
    CHECK(memory[4096] == 3);
    first = std::move(second);
    MappedFile& same = first;
    first = std::move(same);
    CHECK(seen.calls == 0);
  }
  CHECK(seen.calls == 1);
  CHECK(seen.data == memory.data());
  CHECK(seen.length == 5000);
  // Assigning over it releases the old memory at once; no callback is fine.
  MappedFile third = MappedFile::wrap(memory, release, &seen);
  third = MappedFile::wrap(memory, nullptr, nullptr);
  CHECK(seen.calls == 2);
}

TEST_CASE("bytes stay in place when the file object moves", "[mapped_file]") {
  const TempFile temp(9000);
  auto file = MappedFile::open_path(temp.path());
  REQUIRE(file.ok());
  const uint8_t* before = file->bytes().data();
  const MappedFile moved = std::move(*file);
  CHECK(moved.bytes().data() == before);
  CHECK(holds(moved.bytes(), 0));
}

TEST_CASE("hints never change what is read", "[mapped_file]") {
  const TempFile temp(50000);
  const int descriptor = ::open(temp.path().c_str(), O_RDONLY);
  const auto file = MappedFile::open_descriptor(descriptor, 77, 0);
  ::close(descriptor);
  REQUIRE(file.ok());
  for (const Advice advice : {Advice::kNormal, Advice::kSequential, Advice::kRandom,
                              Advice::kWillNeed, Advice::kDontNeed}) {
    for (uint64_t offset :
         {uint64_t{0}, uint64_t{5000}, uint64_t{49922}, uint64_t{60000}, UINT64_MAX}) {
      for (uint64_t length : {uint64_t{0}, uint64_t{1}, uint64_t{10000}, UINT64_MAX}) {
        file->advise(advice, offset, length);
      }
    }
    CHECK(holds(file->bytes(), 77));
  }
}

}  // namespace
}  // namespace engine
