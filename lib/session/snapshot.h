// A session as bytes, to go on later, elsewhere, with the same bits.
//
// Fields after magic "engine.s" and version 1 (lib/base/sealed_bytes.h):
//   u64[2]  fingerprint of the model, low half first
//   u32     KV type (0 f16, 1 f32)      u32  what the next tokens are (ENGINE_TOKENS_*)
//   u64     n positions                 u64  number of writer runs
//   i64     position of generated token 0
//   u64     Program::rope_tables
//   i32[n]  token ids
//   {i64 begin, u64 writer set}[runs]
//   keys and values in the order of for_kv_heads, rows [n][head dim] each
#ifndef ENGINE_LIB_SESSION_SNAPSHOT_H_
#define ENGINE_LIB_SESSION_SNAPSHOT_H_

#include <cstdint>
#include <span>

#include "lib/base/hash.h"
#include "lib/base/sealed_bytes.h"
#include "lib/base/status.h"
#include "lib/session/session.h"

namespace engine {

// Exact.
uint64_t snapshot_bytes(const Session& session);
// Hands the bytes to `write` in order, in pieces. kState inside a call; what write returns.
absl::Status save_snapshot(const Session& session, const Hash128& model,
                           const SealedWriter::WriteFn& write);
// The session holds what was saved, in place of what it held; its hooks stay. kState inside a call, kCorrupt,
// kTooNew, kModelMismatch, kKvMismatch, kContextFull, kMemory; the session is as before then.
absl::Status restore_snapshot(std::span<const uint8_t> bytes, const Hash128& model,
                              Session* session);

}  // namespace engine

#endif  // ENGINE_LIB_SESSION_SNAPSHOT_H_
