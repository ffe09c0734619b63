// Executors of fused plan steps. They run the kernels of the unfused steps, in the same float order, on parts
// that fit a core's cache; what lies between them never reaches the arena. So a fusion cannot change a bit.
#include <algorithm>
#include <cstring>

#include "lib/session/bound_plan.h"
#include "lib/session/query_source.h"

namespace engine {
namespace {

// ---- F1, F2: [post-norm,] [add,] norm [, quantise]... one token row at a time

void norm_rows_part(const BoundPart& p, int64_t t, uint8_t* scratch, ExecContext& c) {
  switch (p.step->op) {
    case Op::kRmsNorm: {
      RmsNormArgs args{};
      args.x = p.in0.row_floats(scratch, t);
      args.weight = p.weight_floats();
      args.width = p.step->width;
      args.n_rows = 1;
      args.eps = p.step->eps;
      args.out = p.out.row_floats(scratch, t);
      p.entry(&args);
      return;
    }
    case Op::kAdd: {
      AddArgs args{};
      args.a = p.in0.row_floats(scratch, t);
      args.b = p.in1.row_floats(scratch, t);
      args.width = p.step->width;
      args.n_rows = 1;
      args.out = p.out.row_floats(scratch, t);
      args.scale = p.step->scale;
      p.entry(&args);
      return;
    }
    default: {  // kQuantize
      bool finite = true;
      const QuantizeArgs args{p.in0.row_floats(scratch, t), 0, p.step->width, 1,
                              p.out.row(scratch, t),        0, &finite};
      p.entry(&args);
      if (!finite) c.sequence_of(t).finite.fall();
      return;
    }
  }
}

void norm_rows(const BoundStep& step, ExecContext& c) {
  spread(step, c, c.n_tokens, [&](int64_t begin, int64_t end, uint8_t* scratch) {
    for (int64_t t = begin; t < end; ++t) {
      for (const BoundPart& part : step.parts) norm_rows_part(part, t, scratch, c);
    }
  });
}

// ---- matmuls over a range of rows

// Rows [begin, end) of the weight, to out[t][0 .. end - begin).
void matmul_rows(const BoundPart& p, int64_t begin, int64_t end, const ExecContext& c, float* out,
                 int64_t out_stride) {
  const MatmulArgs args{p.weight_data + begin * p.weight_row_bytes,
                        p.weight_row_bytes,
                        p.weight->cols,
                        0,
                        end - begin,
                        p.in0.base,
                        p.in0.stride_bytes,
                        c.n_tokens,
                        out,
                        out_stride};
  p.entry(&args);
}

// The bias of columns [begin, end), in place.
void add_bias(const BoundPart& p, int64_t begin, int64_t end, const ExecContext& c, float* out,
              int64_t out_stride) {
  const AddArgs args{out, out_stride, p.weight_floats() + begin, 0, end - begin, c.n_tokens,
                     out, out_stride};
  p.entry(&args);
}

// Whether part i + 1 is the bias of matmul i.
bool has_bias(const BoundStep& step, size_t i) {
  return i + 1 < step.parts.size() && step.parts[i + 1].step->op == Op::kAdd &&
         step.parts[i + 1].weight != nullptr;
}

// F3
void matmul_group(const BoundStep& step, ExecContext& c) {
  spread_rows(step, c, [&](const RowRange& rows, uint8_t*) {
    const auto i = static_cast<size_t>(rows.part);
    const BoundPart& p = step.parts[i];
    float* out = p.out.floats() + rows.begin;
    matmul_rows(p, rows.begin, rows.end, c, out, p.out.stride());
    if (has_bias(step, i)) {
      add_bias(step.parts[i + 1], rows.begin, rows.end, c, out, p.out.stride());
    }
  });
}

// F5: matmul [+ bias], then residual + it.
void matmul_add(const BoundStep& step, ExecContext& c) {
  const int64_t tile_stride = tile_rows(c.n_tokens);
  spread_rows(step, c, [&](const RowRange& rows, uint8_t* scratch) {
    auto* tile = reinterpret_cast<float*>(scratch);
    const BoundPart& residual = step.parts.back();
    for (int64_t r = rows.begin; r < rows.end; r += tile_stride) {
      const int64_t end = std::min(rows.end, r + tile_stride);
      matmul_rows(step.parts[0], r, end, c, tile, tile_stride);
      if (has_bias(step, 0)) add_bias(step.parts[1], r, end, c, tile, tile_stride);
      const AddArgs args{residual.in0.floats() + r,
                         residual.in0.stride(),
                         tile,
                         tile_stride,
                         end - r,
                         c.n_tokens,
                         residual.out.floats() + r,
                         residual.out.stride(),
                         residual.step->scale};
      residual.entry(&args);
    }
  });
}

// F6: gate [+ bias], up [+ bias], act [, quantise] for the same rows.
void gate_up(const BoundStep& step, ExecContext& c) {
  const size_t up_at = has_bias(step, 0) ? 2 : 1;
  const size_t act_at = up_at + (has_bias(step, up_at) ? 2 : 1);
  const BoundPart& act = step.parts[act_at];
  const BoundPart* quantise = act_at + 1 < step.parts.size() ? &step.parts[act_at + 1] : nullptr;
  const bool wide = quantise != nullptr && quantise->act == ActType::kQ8x256;
  const int64_t block = wide ? 256 : 32;
  const auto block_bytes = static_cast<int64_t>(wide ? sizeof(ActQ8x256) : sizeof(ActQ8x32));
  const int64_t tile_stride = tile_rows(c.n_tokens);
  spread_rows(step, c, [&](const RowRange& rows, uint8_t* scratch) {
    auto* gate = reinterpret_cast<float*>(scratch);
    float* up = gate + c.n_tokens * tile_stride;
    for (int64_t r = rows.begin; r < rows.end; r += tile_stride) {
      const int64_t end = std::min(rows.end, r + tile_stride);
      matmul_rows(step.parts[0], r, end, c, gate, tile_stride);
      if (up_at == 2) add_bias(step.parts[1], r, end, c, gate, tile_stride);
      matmul_rows(step.parts[up_at], r, end, c, up, tile_stride);
      if (act_at == up_at + 2) add_bias(step.parts[up_at + 1], r, end, c, up, tile_stride);
      const GatedActArgs act_args{gate, up, tile_stride, end - r, c.n_tokens, act.step->act, gate};
      act.entry(&act_args);
      if (quantise == nullptr) {
        for (int64_t t = 0; t < c.n_tokens; ++t) {
          std::memcpy(act.out.floats(t) + r, gate + t * tile_stride,
                      static_cast<size_t>(end - r) * sizeof(float));
        }
        continue;
      }
      check_rows(c, 0, c.n_tokens, [&](int64_t t, int64_t t_end) {
        bool finite = true;
        const QuantizeArgs args{gate + t * tile_stride,
                                tile_stride,
                                end - r,
                                t_end - t,
                                quantise->out.row(nullptr, t) + r / block * block_bytes,
                                quantise->out.stride_bytes,
                                &finite};
        quantise->entry(&args);
        return finite;
      });
    }
  });
}

// ---- F4

void store_kv(const BoundStep& step, ExecContext& c) {
  const BoundPart& store = step.parts.back();
  const KvGeometry& kv = *store.geometry;
  spread(step, c, c.n_tokens, [&](int64_t begin, int64_t end, uint8_t* scratch) {
    auto* k = reinterpret_cast<float*>(scratch);
    for (int64_t t = begin; t < end; ++t) {
      SequenceRows& s = c.sequence_of(t);
      bool finite = true;
      norm_rope_heads(step.parts.data(), step.parts.size() - 1, step.parts[0].in0.floats(t),
                      kv.head_dim_k, kv.n_kv_heads, t, k);
      KvStoreArgs args{};
      args.k = k;
      args.v = store.in1.floats(t);
      args.n_kv_heads = kv.n_kv_heads;
      args.head_dim_k = kv.head_dim_k;
      args.head_dim_v = kv.head_dim_v;
      args.first_position = s.first_position + t - s.first_row;
      args.n_tokens = 1;
      args.kv = kv_of(store, s);
      args.finite = &finite;
      store.entry(&args);
      if (!finite) s.finite.fall();
    }
  });
}

void attention_q(const BoundStep& step, ExecContext& c) {
  const BoundPart& p = step.parts.back();
  const KvGeometry& kv = *p.geometry;
  const int64_t H = p.step->heads, Dk = kv.head_dim_k;
  spread(step, c, c.n_tokens * H, [&](int64_t begin, int64_t end, uint8_t* scratch) {
    auto* q = reinterpret_cast<float*>(scratch);
    float* rest = q + (H * Dk + 15) / 16 * 16;
    for (int64_t item = begin; item < end;) {  // the heads of one token at a time
      if (item > begin && c.should_leave(scratch)) return;
      const int64_t t = item / H, h = item % H;
      const int64_t n_heads = std::min(end - item, H - h);
      const SequenceRows& s = c.sequence_of(t);
      const int64_t row = t - s.first_row;
      norm_rope_heads(step.parts.data(), step.parts.size() - 1,
                      step.parts[0].in0.floats(t) + h * Dk, Dk, n_heads, t, q + h * Dk);
      AttentionArgs args{};
      args.q = q;  // stride 0: the same row for whichever token
      args.n_heads = H;
      args.n_kv_heads = kv.n_kv_heads;
      args.head_dim_k = Dk;
      args.head_dim_v = kv.head_dim_v;
      args.scale = p.step->scale;
      args.softcap = p.step->cap;
      args.window = p.step->window;
      args.first_position = s.first_position;
      args.n_tokens = s.n_rows;
      args.item_begin = row * H + h;
      args.item_end = args.item_begin + n_heads;
      args.kv = kv_of(p, s);
      args.out = p.out.floats(s.first_row);
      args.out_stride = p.out.stride();
      args.scratch = rest;
      if (p.weight != nullptr) args.sinks = p.weight_floats();
      p.entry(&args);
      item += n_heads;
    }
  });
}

}  // namespace

void norm_rope_heads(const BoundPart* parts, size_t n, const float* x, int64_t head_dim,
                     int64_t n_heads, int64_t t, float* out) {
  for (size_t i = 0; i < n; ++i) {
    const BoundPart& p = parts[i];
    if (p.step->op == Op::kRmsNorm) {
      RmsNormArgs args{};
      args.x = x;
      args.x_stride = head_dim;
      args.weight = p.weight_floats();
      args.width = head_dim;
      args.n_rows = n_heads;
      args.eps = p.step->eps;
      args.out = out;
      args.out_stride = head_dim;
      p.entry(&args);
    } else {
      RopeArgs args{};
      args.x = x;
      args.n_heads = n_heads;
      args.head_dim = head_dim;
      args.n_rot = p.step->n_rot;
      args.pairing = p.step->pairing;
      args.angles = p.in1.floats(t);
      args.n_tokens = 1;
      args.out = out;
      p.entry(&args);
    }
    x = out;
  }
}

StepExecutor fused_executor(StepKind kind) {
  switch (kind) {
    case StepKind::kNormRows: return norm_rows;
    case StepKind::kMatmulGroup: return matmul_group;
    case StepKind::kMatmulAdd: return matmul_add;
    case StepKind::kGateUp: return gate_up;
    case StepKind::kStoreKv: return store_kv;
    case StepKind::kAttentionQ: return attention_q;
    case StepKind::kSingle: break;
  }
  return nullptr;
}

}  // namespace engine
