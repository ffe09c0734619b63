// Reading UTF-8: the length of the well-formed scalar at a place, or of the ill-formed part that
// stands there.
#ifndef ENGINE_LIB_TEXT_UTF8_SCAN_H_
#define ENGINE_LIB_TEXT_UTF8_SCAN_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace engine {

struct Utf8Step {
  uint8_t n_bytes = 0;      // of the scalar, or of the maximal ill-formed subpart
  bool valid = false;       // a whole scalar (Unicode table 3-7)
  bool incomplete = false;  // the text ends inside what may still become a scalar
  uint32_t scalar = 0;
};

// `text` is not empty.
inline Utf8Step utf8_step(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return {1, true, false, lead};
  uint8_t n_bytes = 0;
  if (lead >= 0xC2 && lead <= 0xDF) n_bytes = 2;
  if (lead >= 0xE0 && lead <= 0xEF) n_bytes = 3;
  if (lead >= 0xF0 && lead <= 0xF4) n_bytes = 4;
  if (n_bytes == 0) return {1, false, false, 0};
  // The second byte's range excludes overlong forms, surrogates and values above U+10FFFF.
  uint8_t low = 0x80;
  uint8_t high = 0xBF;
  if (lead == 0xE0) low = 0xA0;
  if (lead == 0xED) high = 0x9F;
  if (lead == 0xF0) low = 0x90;
  if (lead == 0xF4) high = 0x8F;
  uint32_t scalar = lead & (0xFFU >> (n_bytes + 1));
  for (uint8_t i = 1; i < n_bytes; ++i) {
    if (i >= text.size()) return {i, false, true, 0};
    if (byte(i) < low || byte(i) > high) return {i, false, false, 0};
    scalar = (scalar << 6) | (byte(i) & 0x3FU);
    low = 0x80;
    high = 0xBF;
  }
  return {n_bytes, true, false, scalar};
}

// The well-formed text at the front, or the ill-formed bytes that stand there.
struct Utf8Stretch {
  size_t n_bytes;
  bool valid;
};

inline Utf8Stretch utf8_stretch(std::string_view text) {
  size_t at = 0;
  bool valid = true;
  while (at < text.size()) {
    const Utf8Step step = utf8_step(text.substr(at));
    if (at == 0) valid = step.valid;
    if (step.valid != valid) break;
    at += step.n_bytes;
  }
  return {at, valid};
}

inline void utf8_append(uint32_t scalar, std::string* out) {
  const auto put = [&](uint32_t byte) { out->push_back(static_cast<char>(byte)); };
  if (scalar < 0x80) {
    put(scalar);
  } else if (scalar < 0x800) {
    put(0xC0 | (scalar >> 6));
    put(0x80 | (scalar & 0x3F));
  } else if (scalar < 0x10000) {
    put(0xE0 | (scalar >> 12));
    put(0x80 | ((scalar >> 6) & 0x3F));
    put(0x80 | (scalar & 0x3F));
  } else {
    put(0xF0 | (scalar >> 18));
    put(0x80 | ((scalar >> 12) & 0x3F));
    put(0x80 | ((scalar >> 6) & 0x3F));
    put(0x80 | (scalar & 0x3F));
  }
}

}  // namespace engine

#endif  // ENGINE_LIB_TEXT_UTF8_SCAN_H_
