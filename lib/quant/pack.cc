// Packs and unpacks row-interleaved weights: one table of where the bytes of a block go.
#include "lib/quant/pack.h"

#include <cstddef>
#include <cstring>

#include "lib/quant/blocks.h"

namespace engine {
namespace {

constexpr int64_t kPieceBytes = 64;
constexpr int kMaxPieces = 64;

// Where the bytes of a stored block lie in a packed one.
struct PackedForm {
  int64_t block_bytes = 0;  // stored
  int64_t block_cols = 0;
  int half_bytes = 2;  // 1: d is a byte
  int n_halves = 0;
  int64_t half[2] = {};  // offsets of d and of m, dmin or scales_h
  int n_pieces = 0;
  int64_t piece[kMaxPieces] = {};  // offset of the four bytes of each piece
  int bits_piece = -1;             // the piece whose bits are transposed: qh of Q5_0 and Q5_1

  constexpr void add(size_t offset, int bytes) {
    for (int i = 0; i < bytes; i += 4) piece[n_pieces++] = static_cast<int64_t>(offset) + i;
  }
  constexpr int64_t field_bytes() const { return half_bytes * kStripRows; }
  constexpr int64_t packed_block_bytes() const {
    return n_halves * field_bytes() + n_pieces * kPieceBytes;
  }
};

template <class Block>
constexpr PackedForm form_of() {
  PackedForm form;
  form.block_bytes = sizeof(Block);
  form.half_bytes = sizeof(Block::d);
  form.half[form.n_halves++] = offsetof(Block, d);
  if constexpr (requires(Block block) { block.m; }) form.half[form.n_halves++] = offsetof(Block, m);
  if constexpr (requires(Block block) { block.dmin; }) {
    form.half[form.n_halves++] = offsetof(Block, dmin);
  }
  constexpr bool kIq = requires(Block block) { block.scales_h; };
  constexpr bool k256 = kIq || requires(Block block) { block.scales; };
  form.block_cols = k256 ? 256 : 32;
  if constexpr (kIq) {
    form.half[form.n_halves++] = offsetof(Block, scales_h);
    form.add(offsetof(Block, scales_l), sizeof(Block::scales_l));
  } else if constexpr (k256) {
    form.add(offsetof(Block, scales), sizeof(Block::scales));
  }
  if constexpr (requires(Block block) { block.hmask; }) form.add(offsetof(Block, hmask), 32);
  if constexpr (requires(Block block) { block.ql; }) {
    for (size_t h = 0; h < 2; ++h) {
      for (size_t c = 0; c < 8; ++c) {
        form.add(offsetof(Block, qh) + 32 * h + 4 * c, 4);
        form.add(offsetof(Block, ql) + 64 * h + 4 * c, 4);
        form.add(offsetof(Block, ql) + 64 * h + 4 * c + 32, 4);
      }
    }
  } else {
    if constexpr (requires(Block block) { block.qh; }) {
      if (!k256) form.bits_piece = form.n_pieces;
      form.add(offsetof(Block, qh), sizeof(Block::qh));
    }
    form.add(offsetof(Block, qs), sizeof(Block::qs));
  }
  return form;
}

template <class Block>
inline constexpr PackedForm kForm = form_of<Block>();

template <class Block>
constexpr bool kSameBytes = kForm<Block>.packed_block_bytes() == kStripRows* int64_t{sizeof(Block)};
static_assert(kSameBytes<BlockQ4_0> && kSameBytes<BlockQ4_1> && kSameBytes<BlockQ5_0> &&
              kSameBytes<BlockQ5_1> && kSameBytes<BlockQ8_0>);
static_assert(kSameBytes<BlockQ2_K> && kSameBytes<BlockQ3_K> && kSameBytes<BlockQ4_K> &&
              kSameBytes<BlockQ5_K> && kSameBytes<BlockQ6_K>);
static_assert(kSameBytes<BlockIQ4_NL> && kSameBytes<BlockIQ4_XS> && kSameBytes<BlockMXFP4>);

const PackedForm* form_of_format(Format format) {
  switch (format) {
    case Format::kQ4_0: return &kForm<BlockQ4_0>;
    case Format::kQ4_1: return &kForm<BlockQ4_1>;
    case Format::kQ5_0: return &kForm<BlockQ5_0>;
    case Format::kQ5_1: return &kForm<BlockQ5_1>;
    case Format::kQ8_0: return &kForm<BlockQ8_0>;
    case Format::kQ2_K: return &kForm<BlockQ2_K>;
    case Format::kQ3_K: return &kForm<BlockQ3_K>;
    case Format::kQ4_K: return &kForm<BlockQ4_K>;
    case Format::kQ5_K: return &kForm<BlockQ5_K>;
    case Format::kQ6_K: return &kForm<BlockQ6_K>;
    case Format::kIQ4_NL: return &kForm<BlockIQ4_NL>;
    case Format::kIQ4_XS: return &kForm<BlockIQ4_XS>;
    case Format::kMXFP4: return &kForm<BlockMXFP4>;
    default: return nullptr;
  }
}

// Offsets of a block's halves and body in its strip.
struct BlockPlace {
  int64_t halves;
  int64_t body;
};
BlockPlace place_of(const PackedForm& form, int64_t block, int64_t n_blocks) {
  const int64_t bytes = form.packed_block_bytes();
  const int64_t halves_bytes = form.n_halves * form.field_bytes();
  const int64_t together = kPieceBytes / halves_bytes;  // 1, 2 or 4 blocks
  const int64_t first = block / together * together, in_group = block - first;
  const int64_t n = n_blocks - first < together ? n_blocks - first : together;
  return {first * bytes + in_group * halves_bytes,
          first * bytes + n * halves_bytes + in_group * (bytes - halves_bytes)};
}

// Bit 4m + i to bit 8i + m.
uint32_t spread_bits(uint32_t bits) {
  uint32_t out = 0;
  for (int m = 0; m < 8; ++m) {
    out |= ((((bits >> (4 * m)) & 15u) * 0x00204081u) & 0x01010101u) << m;
  }
  return out;
}
uint32_t gather_bits(uint32_t spread) {
  uint32_t out = 0;
  for (int m = 0; m < 8; ++m) {
    for (int i = 0; i < 4; ++i) out |= ((spread >> (8 * i + m)) & 1u) << (4 * m + i);
  }
  return out;
}

void pack_block(const PackedForm& form, const uint8_t* block, int64_t lane, uint8_t* halves,
                uint8_t* body) {
  for (int i = 0; i < form.n_halves; ++i) {
    std::memcpy(halves + i * form.field_bytes() + form.half_bytes * lane, block + form.half[i],
                static_cast<size_t>(form.half_bytes));
  }
  for (int i = 0; i < form.n_pieces; ++i) {
    std::memcpy(body + i * kPieceBytes + 4 * lane, block + form.piece[i], 4);
  }
  if (form.bits_piece >= 0) {
    uint8_t* at = body + form.bits_piece * kPieceBytes + 4 * lane;
    uint32_t bits;
    std::memcpy(&bits, at, 4);
    bits = spread_bits(bits);
    std::memcpy(at, &bits, 4);
  }
}

void unpack_one(const PackedForm& form, const uint8_t* strip, int64_t n_blocks, int64_t lane,
                int64_t block, uint8_t* out) {
  const BlockPlace place = place_of(form, block, n_blocks);
  for (int i = 0; i < form.n_halves; ++i) {
    std::memcpy(out + form.half[i],
                strip + place.halves + i * form.field_bytes() + form.half_bytes * lane,
                static_cast<size_t>(form.half_bytes));
  }
  for (int i = 0; i < form.n_pieces; ++i) {
    std::memcpy(out + form.piece[i], strip + place.body + i * kPieceBytes + 4 * lane, 4);
  }
  if (form.bits_piece >= 0) {
    uint8_t* at = out + form.piece[form.bits_piece];
    uint32_t bits;
    std::memcpy(&bits, at, 4);
    bits = gather_bits(bits);
    std::memcpy(at, &bits, 4);
  }
}

}  // namespace

bool can_pack(Format format) { return form_of_format(format) != nullptr; }

int64_t packed_bytes(Format format, int64_t rows, int64_t cols) {
  const PackedForm& form = *form_of_format(format);
  return (rows + kStripRows - 1) / kStripRows * (cols / form.block_cols) *
         form.packed_block_bytes();
}

void pack_rows(Format format, const uint8_t* stored, int64_t row_bytes, int64_t cols,
               int64_t row_begin, int64_t row_end, uint8_t* out) {
  const PackedForm& form = *form_of_format(format);
  const int64_t n_blocks = cols / form.block_cols;
  const int64_t strip_bytes = n_blocks * form.packed_block_bytes();
  for (int64_t r = row_begin; r < row_end; r += kStripRows) {
    uint8_t* strip = out + r / kStripRows * strip_bytes;
    const int64_t n_rows = row_end - r < kStripRows ? row_end - r : kStripRows;
    if (n_rows < kStripRows) std::memset(strip, 0, static_cast<size_t>(strip_bytes));
    for (int64_t b = 0; b < n_blocks; ++b) {
      const BlockPlace place = place_of(form, b, n_blocks);
      for (int64_t lane = 0; lane < n_rows; ++lane) {
        pack_block(form, stored + (r + lane) * row_bytes + b * form.block_bytes, lane,
                   strip + place.halves, strip + place.body);
      }
    }
  }
}

void unpack_rows(Format format, const uint8_t* packed, int64_t cols, int64_t row_begin,
                 int64_t row_end, uint8_t* stored, int64_t row_bytes) {
  const PackedForm& form = *form_of_format(format);
  for (int64_t r = row_begin; r < row_end; ++r) {
    for (int64_t b = 0; b < cols / form.block_cols; ++b) {
      unpack_block(format, packed, cols, r, b, stored + r * row_bytes + b * form.block_bytes);
    }
  }
}

void unpack_block(Format format, const uint8_t* packed, int64_t cols, int64_t row, int64_t block,
                  uint8_t* out) {
  const PackedForm& form = *form_of_format(format);
  const int64_t n_blocks = cols / form.block_cols;
  const uint8_t* strip = packed + row / kStripRows * n_blocks * form.packed_block_bytes();
  unpack_one(form, strip, n_blocks, row % kStripRows, block, out);
}

}  // namespace engine
