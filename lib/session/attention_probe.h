// Scores and pattern of attention, computed beside the kernel from the queries and the stored keys.
#ifndef ENGINE_LIB_SESSION_ATTENTION_PROBE_H_
#define ENGINE_LIB_SESSION_ATTENTION_PROBE_H_

#include <cstdint>
#include <span>

#include "lib/contract/op.h"
#include "lib/contract/step.h"
#include "lib/session/hooks.h"

namespace engine {

// Queries of a call as the attention reads them: after norm and rope.
class QueryRows {
 public:
  virtual ~QueryRows() = default;
  // [head_dim_k] floats of a token of the call and a query head; valid until the next call of query().
  virtual const float* query(int64_t row, int64_t head) const = 0;
};

// Queries that lie in a slot: [n_tokens][stride], head after head.
class StoredQueries final : public QueryRows {
 public:
  StoredQueries(const float* q, int64_t stride, int64_t head_dim_k)
      : q_(q), stride_(stride), head_dim_k_(head_dim_k) {}
  const float* query(int64_t row, int64_t head) const override {
    return q_ + row * stride_ + head * head_dim_k_;
  }

 private:
  const float* q_;
  int64_t stride_, head_dim_k_;
};

// Scores with the float sequence of AttentionArgs: the kernel's bits; with a soft-cap within 2 ulp of them,
// since tanh is taken from base/det_math.h. Keys of the call are stored already.
class KvAttentionProbe final : public AttentionProbe {
 public:
  // `step` is a kAttention step; it, the pages, `queries` and `sinks` ([H] or nullptr) must outlive the probe.
  KvAttentionProbe(const Step& step, const KvLayer& kv, KvType type, const KvGeometry& geometry,
                   int64_t first_position, const QueryRows& queries, const float* sinks = nullptr);
  void scores(int64_t row, int64_t head, float* out) const override;
  const float* sinks() const override { return sinks_; }

 private:
  const Step& step_;
  const KvLayer kv_;
  const KvType type_;
  const KvGeometry geometry_;
  const int64_t first_position_;
  const QueryRows& queries_;
  const float* const sinks_;
};

// One row of kAttnScores or kAttnPattern for the token `row` of the call at `position`.
// out: [n_heads][n_ctx]; heads that are not listed are 0. Beyond the position and outside the window scores
// are -infinity and the pattern is 0. pattern[j] = e[j] / sum, e[j] = exp(s[j] - max s), the sum in 16
// virtual lanes (j mod 16) and the fixed tree; a sink is one more score in both, added to the sum last.
void attention_row(Site site, const AttentionProbe& probe, int64_t row, int64_t position,
                   std::span<const int32_t> heads, int64_t n_heads, int64_t n_ctx, float* out);

}  // namespace engine

#endif  // ENGINE_LIB_SESSION_ATTENTION_PROBE_H_
