// The queries and keys of the F4 fusion: per-head norm and rope of one token's heads.
#ifndef ENGINE_LIB_SESSION_QUERY_SOURCE_H_
#define ENGINE_LIB_SESSION_QUERY_SOURCE_H_

#include <cstddef>
#include <cstdint>

#include "lib/session/attention_probe.h"
#include "lib/session/bound_plan.h"

namespace engine {

// parts[0 .. n_parts): a norm, a rope, or both, of n_heads heads of token t, from x to out
// ([n_heads][head_dim]).
void norm_rope_heads(const BoundPart* parts, size_t n_parts, const float* x, int64_t head_dim,
                     int64_t n_heads, int64_t t, float* out);

// Queries for an attention probe: as they lie in the arena, or made again where the step is fused.
class QuerySource final : public QueryRows {
 public:
  // A kSingle attention or a kAttentionQ step; `scratch` is at least a thread's. Row 0 is `first_row` of the call.
  QuerySource(const BoundStep& step, uint8_t* scratch, int64_t first_row)
      : step_(step), scratch_(reinterpret_cast<float*>(scratch)), first_row_(first_row) {}
  const float* query(int64_t sequence_row, int64_t head) const override {
    const int64_t row = first_row_ + sequence_row;
    const int64_t head_dim = step_.parts.back().geometry->head_dim_k;
    const float* q = step_.parts[0].in0.floats(row) + head * head_dim;
    if (step_.parts.size() == 1) return q;
    norm_rope_heads(step_.parts.data(), step_.parts.size() - 1, q, head_dim, 1, row, scratch_);
    return scratch_;
  }

 private:
  const BoundStep& step_;
  float* const scratch_;
  const int64_t first_row_;
};

}  // namespace engine

#endif  // ENGINE_LIB_SESSION_QUERY_SOURCE_H_
