// Gathers and scatters stored numbers; none of them is converted.
#include "lib/session/kv_rows.h"

#include <algorithm>
#include <cstring>

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

}  // namespace

int64_t kv_value_bytes(KvType type) { return type == KvType::kF16 ? 2 : 4; }

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
}

void write_kv_rows(const KvCache& cache, int32_t layer, KvPart part, int64_t head, int64_t n,
                   const uint8_t* rows) {
  if (cache.type() == KvType::kF16) write<uint16_t>(cache, layer, part, head, n, rows);
  if (cache.type() == KvType::kF32) write<uint32_t>(cache, layer, part, head, n, rows);
}

}  // namespace engine
