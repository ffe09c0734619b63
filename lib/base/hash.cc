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

}  // namespace engine
