// Sealing and opening. The checksum is looked at first, so that whatever was damaged is told as damage.
#include "lib/base/sealed_bytes.h"

#include <cstring>
#include <string>
#include <utility>

namespace engine {
namespace {

absl::Status corrupt(std::string_view what) {
  return error(Code::kCorrupt, "the saved state is damaged: " + std::string(what));
}

}  // namespace

SealedWriter::SealedWriter(std::string_view magic, uint32_t version, WriteFn write)
    : write_(std::move(write)) {
  put(magic.data(), magic.size());
  value(version);
}

void SealedWriter::put(const void* data, uint64_t n_bytes) {
  if (!status_.ok() || n_bytes == 0) return;
  hash_.add(data, n_bytes);
  status_ = write_(data, n_bytes);
}

absl::Status SealedWriter::seal() {
  const Hash128 hash = hash_.value();
  value(hash.low);
  value(hash.high);
  return status_;
}

absl::StatusOr<SealedReader> SealedReader::open(std::span<const uint8_t> bytes,
                                                std::string_view magic, uint32_t version) {
  if (bytes.size() < kSealedHeadBytes + kSealBytes) return corrupt("it is too short");
  const auto sealed = bytes.first(bytes.size() - kSealBytes);
  Hash128 stored;
  std::memcpy(&stored.low, bytes.data() + sealed.size(), sizeof(stored.low));
  std::memcpy(&stored.high, bytes.data() + sealed.size() + sizeof(stored.low), sizeof(stored.high));
  if (!(hash128(sealed.data(), sealed.size()) == stored)) return corrupt("its checksum is wrong");
  if (std::memcmp(sealed.data(), magic.data(), magic.size()) != 0) {
    return corrupt("it is the state of something else");
  }
  SealedReader reader(sealed.subspan(magic.size()));
  const auto found = reader.value<uint32_t>();
  if (found != version) {
    return error(Code::kTooNew, "the saved state has format version " + std::to_string(found) +
                                    "; this library reads " + std::to_string(version));
  }
  return reader;
}

const uint8_t* SealedReader::skip(uint64_t n_bytes) {
  ok_ = ok_ && n_bytes <= fields_.size();
  if (!ok_) return nullptr;
  const uint8_t* const at = fields_.data();
  fields_ = fields_.subspan(n_bytes);
  return at;
}

void SealedReader::take(void* to, uint64_t n_bytes) {
  const uint8_t* const at = skip(n_bytes);
  if (n_bytes == 0) return;
  if (at != nullptr) {
    std::memcpy(to, at, n_bytes);
  } else {
    std::memset(to, 0, n_bytes);
  }
}

}  // namespace engine
