// Gathers and scatters stored numbers; none of them is converted.
#include "lib/session/kv_rows.h"

#include <algorithm>
#include <cstring>

#include "lib/contract/kv_block.h"

namespace engine {
namespace {

// Calls move(in page, in rows) for each number of a head, n_pages pages of which the last may be part-filled.
template <class Stored, class Rows, class Move>
void for_numbers(const KvCache& cache, int32_t layer, KvPart part, int64_t head, int64_t n,
                 Rows* rows, Move&& move) {
  const KvLayer kv = cache.layer(layer);
  const int64_t D = kv_head_dim(cache.geometry(layer), part);
  const int64_t offset = part == KvPart::kKeys ? kv.k_offset_bytes : kv.v_offset_bytes;
  for (int64_t first = 0; first < n; first += kKvPagePositions) {
    auto* page = reinterpret_cast<Stored*>(kv.pages[first / kKvPagePositions] + offset) +
                 head * D * kKvPagePositions;
    const int64_t n_here = std::min(kKvPagePositions, n - first);
    for (int64_t j = 0; j < n_here; ++j) {
      for (int64_t d = 0; d < D; ++d) {
        move(page[part == KvPart::kKeys ? d * kKvPagePositions + j : j * D + d],
             rows + ((first + j) * D + d) * static_cast<int64_t>(sizeof(Stored)));
      }
    }
  }
}

template <class Stored>
void read(const KvCache& cache, int32_t layer, KvPart part, int64_t head, int64_t n,
          uint8_t* rows) {
  for_numbers<Stored>(cache, layer, part, head, n, rows, [](const Stored& in_page, uint8_t* row) {
    std::memcpy(row, &in_page, sizeof(Stored));
  });
}

template <class Stored>
void write(const KvCache& cache, int32_t layer, KvPart part, int64_t head, int64_t n,
           const uint8_t* rows) {
  for_numbers<Stored>(cache, layer, part, head, n, rows, [](Stored& in_page, const uint8_t* row) {
    std::memcpy(&in_page, row, sizeof(Stored));
  });
}

Q8Vector q8_vector(const KvCache& cache, int32_t layer, KvPart part, int64_t head,
                   int64_t position) {
  const KvGeometry& geometry = cache.geometry(layer);
  const auto place = part == KvPart::kKeys ? q8_key : q8_value;
  return place(cache.layer(layer), geometry.n_kv_heads, kv_head_dim(geometry, part), head,
               position);
}

// Calls move(vector in page, row) for each position.
template <class Rows, class Move>
void for_q8_rows(const KvCache& cache, int32_t layer, KvPart part, int64_t head, int64_t n,
                 Rows* rows, int64_t row_size, Move&& move) {
  for (int64_t j = 0; j < n; ++j) {
    move(q8_vector(cache, layer, part, head, j), rows + j * row_size);
  }
}

}  // namespace

int64_t kv_head_dim(const KvGeometry& geometry, KvPart part) {
  return part == KvPart::kKeys ? geometry.head_dim_k : geometry.head_dim_v;
}

uint64_t kv_rows_bytes(const KvCache& cache, int64_t n) {
  return static_cast<uint64_t>(cache.layout().bytes_per_position * n);
}

void read_kv_rows(const KvCache& cache, int32_t layer, KvPart part, int64_t head, int64_t n,
                  uint8_t* rows) {
  if (cache.type() == KvType::kF16) read<uint16_t>(cache, layer, part, head, n, rows);
  if (cache.type() == KvType::kF32) read<uint32_t>(cache, layer, part, head, n, rows);
  if (cache.type() != KvType::kQ8_0) return;
  const int64_t D = kv_head_dim(cache.geometry(layer), part);
  for_q8_rows(cache, layer, part, head, n, rows, kv_row_bytes(KvType::kQ8_0, D),
              [&](const Q8Vector& at, uint8_t* row) {
                for (int64_t d = 0; d < D; ++d)
                  row[d] = static_cast<uint8_t>(at.codes[d * at.stride]);
                for (int64_t b = 0; b < kv_blocks(D); ++b) {
                  std::memcpy(row + D + 2 * b, at.scales + b * at.scale_stride, 2);
                }
              });
}

void write_kv_rows(const KvCache& cache, int32_t layer, KvPart part, int64_t head, int64_t n,
                   const uint8_t* rows) {
  if (cache.type() == KvType::kF16) write<uint16_t>(cache, layer, part, head, n, rows);
  if (cache.type() == KvType::kF32) write<uint32_t>(cache, layer, part, head, n, rows);
  if (cache.type() != KvType::kQ8_0) return;
  const int64_t D = kv_head_dim(cache.geometry(layer), part);
  for_q8_rows(cache, layer, part, head, n, rows, kv_row_bytes(KvType::kQ8_0, D),
              [&](const Q8Vector& at, const uint8_t* row) {
                for (int64_t d = 0; d < D; ++d)
                  at.codes[d * at.stride] = static_cast<int8_t>(row[d]);
                for (int64_t b = 0; b < kv_blocks(D); ++b) {
                  std::memcpy(at.scales + b * at.scale_stride, row + D + 2 * b, 2);
                }
              });
}

void read_kv_floats(const KvCache& cache, int32_t layer, KvPart part, int64_t head, int64_t n,
                    float* rows) {
  const int64_t D = kv_head_dim(cache.geometry(layer), part);
  for_q8_rows(cache, layer, part, head, n, rows, D, [&](const Q8Vector& at, float* row) {
    for (int64_t d = 0; d < D; ++d) row[d] = at[d];
  });
}

bool write_kv_floats(const KvCache& cache, int32_t layer, KvPart part, int64_t head, int64_t n,
                     const float* rows) {
  const int64_t D = kv_head_dim(cache.geometry(layer), part);
  bool finite = true;
  for_q8_rows(cache, layer, part, head, n, rows, D,
              [&](const Q8Vector& at, const float* row) { finite &= store_kv_blocks(row, D, at); });
  return finite;
}

}  // namespace engine
