// Carries our code and the place of a fault through absl::Status payloads.
#include "lib/base/status.h"

#include <cstring>

#include "absl/strings/cord.h"

namespace engine {
namespace {

constexpr char kCodeUrl[] = "engine/code";
constexpr char kNameUrl[] = "engine/name";
constexpr char kOffsetUrl[] = "engine/offset";

template <class T>
absl::Cord bytes_of(T value) {
  return absl::Cord(std::string_view(reinterpret_cast<const char*>(&value), sizeof(value)));
}

template <class T>
bool read_payload(const absl::Status& status, const char* url, T* value) {
  auto cord = status.GetPayload(url);
  if (!cord || cord->size() != sizeof(T)) return false;
  const std::string flat(*cord);
  std::memcpy(value, flat.data(), sizeof(T));
  return true;
}

// The nearest absl category, for callers that only look at absl::Status::code().
absl::StatusCode category(Code code) {
  switch (static_cast<int32_t>(code) / 10) {
    case 1: return absl::StatusCode::kInvalidArgument;
    case 2:
    case 3: return absl::StatusCode::kDataLoss;
    case 4: return absl::StatusCode::kUnimplemented;
    case 5: return absl::StatusCode::kResourceExhausted;
    case 6: return absl::StatusCode::kUnavailable;
    case 7: return absl::StatusCode::kFailedPrecondition;
    case 8: return absl::StatusCode::kAborted;
    default: return absl::StatusCode::kInternal;
  }
}

}  // namespace

absl::Status error(Code code, std::string_view message) {
  absl::Status status(category(code), message);
  status.SetPayload(kCodeUrl, bytes_of(static_cast<int32_t>(code)));
  return status;
}

absl::Status error_at(Code code, std::string_view name, uint64_t offset, std::string_view message) {
  absl::Status status = error(code, message);
  if (!name.empty()) status.SetPayload(kNameUrl, absl::Cord(name));
  if (offset != kNoOffset) status.SetPayload(kOffsetUrl, bytes_of(offset));
  return status;
}

Code code_of(const absl::Status& status) {
  if (status.ok()) return Code::kOk;
  int32_t code = 0;
  return read_payload(status, kCodeUrl, &code) ? static_cast<Code>(code) : Code::kInternal;
}

ErrorWhere where_of(const absl::Status& status) {
  ErrorWhere where;
  if (auto name = status.GetPayload(kNameUrl)) where.name = std::string(*name);
  read_payload(status, kOffsetUrl, &where.offset);
  return where;
}

}  // namespace engine
