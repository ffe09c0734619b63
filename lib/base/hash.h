// Content hashes: XXH3 of 64 and 128 bits, the same value on every machine.
#ifndef ENGINE_LIB_BASE_HASH_H_
#define ENGINE_LIB_BASE_HASH_H_

#include <cstddef>
#include <cstdint>
#include <memory>

namespace engine {

struct Hash128 {
  uint64_t low = 0;
  uint64_t high = 0;
  friend bool operator==(const Hash128&, const Hash128&) = default;
};

// data may be null when n_bytes is 0. Not cryptographic: no defence against chosen collisions.
uint64_t hash64(const void* data, size_t n_bytes);
Hash128 hash128(const void* data, size_t n_bytes);

// hash128 of data that comes in pieces.
class HashStream {
 public:
  HashStream();
  ~HashStream();
  HashStream(const HashStream&) = delete;
  HashStream& operator=(const HashStream&) = delete;
  void add(const void* data, size_t n_bytes);
  Hash128 value() const;  // of all so far

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace engine

#endif  // ENGINE_LIB_BASE_HASH_H_
