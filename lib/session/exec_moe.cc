// Executors of a mixture of experts: the kernels of dense operations, once per token and chosen expert.
#include <algorithm>
#include <array>
#include <cstring>
#include <span>

#include "lib/contract/derive.h"
#include "lib/session/bound_plan.h"

namespace engine {
namespace {

void route(const BoundStep& step, ExecContext& c) {
  const BoundPart& p = step.parts[0];
  spread(step, c, c.n_tokens, [&](int64_t begin, int64_t end, uint8_t*) {
    const MoeRouteArgs args{p.in0.floats(begin), p.in0.stride(), p.step->width,
                            p.step->n_used,      p.step->moe,    end - begin,
                            p.out.floats(begin), p.out.stride()};
    p.entry(&args);
  });
}

// A token's j-th chosen expert: what it reads and where its outputs go.
struct ExpertRow {
  const uint8_t* act;
  float* out;
};

// The rows of one expert's matrix that a thread computes.
class ExpertRows {
 public:
  ExpertRows(const BoundPart& part, const RowRange& rows, uint8_t* scratch)
      : part_(part),
        rows_(rows),
        act_bytes_(
            act_bytes(kernel_rows()[static_cast<size_t>(part.kernel)].key.act, part.weight->cols)),
        act_stride_((act_bytes_ + 63) / 64 * 64),
        acts_(scratch) {}

  // Outputs of one token, where they belong.
  void one(int64_t expert, const ExpertRow& row) const {
    call(expert, rows_.begin, rows_.end, row.act, 0, 1, row.out + rows_.begin, 0);
  }

  // Of several: their activations are laid side by side, the outputs brought to their places in the end.
  void many(int64_t expert, std::span<const ExpertRow> rows) const {
    const auto n = static_cast<int64_t>(rows.size());
    for (int64_t i = 0; i < n; ++i) {
      std::memcpy(acts_ + i * act_stride_, rows[static_cast<size_t>(i)].act,
                  static_cast<size_t>(act_bytes_));
    }
    const int64_t tile_stride = tile_rows(n);
    auto* const tile = reinterpret_cast<float*>(acts_ + n * act_stride_);
    for (int64_t r = rows_.begin; r < rows_.end; r += tile_stride) {
      const int64_t end = std::min(rows_.end, r + tile_stride);
      call(expert, r, end, acts_, act_stride_, n, tile, tile_stride);
      for (int64_t i = 0; i < n; ++i) {
        std::memcpy(rows[static_cast<size_t>(i)].out + r, tile + i * tile_stride,
                    static_cast<size_t>(end - r) * sizeof(float));
      }
    }
  }

 private:
  void call(int64_t expert, int64_t begin, int64_t end, const uint8_t* act, int64_t act_stride,
            int64_t n_tokens, float* out, int64_t out_stride) const {
    const MatmulArgs args{
        part_.weight_data + expert * part_.weight_matrix_bytes + begin * part_.weight_row_bytes,
        part_.weight_row_bytes,
        part_.weight->cols,
        0,
        end - begin,
        act,
        act_stride,
        n_tokens,
        out,
        out_stride};
    part_.entry(&args);
  }

  const BoundPart& part_;
  const RowRange rows_;
  const int64_t act_bytes_, act_stride_;
  uint8_t* const acts_;
};

// Expert after expert, so that its rows are read once for all its tokens.
void matmul(const BoundStep& step, ExecContext& c) {
  const BoundPart& p = step.parts[0];
  const Weight& w = *p.weight;
  const int64_t k = p.step->n_used;
  const int64_t part_bytes =
      p.step->own_rows ? act_bytes(kernel_rows()[static_cast<size_t>(p.kernel)].key.act, w.cols)
                       : 0;
  const auto row_of = [&](int64_t t, int64_t j) {
    return ExpertRow{p.in0.base + t * p.in0.stride_bytes + j * part_bytes,
                     p.out.floats(t) + j * w.rows};
  };
  spread_rows(step, c, [&](const RowRange& rows, uint8_t* scratch) {
    const ExpertRows run(p, rows, scratch);
    if (c.n_tokens == 1) {
      const float* experts = p.in1.floats() + k;
      for (int64_t j = 0; j < k; ++j) run.one(static_cast<int64_t>(experts[j]), row_of(0, j));
      return;
    }
    for (int64_t expert = 0; expert < w.n_experts; ++expert) {
      std::array<ExpertRow, kExpertTokens> waiting;
      size_t n = 0;
      const auto flush = [&] {
        if (n == 1) run.one(expert, waiting[0]);
        if (n > 1) run.many(expert, {waiting.data(), n});
        n = 0;
      };
      for (int64_t t = 0; t < c.n_tokens; ++t) {
        const float* experts = p.in1.floats(t) + k;
        for (int64_t j = 0; j < k; ++j) {
          if (static_cast<int64_t>(experts[j]) != expert) continue;
          waiting[n++] = row_of(t, j);
          if (n == waiting.size()) flush();
        }
      }
      flush();
    }
  });
}

void bias(const BoundStep& step, ExecContext& c) {
  const BoundPart& p = step.parts[0];
  const int64_t k = p.step->n_used, width = p.weight->cols;
  spread(step, c, c.n_tokens, [&](int64_t begin, int64_t end, uint8_t*) {
    for (int64_t t = begin; t < end; ++t) {
      const float* experts = p.in1.floats(t) + k;
      for (int64_t j = 0; j < k; ++j) {
        float* x = p.out.floats(t) + j * width;
        const float* b = p.weight_floats() + static_cast<int64_t>(experts[j]) * width;
        const AddArgs args{x, 0, b, 0, width, 1, x, 0};
        p.entry(&args);
      }
    }
  });
}

void combine(const BoundStep& step, ExecContext& c) {
  const BoundPart& p = step.parts[0];
  const int64_t k = p.step->n_used, width = p.step->width;
  spread(step, c, c.n_tokens, [&](int64_t begin, int64_t end, uint8_t*) {
    for (int64_t t = begin; t < end; ++t) {
      float* out = p.out.floats(t);
      std::memset(out, 0, static_cast<size_t>(width) * sizeof(float));
      for (int64_t j = 0; j < k; ++j) {
        const float weight = p.in1.floats(t)[j];
        const AddArgs args{out, 0, p.in0.floats(t) + j * width, 0, width, 1, out, 0, weight};
        p.entry(&args);
      }
    }
  });
}

}  // namespace

StepExecutor moe_executor(Op op) {
  switch (op) {
    case Op::kMoeRoute: return route;
    case Op::kMoeMatmul: return matmul;
    case Op::kMoeBias: return bias;
    case Op::kMoeCombine: return combine;
    default: return nullptr;
  }
}

}  // namespace engine
