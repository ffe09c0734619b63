// Saved states as bytes: a magic and a version, little-endian fields, and a checksum of all that at the end.
//
//   char[8]  magic        what it is
//   u32      version      of the fields that follow
//   ...      fields
//   u64[2]   XXH3-128 of everything before, low half first; so in every version
#ifndef ENGINE_LIB_BASE_SEALED_BYTES_H_
#define ENGINE_LIB_BASE_SEALED_BYTES_H_

#include <bit>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <type_traits>

#include "lib/base/hash.h"
#include "lib/base/status.h"

namespace engine {

static_assert(std::endian::native == std::endian::little,
              "fields are written as they lie in memory");

inline constexpr uint64_t kSealBytes = 16;
inline constexpr uint64_t kSealedHeadBytes = 12;  // magic and version

class SealedWriter {
 public:
  using WriteFn = std::function<absl::Status(const void* data, uint64_t n_bytes)>;
  // magic: 8 characters. The first failure of `write` ends the writing; seal() tells it.
  SealedWriter(std::string_view magic, uint32_t version, WriteFn write);
  void put(const void* data, uint64_t n_bytes);
  template <class T>
  void value(T value) {
    static_assert(std::is_arithmetic_v<T>);
    put(&value, sizeof(value));
  }
  bool ok() const { return status_.ok(); }
  absl::Status seal();

 private:
  WriteFn write_;
  HashStream hash_;
  absl::Status status_;
};

class SealedReader {
 public:
  // kCorrupt: too short, another magic, a wrong checksum; kTooNew: another version. Borrows the bytes.
  static absl::StatusOr<SealedReader> open(std::span<const uint8_t> bytes, std::string_view magic,
                                           uint32_t version);
  // Reads past the end give zeros, and ok() is false from then on.
  void take(void* to, uint64_t n_bytes);
  const uint8_t* skip(uint64_t n_bytes);  // to bytes that are there, else nullptr
  template <class T>
  T value() {
    static_assert(std::is_arithmetic_v<T>);
    T value{};
    take(&value, sizeof(value));
    return value;
  }
  bool ok() const { return ok_; }
  uint64_t n_left() const { return fields_.size(); }

 private:
  explicit SealedReader(std::span<const uint8_t> fields) : fields_(fields) {}
  std::span<const uint8_t> fields_;
  bool ok_ = true;
};

}  // namespace engine

#endif  // ENGINE_LIB_BASE_SEALED_BYTES_H_
