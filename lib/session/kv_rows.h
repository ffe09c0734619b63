// Keys and values of one head as dense rows, to and from the pages where they lie transposed and scattered.
#ifndef ENGINE_LIB_SESSION_KV_ROWS_H_
#define ENGINE_LIB_SESSION_KV_ROWS_H_

#include <cstdint>

#include "lib/contract/derive.h"
#include "lib/session/kv_cache.h"

namespace engine {

enum class KvPart : uint8_t { kKeys, kValues };

int64_t kv_head_dim(const KvGeometry& geometry, KvPart part);
// Of all layers, keys and values of n positions.
uint64_t kv_rows_bytes(const KvCache& cache, int64_t n);

// Positions 0 .. n - 1 of a KV head: rows [n][kv_row_bytes] of stored numbers, as they are; of kQ8_0 first the codes
// of a row, then its scales. Pages must be there, and for writing be the cache's own.
void read_kv_rows(const KvCache& cache, int32_t layer, KvPart part, int64_t head, int64_t n,
                  uint8_t* rows);
void write_kv_rows(const KvCache& cache, int32_t layer, KvPart part, int64_t head, int64_t n,
                   const uint8_t* rows);
// Of kQ8_0: what attention reads, rows [n][head_dim]; writing them again stores the same. False where a row is not
// finite.
void read_kv_floats(const KvCache& cache, int32_t layer, KvPart part, int64_t head, int64_t n,
                    float* rows);
bool write_kv_floats(const KvCache& cache, int32_t layer, KvPart part, int64_t head, int64_t n,
                     const float* rows);

// Calls f(layer, part, head, row_bytes) in the order of all saved forms: layer by layer its keys, then its
// values, head by head. row_bytes: of one position. Ends when f fails.
template <class F>
absl::Status for_kv_heads(const KvCache& cache, F&& f) {
  for (int32_t layer = 0; layer < static_cast<int32_t>(cache.layers().size()); ++layer) {
    const KvGeometry& geometry = cache.geometry(layer);
    for (const KvPart part : {KvPart::kKeys, KvPart::kValues}) {
      for (int64_t head = 0; head < geometry.n_kv_heads; ++head) {
        ENGINE_RETURN_IF_ERROR(
            f(layer, part, head, kv_row_bytes(cache.type(), kv_head_dim(geometry, part))));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace engine

#endif  // ENGINE_LIB_SESSION_KV_ROWS_H_
