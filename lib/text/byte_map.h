// Bytes as text in vocabularies: the byte-level alphabet, and SentencePiece's byte pieces.
#ifndef ENGINE_LIB_TEXT_BYTE_MAP_H_
#define ENGINE_LIB_TEXT_BYTE_MAP_H_

#include <array>
#include <cstdint>
#include <string_view>

namespace engine {

inline constexpr uint32_t kByteMapEnd = 0x144;  // 256 + the 68 bytes that are moved

constexpr bool byte_maps_to_itself(uint32_t byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

// Code point of each byte: printable ones stay, the others follow from U+0100 in ascending order.
inline constexpr std::array<uint16_t, 256> kByteToCodePoint = [] {
  std::array<uint16_t, 256> map{};
  uint16_t next = 0x100;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    map[byte] = byte_maps_to_itself(byte) ? static_cast<uint16_t>(byte) : next++;
  }
  return map;
}();

// Byte of each code point below kByteMapEnd, -1 for those outside the alphabet.
inline constexpr std::array<int16_t, kByteMapEnd> kCodePointToByte = [] {
  std::array<int16_t, kByteMapEnd> map{};
  for (int16_t& byte : map) byte = -1;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    map[kByteToCodePoint[byte]] = static_cast<int16_t>(byte);
  }
  return map;
}();

// The value of a byte piece's text, "<0x41>"; -1 for any other text.
inline int byte_piece_value(std::string_view piece) {
  if (piece.size() != 6 || piece.substr(0, 3) != "<0x" || piece[5] != '>') return -1;
  int value = 0;
  for (char c : piece.substr(3, 2)) {
    int digit = -1;
    if (c >= '0' && c <= '9') digit = c - '0';
    if (c >= 'A' && c <= 'F') digit = c - 'A' + 10;
    if (digit < 0) return -1;
    value = value * 16 + digit;
  }
  return value;
}

}  // namespace engine

#endif  // ENGINE_LIB_TEXT_BYTE_MAP_H_
