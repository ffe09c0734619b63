// Streaming UTF-8: bytes in any cut go in, whole scalars come out, at most three bytes pend.
#ifndef ENGINE_LIB_TEXT_UTF8_STREAM_H_
#define ENGINE_LIB_TEXT_UTF8_STREAM_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace engine {

class Utf8Stream {
 public:
  // Appends to `out` the complete scalars of pending + bytes. An invalid maximal subpart (Unicode table
  // 3-7) becomes one U+FFFD.
  void push(std::string_view bytes, std::string* out);
  // The bytes still pending, as they are; afterwards the stream is empty.
  std::string flush();

 private:
  char pending_[4] = {};
  uint8_t n_pending_ = 0;
};

}  // namespace engine

#endif  // ENGINE_LIB_TEXT_UTF8_STREAM_H_
