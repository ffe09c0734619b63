// Executors of a mixture of experts: the kernels of dense operations, once per token and chosen expert.
#include <cstring>

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

// What token t's j-th expert reads and writes.
struct ExpertRow {
  const uint8_t* act;
  float* out;
};

// Expert after expert, so that its rows are read once for all its tokens. Two tokens at a time share a
// decoded block: any two rows have a stride.
void matmul(const BoundStep& step, ExecContext& c) {
  const BoundPart& p = step.parts[0];
  const Weight& w = *p.weight;
  const int64_t k = p.step->n_used, expert_bytes = w.rows * w.row_bytes;
  const int64_t part_bytes =
      p.step->own_rows ? act_bytes(kernel_rows()[static_cast<size_t>(p.kernel)].key.act, w.cols)
                       : 0;
  const auto row_of = [&](int64_t t, int64_t j) {
    return ExpertRow{p.in0.base + t * p.in0.stride_bytes + j * part_bytes,
                     p.out.floats(t) + j * w.rows};
  };
  spread_rows(step, c, [&](const RowRange& rows, uint8_t*) {
    const auto run = [&](int64_t expert, const ExpertRow& first, const ExpertRow* second) {
      const MatmulArgs args{p.weight_data + expert * expert_bytes,
                            w.row_bytes,
                            w.cols,
                            rows.begin,
                            rows.end,
                            first.act,
                            second != nullptr ? second->act - first.act : 0,
                            second != nullptr ? 2 : 1,
                            first.out,
                            second != nullptr ? second->out - first.out : 0};
      p.entry(&args);
    };
    if (c.n_tokens == 1) {
      const float* experts = p.in1.floats() + k;
      for (int64_t j = 0; j < k; ++j) run(static_cast<int64_t>(experts[j]), row_of(0, j), nullptr);
      return;
    }
    for (int64_t expert = 0; expert < w.n_experts; ++expert) {
      ExpertRow waiting{};
      for (int64_t t = 0; t < c.n_tokens; ++t) {
        const float* experts = p.in1.floats(t) + k;
        for (int64_t j = 0; j < k; ++j) {
          if (static_cast<int64_t>(experts[j]) != expert) continue;
          const ExpertRow row = row_of(t, j);
          if (waiting.act == nullptr) {
            waiting = row;
          } else {
            run(expert, waiting, &row);
            waiting = {};
          }
        }
      }
      if (waiting.act != nullptr) run(expert, waiting, nullptr);
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
