// xoshiro256** and its seeding.
#include "lib/sample/rng.h"

#include <bit>

namespace engine {
namespace {

// Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014; the generator
// that the authors of xoshiro advise for filling its state. It never yields four zeros in a row.
uint64_t splitmix64(uint64_t& counter) {
  counter += 0x9E3779B97F4A7C15;
  uint64_t z = counter;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

}  // namespace

Rng::Rng(uint64_t seed) {
  for (uint64_t& word : state_) word = splitmix64(seed);
}

uint64_t Rng::next() {
  auto& [a, b, c, d] = state_;
  const uint64_t result = std::rotl(b * 5, 7) * 9;
  const uint64_t shifted = b << 17;
  c ^= a;
  d ^= b;
  b ^= c;
  a ^= d;
  c ^= shifted;
  d = std::rotl(d, 45);
  return result;
}

}  // namespace engine
