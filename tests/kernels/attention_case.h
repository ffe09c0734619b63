// One attention problem with its stored keys and values, for the identity and the oracle test.
#ifndef ENGINE_TESTS_KERNELS_ATTENTION_CASE_H_
#define ENGINE_TESTS_KERNELS_ATTENTION_CASE_H_

#include "tests/kernels/kv_pages.h"

namespace engine::test {

struct AttentionShape {
  KvType type = KvType::kF16;
  int64_t n_heads = 4;
  KvShape kv = {2, 64, 64};
  int64_t first_position = 0;
  int64_t n_tokens = 1;
  float softcap = 0.0f;
  int64_t window = 0;
  bool sinks = false;
};

class AttentionCase {
 public:
  // Positions 0 .. first_position + n_tokens - 1 are stored, everything else stays NaN.
  AttentionCase(const AttentionShape& shape, Rng& rng)
      : shape_(shape),
        positions_(shape.first_position + shape.n_tokens),
        pages_(shape.type, shape.kv, positions_),
        q_(random_floats(rng, shape.n_tokens * q_stride(), -4.0f, 4.0f)),
        sinks_(random_floats(rng, shape.n_heads, -8.0f, 12.0f)) {
    const Floats k =
        random_floats(rng, positions_ * shape.kv.n_kv_heads * shape.kv.head_dim_k, -3.0f, 3.0f);
    const Floats v =
        random_floats(rng, positions_ * shape.kv.n_kv_heads * shape.kv.head_dim_v, -3.0f, 3.0f);
    REQUIRE(
        store_kv(scalar_entry(Op::kKvStore, shape.type), shape.kv, k, v, 0, positions_, pages_));
  }

  int64_t q_stride() const { return shape_.n_heads * shape_.kv.head_dim_k + 3; }
  int64_t out_stride() const { return shape_.n_heads * shape_.kv.head_dim_v + 7; }
  float scale() const { return 1.0f / std::sqrt(static_cast<float>(shape_.kv.head_dim_k)); }
  int64_t n_items() const { return shape_.n_tokens * shape_.n_heads; }
  const KvPages& pages() const { return pages_; }
  const Floats& q() const { return q_; }
  const float* sinks() const { return shape_.sinks ? sinks_.data() : nullptr; }  // [n_heads]

  // Runs items [begin, end); scratch starts as NaN.
  Floats run(KernelEntry entry, int64_t begin, int64_t end) const {
    Floats out(shape_.n_tokens * out_stride(), -7.0f);
    Floats scratch(attention_scratch_floats(shape_.kv.head_dim_v), kNanF);
    const AttentionArgs args = {.q = q_.data(),
                                .q_stride = q_stride(),
                                .n_heads = shape_.n_heads,
                                .n_kv_heads = shape_.kv.n_kv_heads,
                                .head_dim_k = shape_.kv.head_dim_k,
                                .head_dim_v = shape_.kv.head_dim_v,
                                .scale = scale(),
                                .softcap = shape_.softcap,
                                .window = shape_.window,
                                .first_position = shape_.first_position,
                                .n_tokens = shape_.n_tokens,
                                .item_begin = begin,
                                .item_end = end,
                                .kv = pages_.layer(),
                                .out = out.data(),
                                .out_stride = out_stride(),
                                .scratch = scratch.data(),
                                .sinks = sinks()};
    entry(&args);
    return out;
  }

 private:
  AttentionShape shape_;
  int64_t positions_;
  KvPages pages_;
  Floats q_;
  Floats sinks_;
};

}  // namespace engine::test

#endif  // ENGINE_TESTS_KERNELS_ATTENTION_CASE_H_
