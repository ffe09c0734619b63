// Executors of plan steps that are one operation: they fill the kernel's arguments and divide the work.
#include <algorithm>

#include "lib/session/bound_plan.h"

namespace engine {
namespace {

void embed(const BoundStep& step, ExecContext& c) {
  const BoundPart& p = step.parts[0];
  for (const SequenceRows& s : c.sequences) {
    const EmbedArgs args{p.weight_data, p.weight_row_bytes,        p.step->width, s.ids, s.n_rows,
                         p.step->scale, p.out.floats(s.first_row), p.out.stride()};
    p.entry(&args);
  }
}

void rms_norm(const BoundStep& step, ExecContext& c) {
  const BoundPart& p = step.parts[0];
  const int64_t heads = p.step->heads, width = p.step->width / heads;
  spread(step, c, c.n_tokens, [&](int64_t begin, int64_t end, uint8_t*) {
    // Without heads the rows are tokens; with heads they are the heads of each token in turn.
    for (int64_t t = begin; t<end; t += heads> 1 ? 1 : end - begin) {
      RmsNormArgs args{};
      args.x = p.in0.floats(t);
      args.x_stride = heads > 1 ? width : p.in0.stride();
      args.weight = p.weight_floats();
      args.width = width;
      args.n_rows = heads > 1 ? heads : end - begin;
      args.eps = p.step->eps;
      args.out = p.out.floats(t);
      args.out_stride = heads > 1 ? width : p.out.stride();
      p.entry(&args);
    }
  });
}

void quantize(const BoundStep& step, ExecContext& c) {
  const BoundPart& p = step.parts[0];
  spread(step, c, c.n_tokens, [&](int64_t begin, int64_t end, uint8_t*) {
    check_rows(c, begin, end, [&](int64_t b, int64_t e) {
      bool finite = true;
      const QuantizeArgs args{p.in0.floats(b),       p.in0.stride(),     p.step->width, e - b,
                              p.out.row(nullptr, b), p.out.stride_bytes, &finite};
      p.entry(&args);
      return finite;
    });
  });
}

void matmul(const BoundStep& step, ExecContext& c) {
  spread_rows(step, c, [&](const RowRange& rows, uint8_t*) {
    const BoundPart& p = step.parts[0];
    const MatmulArgs args{p.weight_data,  p.weight_row_bytes, p.weight->cols,     rows.begin,
                          rows.end,       p.in0.base,         p.in0.stride_bytes, c.n_tokens,
                          p.out.floats(), p.out.stride()};
    p.entry(&args);
  });
}

void add(const BoundStep& step, ExecContext& c) {
  const BoundPart& p = step.parts[0];
  const bool is_bias = p.weight != nullptr;
  spread(step, c, c.n_tokens, [&](int64_t begin, int64_t end, uint8_t*) {
    AddArgs args{};
    args.a = p.in0.floats(begin);
    args.a_stride = p.in0.stride();
    args.b = is_bias ? p.weight_floats() : p.in1.floats(begin);
    args.b_stride = is_bias ? 0 : p.in1.stride();
    args.width = p.step->width;
    args.n_rows = end - begin;
    args.out = p.out.floats(begin);
    args.out_stride = p.out.stride();
    args.scale = p.step->scale;
    p.entry(&args);
  });
}

void rope_angles(const BoundStep& step, ExecContext& c) {
  const BoundPart& p = step.parts[0];
  for (const SequenceRows& s : c.sequences) {
    const std::vector<double>& theta = p.rope->theta_of(s.n_ctx);
    const RopeAnglesArgs args{
        theta.data(), static_cast<int64_t>(theta.size()), p.rope->mscale, s.first_position,
        s.n_rows,     p.out.floats(s.first_row),          p.out.stride()};
    p.entry(&args);
  }
}

void rope(const BoundStep& step, ExecContext& c) {
  const BoundPart& p = step.parts[0];
  spread(step, c, c.n_tokens, [&](int64_t begin, int64_t end, uint8_t*) {
    RopeArgs args{};
    args.x = p.in0.floats(begin);
    args.x_stride = p.in0.stride();
    args.n_heads = p.step->heads;
    args.head_dim = p.step->width / p.step->heads;
    args.n_rot = p.step->n_rot;
    args.pairing = p.step->pairing;
    args.angles = p.in1.floats(begin);
    args.angles_stride = p.in1.stride();
    args.n_tokens = end - begin;
    args.out = p.out.floats(begin);
    args.out_stride = p.out.stride();
    p.entry(&args);
  });
}

void kv_store(const BoundStep& step, ExecContext& c) {
  const BoundPart& p = step.parts[0];
  const auto store = [&](int64_t begin, int64_t end) {
    bool finite = true;
    for_sequences(c, begin, end, [&](const SequenceRows& s, int64_t b, int64_t e) {
      KvStoreArgs args{};
      args.k = p.in0.floats(b);
      args.k_stride = p.in0.stride();
      args.v = p.in1.floats(b);
      args.v_stride = p.in1.stride();
      args.n_kv_heads = p.geometry->n_kv_heads;
      args.head_dim_k = p.geometry->head_dim_k;
      args.head_dim_v = p.geometry->head_dim_v;
      args.first_position = s.first_position + b - s.first_row;
      args.n_tokens = e - b;
      args.kv = kv_of(p, s);
      args.finite = &finite;
      p.entry(&args);
    });
    return finite;
  };
  spread(step, c, c.n_tokens,
         [&](int64_t begin, int64_t end, uint8_t*) { check_rows(c, begin, end, store); });
}

void attention(const BoundStep& step, ExecContext& c) {
  const BoundPart& p = step.parts[0];
  const int64_t H = p.step->heads;
  spread(step, c, c.n_tokens * H, [&](int64_t begin, int64_t end, uint8_t* scratch) {
    for (int64_t b = begin, e = b; b < end; b = e) {  // the heads of one token at a time
      if (b > begin && c.should_leave(scratch)) return;
      e = std::min(end, (b / H + 1) * H);
      const SequenceRows& s = c.sequence_of(b / H);
      const int64_t first = s.first_row * H;
      AttentionArgs args{};
      args.q = p.in0.floats(s.first_row);
      args.q_stride = p.in0.stride();
      args.n_heads = H;
      args.n_kv_heads = p.geometry->n_kv_heads;
      args.head_dim_k = p.geometry->head_dim_k;
      args.head_dim_v = p.geometry->head_dim_v;
      args.scale = p.step->scale;
      args.softcap = p.step->cap;
      args.window = p.step->window;
      args.first_position = s.first_position;
      args.n_tokens = s.n_rows;
      args.item_begin = b - first;
      args.item_end = e - first;
      args.kv = kv_of(p, s);
      args.out = p.out.floats(s.first_row);
      args.out_stride = p.out.stride();
      args.scratch = reinterpret_cast<float*>(scratch);
      if (p.weight != nullptr) args.sinks = p.weight_floats();
      p.entry(&args);
    }
  });
}

void short_conv(const BoundStep& step, ExecContext& c) {
  const BoundPart& p = step.parts[0];
  spread(step, c, c.n_tokens, [&](int64_t begin, int64_t end, uint8_t*) {
    for_sequences(c, begin, end, [&](const SequenceRows& s, int64_t b, int64_t e) {
      const ShortConvArgs args{p.weight_floats(),
                               p.weight->rows,
                               p.weight->cols,
                               s.first_position + b - s.first_row,
                               e - b,
                               kv_of(p, s),
                               p.out.floats(b),
                               p.out.stride()};
      p.entry(&args);
    });
  });
}

void gated_act(const BoundStep& step, ExecContext& c) {
  const BoundPart& p = step.parts[0];
  spread(step, c, c.n_tokens, [&](int64_t begin, int64_t end, uint8_t*) {
    const GatedActArgs args{p.in0.floats(begin), p.in1.floats(begin), p.out.stride(),
                            p.step->width,       end - begin,         p.step->act,
                            p.out.floats(begin)};  // gate, up and act have one width
    p.entry(&args);
  });
}

void softcap(const BoundStep& step, ExecContext& c) {
  const BoundPart& p = step.parts[0];
  spread(step, c, c.n_tokens, [&](int64_t begin, int64_t end, uint8_t*) {
    const SoftcapArgs args{p.out.floats(begin), p.out.stride(), p.step->width,
                           end - begin,         p.step->cap,    p.step->scale};
    p.entry(&args);
  });
}

void check_finite(const BoundStep& step, ExecContext& c) {
  const BoundPart& p = step.parts[0];
  spread(step, c, c.n_tokens, [&](int64_t begin, int64_t end, uint8_t*) {
    check_rows(c, begin, end, [&](int64_t b, int64_t e) {
      bool finite = true;
      const CheckFiniteArgs args{p.in0.floats(b), p.in0.stride(), p.step->width, e - b, &finite};
      p.entry(&args);
      return finite;
    });
  });
}

}  // namespace

StepExecutor single_executor(Op op) {
  switch (op) {
    case Op::kEmbed: return embed;
    case Op::kRmsNorm: return rms_norm;
    case Op::kQuantize: return quantize;
    case Op::kMatmul: return matmul;
    case Op::kAdd: return add;
    case Op::kRopeAngles: return rope_angles;
    case Op::kRope: return rope;
    case Op::kKvStore: return kv_store;
    case Op::kAttention: return attention;
    case Op::kGatedAct: return gated_act;
    case Op::kSoftcap: return softcap;
    case Op::kCheckFinite: return check_finite;
    case Op::kShortConv: return short_conv;
    case Op::kMoeRoute:
    case Op::kMoeMatmul:
    case Op::kMoeBias:
    case Op::kMoeCombine: return moe_executor(op);
  }
  return nullptr;
}

}  // namespace engine
