// The random generator of the sampler: xoshiro256**, seeded by splitmix64.
#ifndef ENGINE_LIB_SAMPLE_RNG_H_
#define ENGINE_LIB_SAMPLE_RNG_H_

#include <array>
#include <cstdint>

namespace engine {

// D. Blackman, S. Vigna, "Scrambled linear pseudorandom number generators", ACM Transactions on
// Mathematical Software 47(4), 2021. A copy continues the same stream.
class Rng {
 public:
  using State = std::array<uint64_t, 4>;
  explicit Rng(uint64_t seed);
  // Continues the stream that `state` was taken from.
  explicit Rng(const State& state) : state_(state) {}
  const State& state() const { return state_; }
  uint64_t next();
  // In [0, 1): the upper 53 bits of next(), times 2^-53.
  double next_unit() { return static_cast<double>(next() >> 11) * 0x1p-53; }

 private:
  State state_;
};

}  // namespace engine

#endif  // ENGINE_LIB_SAMPLE_RNG_H_
