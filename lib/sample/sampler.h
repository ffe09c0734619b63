// Chooses the next token from logits: penalties, top_k, top_p, min_p, temperature, draw.
#ifndef ENGINE_LIB_SAMPLE_SAMPLER_H_
#define ENGINE_LIB_SAMPLE_SAMPLER_H_

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/sample/candidates.h"
#include "lib/sample/rng.h"
#include "lib/sample/token_window.h"

namespace engine {

// Meanings as in engine_sampler_params of include/engine.h; the initial values are greedy.
struct SamplerParams {
  float temperature = 0;
  int32_t top_k = 0;
  float top_p = 1;
  float min_p = 0;
  float repeat_penalty = 1;
  float frequency_penalty = 0;
  float presence_penalty = 0;
  int32_t penalty_last_n = 64;
  uint64_t seed = 0;
};

// A copy continues identically. Equal seed, logits and history give equal tokens on every machine.
class Sampler {
 public:
  // kArgument names the parameter that is out of range.
  static absl::StatusOr<Sampler> create(const SamplerParams& params);

  // Enters a token (of the prompt, or chosen elsewhere) into the history. A negative id is ignored.
  // May throw std::bad_alloc, then nothing has changed.
  void accept(int32_t id);

  // Chooses the next token AND accepts it. One random number per call unless greedy. A logit of
  // -inf is a masked token. kNonFinite for a NaN, for +inf and when all are masked; kArgument for
  // no logits; kMemory. After an error the sampler is as before.
  absl::StatusOr<int32_t> sample(std::span<const float> logits);

  uint64_t seed() const { return params_.seed; }

  // Parameters, random state and history as sealed bytes, and a sampler that goes on from there. kCorrupt,
  // kTooNew. Both may throw std::bad_alloc.
  std::vector<uint8_t> save() const;
  static absl::StatusOr<Sampler> restore(std::span<const uint8_t> bytes);

 private:
  explicit Sampler(const SamplerParams& params);
  absl::StatusOr<int32_t> choose(std::span<const float> logits, double unit);

  SamplerParams params_;
  bool has_penalties_;
  Rng rng_;
  TokenWindow window_;
  Candidates candidates_;  // scratch, so that a call allocates nothing after the first
};

// A seed from the operating system's generator.
absl::StatusOr<uint64_t> random_seed();

// The id of the largest logit, ties to the lowest id. A NaN never wins; -1 when there is no other.
int32_t argmax(std::span<const float> logits);

}  // namespace engine

#endif  // ENGINE_LIB_SAMPLE_SAMPLER_H_
