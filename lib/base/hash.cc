// XXH3, compiled inline from xxHash's header: no symbol and no state of it is shared.
#include "lib/base/hash.h"

#define XXH_INLINE_ALL
#include "xxhash.h"

namespace engine {

uint64_t hash64(const void* data, size_t n_bytes) { return XXH3_64bits(data, n_bytes); }

Hash128 hash128(const void* data, size_t n_bytes) {
  const XXH128_hash_t hash = XXH3_128bits(data, n_bytes);
  return {hash.low64, hash.high64};
}

struct HashStream::State {
  XXH3_state_t xxh;  // over-aligned: made by new, which knows
};

HashStream::HashStream() : state_(std::make_unique<State>()) { XXH3_128bits_reset(&state_->xxh); }
HashStream::~HashStream() = default;

void HashStream::add(const void* data, size_t n_bytes) {
  XXH3_128bits_update(&state_->xxh, data, n_bytes);
}

Hash128 HashStream::value() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(&state_->xxh);
  return {hash.low64, hash.high64};
}

}  // namespace engine
