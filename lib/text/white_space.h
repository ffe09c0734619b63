// White space as Unicode and the published tokenizers define it.
#ifndef ENGINE_LIB_TEXT_WHITE_SPACE_H_
#define ENGINE_LIB_TEXT_WHITE_SPACE_H_

#include <cstdint>

namespace engine {

constexpr bool is_white_space(uint32_t c) {
  return (c >= 9 && c <= 13) || c == ' ' || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

}  // namespace engine

#endif  // ENGINE_LIB_TEXT_WHITE_SPACE_H_
