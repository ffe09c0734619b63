// The portable KV snapshot "engine.kv/1": for tools that read, edit and hand back keys and values.
//
//   char[12]  "engine.kv/1" and a NUL
//   u32       bytes of the manifest, little-endian; 16 + it is a multiple of 64
//   manifest  JSON in UTF-8, padded with spaces: "schema" "engine.kv/1"; "model" fingerprint, 32 hex digits;
//             "kv_type" "f16", "f32" or "q8_0"; "dtype" "float16", or "float32" for f32 and q8_0 (what attention
//             reads); "n_positions" n; "ids" [n]; "prompt_end" position of generated token 0; "rope_tables", see
//             Program; "layers" [{"n_kv_heads" G, "head_dim_k", "head_dim_v", "k_offset", "v_offset"}]
//   data      per layer at k_offset keys [G][n][head_dim_k], after rope, and at v_offset values [G][n][head_dim_v];
//             offsets in bytes from the beginning of the data
#ifndef ENGINE_LIB_SESSION_KV_EXPORT_H_
#define ENGINE_LIB_SESSION_KV_EXPORT_H_

#include <cstdint>
#include <span>
#include <vector>

#include "lib/base/hash.h"
#include "lib/base/status.h"
#include "lib/session/session.h"

namespace engine {

// kState inside a call. May throw std::bad_alloc.
absl::StatusOr<std::vector<uint8_t>> export_kv(const Session& session, const Hash128& model);

// The session holds what the snapshot tells, in place of what it held; its pages are never reused for another
// session. kState, kCorrupt (malformed, or not of this shape), kTooNew (another schema), kModelMismatch,
// kKvMismatch, kContextFull, kNonFinite, kMemory; the session is as before then.
absl::Status import_kv(std::span<const uint8_t> bytes, const Hash128& model, Session* session);

}  // namespace engine

#endif  // ENGINE_LIB_SESSION_KV_EXPORT_H_
