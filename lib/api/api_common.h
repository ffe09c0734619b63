// The edge between engine.h and C++: errors, struct sizes, exceptions, output buffers, handles.
#ifndef ENGINE_LIB_API_API_COMMON_H_
#define ENGINE_LIB_API_API_COMMON_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "engine.h"
#include "lib/base/hash.h"
#include "lib/base/host_memory.h"
#include "lib/base/log_sink.h"
#include "lib/base/status.h"
#include "lib/contract/step.h"
#include "lib/file/mapped_file.h"
#include "lib/model/model_load.h"
#include "lib/plan/plan_cache.h"
#include "lib/plan/weight_store.h"
#include "lib/session/prefix_store.h"

struct engine_model {
  engine::MappedFile file;
  std::unique_ptr<engine::Model> model;
  std::optional<engine::Program> program;   // with weights only
  mutable engine::PlanCache plans;          // of program
  mutable engine::WeightStore store;        // of program
  mutable std::once_flag fingerprint_once;  // see fingerprint_of
  mutable engine::Hash128 fingerprint;
  mutable std::once_flag vocabulary_once;  // see vocabulary_hash_of
  mutable std::string vocabulary;
  engine_host host = ENGINE_HOST_INIT;
  engine::HostMemory memory;
  mutable engine::PrefixStore prefixes;  // of sessions
  engine::LogSink log;
};

namespace engine::api {

// Writes status into a caller's engine_error (may be null) and returns its code.
int32_t report(const absl::Status& status, engine_error* error);

// Runs f, an absl::Status(): the one place where exceptions end.
template <class F>
int32_t guard(engine_error* error, F&& f) {
  try {
    return report(f(), error);
  } catch (const std::bad_alloc&) {
    return report(engine::error(Code::kMemory, "out of memory"), error);
  } catch (...) {
    return report(engine::error(Code::kInternal, "an unexpected exception"), error);
  }
}

// Reads a caller's parameter struct: a smaller one has a zero tail, a larger one must have one.
// min_bytes: the size of the struct's first release.
template <class T>
absl::Status read_struct(const T* in, size_t min_bytes, T* out) {
  const uint32_t size = in->struct_size;
  if (size < min_bytes) {
    return error(Code::kArgument, absl::StrCat("struct_size ", size, " is below ", min_bytes));
  }
  const auto* bytes = reinterpret_cast<const unsigned char*>(in);
  for (size_t i = sizeof(T); i < size; ++i) {
    if (bytes[i] != 0)
      return error(Code::kTooNew, "the struct sets fields that this library does not know");
  }
  *out = T{};
  std::memcpy(static_cast<void*>(out), in, std::min<size_t>(size, sizeof(T)));
  return absl::OkStatus();
}

// Writes a result struct, at most as much as the caller has; out->struct_size stays the caller's.
template <class T>
absl::Status write_struct(const T& value, T* out) {
  if (out == nullptr) return error(Code::kArgument, "the result struct is NULL");
  const uint32_t size = out->struct_size;
  if (size < sizeof(uint32_t)) return error(Code::kArgument, "struct_size is not set");
  std::memcpy(reinterpret_cast<unsigned char*>(out) + sizeof(uint32_t),
              reinterpret_cast<const unsigned char*>(&value) + sizeof(uint32_t),
              std::min<size_t>(size, sizeof(T)) - sizeof(uint32_t));
  return absl::OkStatus();
}

// The two-call form: writes n elements when they fit, always tells n.
template <class T>
absl::Status copy_out(const T* from, uint64_t n, T* to, uint64_t capacity, uint64_t* n_out) {
  if (n_out == nullptr) return error(Code::kArgument, "the count pointer is NULL");
  if (to == nullptr && capacity > 0) return error(Code::kArgument, "the buffer is NULL");
  *n_out = n;
  if (n > capacity) {
    return error(Code::kBufferTooSmall, absl::StrCat(n, " elements do not fit into ", capacity));
  }
  if (n > 0) std::memcpy(to, from, n * sizeof(T));
  return absl::OkStatus();
}

// Copies text into a char array of a struct, cut at a character and NUL-terminated.
void copy_text(std::string_view text, char* to, size_t capacity);

// Of a model with weights; reads 1 MiB of the file when it is first asked for. Any thread.
const Hash128& fingerprint_of(const engine_model& model);

// Of a model's vocabulary; any thread.
const std::string& vocabulary_hash_of(const engine_model& model);

// The vocabulary, or kState.
absl::StatusOr<const Tokenizer*> tokenizer_of(const engine_model* model);

}  // namespace engine::api

#endif  // ENGINE_LIB_API_API_COMMON_H_
