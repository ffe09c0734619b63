// engine.h, session: save, restore, export, import.
#include <algorithm>
#include <cstring>
#include <vector>

#include "lib/api/session_handle.h"
#include "lib/session/kv_export.h"
#include "lib/session/snapshot.h"

using engine::Code;
using engine::api::fingerprint_of;
using engine::api::guard;
using engine::api::session_of;

namespace {

std::span<const uint8_t> bytes_of(const void* data, uint64_t n_bytes) {
  return {static_cast<const uint8_t*>(data), n_bytes};
}

}  // namespace

extern "C" {

int32_t engine_session_save(const engine_session* session, void* data, uint64_t capacity,
                            uint64_t* n_bytes, engine_error* error) {
  return guard(error, [&]() -> absl::Status {
    ENGINE_ASSIGN_OR_RETURN(const engine::Session* const s, session_of(session));
    if (n_bytes == nullptr) return engine::error(Code::kArgument, "the count pointer is NULL");
    if (data == nullptr && capacity > 0)
      return engine::error(Code::kArgument, "the buffer is NULL");
    const uint64_t needed = engine::snapshot_bytes(*s);
    *n_bytes = needed;
    if (needed > capacity) {
      return engine::error(Code::kBufferTooSmall,
                           absl::StrCat(needed, " bytes do not fit into ", capacity));
    }
    auto* to = static_cast<uint8_t*>(data);
    return engine::save_snapshot(*s, fingerprint_of(*session->model),
                                 [&](const void* from, uint64_t n) {
                                   std::memcpy(to, from, n);
                                   to += n;
                                   return absl::OkStatus();
                                 });
  });
}

int32_t engine_session_save_to(const engine_session* session, engine_write write, void* user,
                               engine_error* error) {
  return guard(error, [&]() -> absl::Status {
    ENGINE_ASSIGN_OR_RETURN(const engine::Session* const s, session_of(session));
    if (write == nullptr) return engine::error(Code::kArgument, "the callback is NULL");
    return engine::save_snapshot(
        *s, fingerprint_of(*session->model), [&](const void* from, uint64_t n) -> absl::Status {
          const int32_t result = write(user, from, n);
          if (result == 0) return absl::OkStatus();
          return engine::error(Code::kCancelled, absl::StrCat("the callback returned ", result));
        });
  });
}

int32_t engine_session_restore(engine_session* session, const void* data, uint64_t n_bytes,
                               engine_error* error) {
  return guard(error, [&]() -> absl::Status {
    ENGINE_ASSIGN_OR_RETURN(engine::Session* const s, session_of(session));
    if (data == nullptr && n_bytes > 0) return engine::error(Code::kArgument, "the data are NULL");
    return engine::restore_snapshot(bytes_of(data, n_bytes), fingerprint_of(*session->model), s);
  });
}

int32_t engine_session_kv_export(const engine_session* session, void* data, uint64_t capacity,
                                 uint64_t* n_bytes, engine_error* error) {
  return guard(error, [&]() -> absl::Status {
    ENGINE_ASSIGN_OR_RETURN(const engine::Session* const s, session_of(session));
    ENGINE_ASSIGN_OR_RETURN(const std::vector<uint8_t> bytes,
                            engine::export_kv(*s, fingerprint_of(*session->model)));
    return engine::api::copy_out(bytes.data(), bytes.size(), static_cast<uint8_t*>(data), capacity,
                                 n_bytes);
  });
}

int32_t engine_session_kv_import(engine_session* session, const void* data, uint64_t n_bytes,
                                 engine_error* error) {
  return guard(error, [&]() -> absl::Status {
    ENGINE_ASSIGN_OR_RETURN(engine::Session* const s, session_of(session));
    if (data == nullptr && n_bytes > 0) return engine::error(Code::kArgument, "the data are NULL");
    return engine::import_kv(bytes_of(data, n_bytes), fingerprint_of(*session->model), s);
  });
}

}  // extern "C"
