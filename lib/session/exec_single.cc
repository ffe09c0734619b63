// Executors of plan steps that are one operation: they fill the kernel's arguments and divide the work.
#include <cstring>

#include "lib/session/bound_plan.h"

namespace engine {
namespace {

void embed(const BoundStep& step, ExecContext& c) {
  const BoundPart& p = step.parts[0];
  const EmbedArgs args{p.weight_data, p.weight_row_bytes, p.step->width,  c.ids,
                       c.n_tokens,    p.step->scale,      p.out.floats(), p.out.stride()};
  p.entry(&args);
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
    bool finite = true;
    const QuantizeArgs args{
        p.in0.floats(begin),       p.in0.stride(),     p.step->width, end - begin,
        p.out.row(nullptr, begin), p.out.stride_bytes, &finite};
    p.entry(&args);
    c.found(finite);
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
  const RopeAnglesArgs args{p.theta,        static_cast<int64_t>(p.rope->theta.size()),
                            p.rope->mscale, c.first_position,
                            c.n_tokens,     p.out.floats(),
                            p.out.stride()};
  p.entry(&args);
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
  spread(step, c, c.n_tokens, [&](int64_t begin, int64_t end, uint8_t*) {
    bool finite = true;
    KvStoreArgs args{};
    args.k = p.in0.floats(begin);
    args.k_stride = p.in0.stride();
    args.v = p.in1.floats(begin);
    args.v_stride = p.in1.stride();
    args.n_kv_heads = p.geometry->n_kv_heads;
    args.head_dim_k = p.geometry->head_dim_k;
    args.head_dim_v = p.geometry->head_dim_v;
    args.first_position = c.first_position + begin;
    args.n_tokens = end - begin;
    args.kv = p.kv;
    args.finite = &finite;
    p.entry(&args);
    c.found(finite);
  });
}

void attention(const BoundStep& step, ExecContext& c) {
  const BoundPart& p = step.parts[0];
  spread(step, c, c.n_tokens * p.step->heads, [&](int64_t begin, int64_t end, uint8_t* scratch) {
    AttentionArgs args{};
    args.q = p.in0.floats();
    args.q_stride = p.in0.stride();
    args.n_heads = p.step->heads;
    args.n_kv_heads = p.geometry->n_kv_heads;
    args.head_dim_k = p.geometry->head_dim_k;
    args.head_dim_v = p.geometry->head_dim_v;
    args.scale = p.step->scale;
    args.softcap = p.step->cap;
    args.window = p.step->window;
    args.first_position = c.first_position;
    args.n_tokens = c.n_tokens;
    args.item_begin = begin;
    args.item_end = end;
    args.kv = p.kv;
    args.out = p.out.floats();
    args.out_stride = p.out.stride();
    args.scratch = reinterpret_cast<float*>(scratch);
    if (p.weight != nullptr) args.sinks = p.weight_floats();
    p.entry(&args);
  });
}

void short_conv(const BoundStep& step, ExecContext& c) {
  const BoundPart& p = step.parts[0];
  spread(step, c, c.n_tokens, [&](int64_t begin, int64_t end, uint8_t*) {
    const ShortConvArgs args{p.weight_floats(),        p.weight->rows, p.weight->cols,
                             c.first_position + begin, end - begin,    p.kv,
                             p.out.floats(begin),      p.out.stride()};
    p.entry(&args);
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
    bool finite = true;
    const CheckFiniteArgs args{p.in0.floats(begin), p.in0.stride(), p.step->width, end - begin,
                               &finite};
    p.entry(&args);
    c.found(finite);
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
