// Error values: absl::Status with one of our pinned codes, and where the fault is (name, offset).
#ifndef ENGINE_LIB_BASE_STATUS_H_
#define ENGINE_LIB_BASE_STATUS_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace engine {

// The numbers are those of `engine_status` in include/engine.h (asserted equal in lib/api): families
// spaced by tens, pinned forever.
enum class Code : int32_t {
  kOk = 0,
  kArgument = 10,           // a parameter is out of its stated range
  kTooNew = 11,             // the caller's struct or flags need a newer library
  kBufferTooSmall = 12,     // the needed size is reported
  kFileOpen = 20,           // the operating system refused to open, map or read
  kFileFormat = 21,         // malformed or hostile content
  kFileUnsupported = 22,    // well-formed, but a version, type or family we do not have
  kCorrupt = 23,            // a saved state was cut or changed since it was written
  kModelArchitecture = 30,  // unknown architecture
  kModelKey = 31,           // a metadata key is missing, of a wrong type or out of range
  kModelTensor = 32,        // a tensor is missing, of a wrong type or shape
  kTokenizer = 33,          // the vocabulary cannot be used
  kChatTemplate = 34,       // the template is absent or not recognised
  kModelMismatch = 35,      // a saved state belongs to another model
  kPlan = 40,               // no kernel, or a forced choice that cannot take effect
  kMemory = 50,             // an allocation failed
  kDevice = 60,             // the CPU target or device is not available
  kDeviceLost = 61,
  kState = 70,  // not possible in this state of the handle
  kContextFull = 71,
  kNonFinite = 72,  // a NaN or an infinity appeared in the forward pass
  kCancelled = 73,
  kCannotRewind = 74,
  kKvMismatch = 75,  // a saved state has keys and values of another type
  kHookFailed = 80,
  kInternal = 90,
};

inline constexpr uint64_t kNoOffset = UINT64_MAX;

// Where an error lies: a metadata key or tensor name ("" = none) and a file offset in bytes.
struct ErrorWhere {
  std::string name;
  uint64_t offset = kNoOffset;
};

// A failed status. `message` is one sentence without a full stop.
absl::Status error(Code code, std::string_view message);
absl::Status error_at(Code code, std::string_view name, uint64_t offset, std::string_view message);

// The code of a status made here; kInternal for a foreign non-ok status, kOk for ok.
Code code_of(const absl::Status& status);
ErrorWhere where_of(const absl::Status& status);

}  // namespace engine

#define ENGINE_RETURN_IF_ERROR(expr)                 \
  do {                                               \
    ::absl::Status engine_status_ = (expr);          \
    if (!engine_status_.ok()) return engine_status_; \
  } while (0)

#define ENGINE_CONCAT_INNER_(a, b) a##b
#define ENGINE_CONCAT_(a, b) ENGINE_CONCAT_INNER_(a, b)
#define ENGINE_ASSIGN_OR_RETURN_IMPL_(tmp, lhs, expr) \
  auto tmp = (expr);                                  \
  if (!tmp.ok()) return std::move(tmp).status();      \
  lhs = std::move(tmp).value()
// `ENGINE_ASSIGN_OR_RETURN(auto x, maybe_x());`
#define ENGINE_ASSIGN_OR_RETURN(lhs, expr) \
  ENGINE_ASSIGN_OR_RETURN_IMPL_(ENGINE_CONCAT_(engine_or_, __LINE__), lhs, expr)

#endif  // ENGINE_LIB_BASE_STATUS_H_
