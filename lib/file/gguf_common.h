// Shared by the GGUF parser and the typed reads: sizes and names of value types, and one form of
// error.
#ifndef ENGINE_LIB_FILE_GGUF_COMMON_H_
#define ENGINE_LIB_FILE_GGUF_COMMON_H_

#include <cstdint>
#include <cstring>
#include <string_view>

#include "lib/base/status.h"
#include "lib/file/gguf.h"

namespace engine {

// "NAME: MESSAGE (offset N)" with the name made printable and cut to 80 characters; `name` may be
// empty.
absl::Status gguf_error(Code code, std::string_view name, uint64_t offset,
                        std::string_view message);

// Bytes of a scalar of this type; 0 for strings and arrays.
uint64_t gguf_type_bytes(GgufType type);
std::string_view gguf_type_name(GgufType type);

template <class T>
T load_unaligned(const uint8_t* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(T));
  return value;
}

}  // namespace engine

#endif  // ENGINE_LIB_FILE_GGUF_COMMON_H_
