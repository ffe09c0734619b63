// Row-interleaved weights (Layout::kRows16): the bytes of a stored matrix, reordered so that a vector holds
// the same columns of 16 rows.
//
// A strip is 16 rows; strips follow each other, and rows past the last one are zero blocks, so a packed matrix
// has the stored bytes of its rows rounded up to 16. In a strip the blocks follow each other in increasing
// column order. A packed block, of 16 rows, is its halves (32 bytes a field, a half per row) and its body,
// which is made of pieces of 64 bytes: lane r of a piece, the bytes 4r to 4r + 3, are four bytes of row r's
// stored block, as the table says ("a..b" are offsets in the stored block of lib/quant/blocks.h, one piece for
// each four bytes).
//
//   format  halves   body, in order
//   Q4_0    d        qs 0..15
//   Q4_1    d, m     qs 0..15
//   Q5_0    d        qh*, qs 0..15
//   Q5_1    d, m     qh*, qs 0..15
//   Q8_0    d        qs 0..31
//   IQ4_NL  d        qs 0..15
//   MXFP4   d        qs 0..15; d is a byte, so the field has 16
//   Q2_K    d, dmin  scales 0..15, qs 0..63
//   Q3_K    d        scales 0..11, hmask 0..31, qs 0..63
//   Q4_K    d, dmin  scales 0..11, qs 0..127
//   Q5_K    d, dmin  scales 0..11, qh 0..31, qs 0..127
//   Q6_K    d        scales 0..15, then for h = 0, 1 and c = 0..7: qh 32h + 4c, ql 64h + 4c, ql 64h + 4c + 32
//   IQ4_XS  d, scales_h   scales_l 0..3, qs 0..127
//   qh*: bit m of byte i is bit 4m + i of the stored 32, so that it stands where the byte i of qs piece m % 4
//   needs it (low nibble for m < 4).
//
// Formats with one half field (32 bytes) go in pairs of blocks, MXFP4 in fours, so that pieces stay at multiples of
// 64 bytes: the halves of all, then all bodies. Fewer last blocks go together the same way. (Then a strip is no
// multiple of 64 bytes, and others start in the middle of a cache line.)
#ifndef ENGINE_LIB_QUANT_PACK_H_
#define ENGINE_LIB_QUANT_PACK_H_

#include <cstdint>

#include "lib/quant/format.h"

namespace engine {

inline constexpr int64_t kStripRows = 16;

// Whether the format has a packed layout.
bool can_pack(Format format);

// Bytes of a packed matrix. cols is a multiple of the format's block.
int64_t packed_bytes(Format format, int64_t rows, int64_t cols);

// Packs the rows row_begin (a multiple of 16) to row_end (a multiple of 16, or the last row of the matrix).
// stored: row 0 of the stored matrix, rows at a distance of row_bytes. out: the packed matrix, 64-byte
// aligned; the strips of these rows are written. Calls for different strips may run at once.
void pack_rows(Format format, const uint8_t* stored, int64_t row_bytes, int64_t cols,
               int64_t row_begin, int64_t row_end, uint8_t* out);

// The inverse: writes the stored rows row_begin to row_end, of any range, from the packed matrix.
void unpack_rows(Format format, const uint8_t* packed, int64_t cols, int64_t row_begin,
                 int64_t row_end, uint8_t* stored, int64_t row_bytes);

// Writes the stored block `block` of row `row` to `out`: what a scalar kernel reads.
void unpack_block(Format format, const uint8_t* packed, int64_t cols, int64_t row, int64_t block,
                  uint8_t* out);

}  // namespace engine

#endif  // ENGINE_LIB_QUANT_PACK_H_
