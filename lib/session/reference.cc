// Reference execution: one switch over the ops, one short function per op that fills its kernel's arguments.
#include "lib/session/reference.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <utility>

#include "lib/contract/derive.h"
#include "lib/session/attention_probe.h"

namespace engine {
namespace {

absl::Status non_finite(const Step& step) { return error(Code::kNonFinite, non_finite_text(step)); }

}  // namespace

Reference::Reference(const Program& program, Target target, KvCache* kv, ThreadRunner* runner,
                     HostMemory memory)
    : program_(program),
      target_(target),
      kv_(kv),
      runner_(runner),
      memory_(memory),
      counts_(kernel_rows().size(), 0) {}

absl::Status Reference::run_layers(std::span<const int32_t> ids, int64_t first_position,
                                   bool (*should_stop)(void*), void* stop_data) {
  values_.clear();
  ids_.assign(ids.begin(), ids.end());
  first_position_ = first_position;
  is_prefill_ = ids.size() > 1;
  step_index_ = 0;
  const Call call{ids, first_position, static_cast<int64_t>(ids.size()), 0};
  for (const Step& step : program_.preamble) ENGINE_RETURN_IF_ERROR(run_hooked(step, call));
  for (const std::vector<Step>& layer : program_.layers) {
    for (const Step& step : layer) {
      if (should_stop(stop_data)) return error(Code::kCancelled, "the decode was cancelled");
      ENGINE_RETURN_IF_ERROR(run_hooked(step, call));
    }
  }
  return absl::OkStatus();
}

absl::Status Reference::run_head(int64_t first_row, int64_t n_rows, float* logits) {
  const auto ids =
      std::span(ids_).subspan(static_cast<size_t>(first_row), static_cast<size_t>(n_rows));
  return run_final(Call{ids, first_position_ + first_row, n_rows, first_row}, logits);
}

absl::Status Reference::unembed(const float* rows, int64_t n_rows, float* logits) {
  Hooks* const hooks = std::exchange(hooks_, nullptr);
  Profile* const profile = std::exchange(profile_, nullptr);
  const auto row_bytes = static_cast<size_t>(program_.n_embd) * sizeof(float);
  absl::Status status;
  for (int64_t row = 0; row < n_rows && status.ok(); ++row) {
    auto residual = output_floats(program_.residual_slot, 1);
    status = residual.status();
    if (!status.ok()) break;
    std::memcpy(*residual, rows + row * program_.n_embd, row_bytes);
    status = run_final(Call{{}, 0, 1, 0}, logits + row * program_.n_vocab);
  }
  hooks_ = hooks;
  profile_ = profile;
  return status;
}

absl::Status Reference::run_final(const Call& call, float* logits) {
  step_index_ = program_.preamble.size();
  for (const std::vector<Step>& layer : program_.layers) step_index_ += layer.size();
  for (const Step& step : program_.final_steps) ENGINE_RETURN_IF_ERROR(run_hooked(step, call));
  const auto row_bytes = static_cast<size_t>(program_.n_vocab) * sizeof(float);
  const uint8_t* result = input(program_.logits_slot, call);
  for (int64_t t = 0; t < call.n_tokens; ++t) {
    std::memcpy(logits + t * program_.n_vocab, result + t * stride_bytes(program_.logits_slot),
                row_bytes);
  }
  return absl::OkStatus();
}

absl::Status Reference::run_hooked(const Step& step, const Call& call) {
  const uint64_t start = profile_ != nullptr ? profile_->now() : 0;
  if (hooks_ != nullptr) {
    for (const Site site : step.fires_before) {
      ENGINE_RETURN_IF_ERROR(fire(site, step.in0, step, call));
    }
  }
  ENGINE_RETURN_IF_ERROR(run_step(step, call));
  if (hooks_ != nullptr) {
    for (const Site site : step.fires_after) {
      ENGINE_RETURN_IF_ERROR(fire(site, step.out, step, call));
    }
  }
  if (profile_ != nullptr) {
    profile_->record(is_prefill_, step_index_, start, call.first_position, call.n_tokens);
  }
  ++step_index_;
  return absl::OkStatus();
}

absl::Status Reference::fire(Site site, int32_t slot_id, const Step& step, const Call& call) {
  if (!hooks_->wants(site, step.layer)) return absl::OkStatus();
  const HookRows rows{call.ids.data(), call.n_tokens, call.first_position};
  auto* values = const_cast<float*>(input_floats(slot_id, call));
  if (site != Site::kAttnScores && site != Site::kAttnPattern) {
    return hooks_->fire(site, step.layer, rows, values, stride(slot_id));
  }
  const int32_t source = program_.kv_layer(step.layer);
  const KvGeometry& kv = kv_->geometry(source);
  const StoredQueries queries(values, stride(slot_id), kv.head_dim_k);
  const KvAttentionProbe probe(step, kv_->layer(source), kv_->type(), kv, call.first_position,
                               queries, step.weight >= 0 ? weight_floats(step.weight) : nullptr);
  return hooks_->fire_attention(site, step.layer, rows, probe);
}

absl::Status Reference::run_step(const Step& step, const Call& call) {
  auto resolved = resolve_kernel(kernel_key(program_, step, kv_->type()), target_, kernel_pattern_);
  if (!resolved.ok()) return resolved.status();
  ++counts_[static_cast<size_t>(resolved->row_index)];
  const KernelEntry entry = resolved->entry;
  switch (step.op) {
    case Op::kEmbed: return embed(entry, step, call);
    case Op::kRmsNorm: return rms_norm(entry, step, call);
    case Op::kQuantize: return quantize(entry, step, call);
    case Op::kMatmul: return matmul(entry, step, call);
    case Op::kAdd: return add(entry, step, call);
    case Op::kRopeAngles: return rope_angles(entry, step, call);
    case Op::kRope: return rope(entry, step, call);
    case Op::kKvStore: return kv_store(entry, step, call);
    case Op::kAttention: return attention(entry, step, call);
    case Op::kGatedAct: return gated_act(entry, step, call);
    case Op::kSoftcap: return softcap(entry, step, call);
    case Op::kCheckFinite: return check_finite(entry, step, call);
    case Op::kShortConv: return short_conv(entry, step, call);
    case Op::kMoeRoute: return moe_route(entry, step, call);
    case Op::kMoeMatmul: return moe_matmul(entry, step, call);
    case Op::kMoeBias: return moe_bias(entry, step, call);
    case Op::kMoeCombine: return moe_combine(entry, step, call);
  }
  return error(Code::kInternal, "unknown op");
}

std::vector<ProfileLabel> Reference::labels() const {
  std::vector<ProfileLabel> labels;
  const auto add = [&](const std::vector<Step>& section) {
    for (const Step& step : section) {
      ProfileLabel label = step_label(program_, step, kv_->type());
      const auto resolved =
          resolve_kernel(kernel_key(program_, step, kv_->type()), target_, kernel_pattern_);
      if (resolved.ok()) label.kernel = resolved->row->name;
      labels.push_back(std::move(label));
    }
  };
  add(program_.preamble);
  for (const std::vector<Step>& layer : program_.layers) add(layer);
  add(program_.final_steps);
  return labels;
}

absl::StatusOr<uint8_t*> Reference::output(int32_t slot_id, int64_t n_tokens) {
  const Slot& slot = program_.slots[static_cast<size_t>(slot_id)];
  const auto n_bytes = static_cast<uint64_t>(slot.row_bytes * n_tokens);
  auto it = values_.find(slot.name);
  if (it == values_.end() || it->second.size() < n_bytes) {
    ENGINE_ASSIGN_OR_RETURN(AlignedBuffer buffer, AlignedBuffer::create(memory_, n_bytes));
    it = values_.insert_or_assign(slot.name, std::move(buffer)).first;
  }
  return it->second.data();
}

const uint8_t* Reference::input(int32_t slot_id, const Call& call) const {
  const Slot& slot = program_.slots[static_cast<size_t>(slot_id)];
  const uint8_t* base = values_.find(slot.name)->second.data();
  return slot_id == program_.residual_slot ? base + call.row_offset * slot.row_bytes : base;
}

absl::StatusOr<float*> Reference::output_floats(int32_t slot_id, int64_t n_tokens) {
  ENGINE_ASSIGN_OR_RETURN(uint8_t* const out, output(slot_id, n_tokens));
  return reinterpret_cast<float*>(out);
}

const float* Reference::input_floats(int32_t slot_id, const Call& call) const {
  return reinterpret_cast<const float*>(input(slot_id, call));
}

const float* Reference::weight_floats(int32_t weight_id) const {
  return reinterpret_cast<const float*>(program_.weights[static_cast<size_t>(weight_id)].data);
}

int64_t Reference::stride_bytes(int32_t slot_id) const {
  return program_.slots[static_cast<size_t>(slot_id)].row_bytes;
}

int64_t Reference::stride(int32_t slot_id) const {
  return stride_bytes(slot_id) / static_cast<int64_t>(sizeof(float));
}

absl::Status Reference::embed(KernelEntry entry, const Step& step, const Call& call) {
  const Weight& w = program_.weights[static_cast<size_t>(step.weight)];
  ENGINE_ASSIGN_OR_RETURN(float* const out, output_floats(step.out, call.n_tokens));
  const EmbedArgs args{w.data,        w.row_bytes, step.width, call.ids.data(),
                       call.n_tokens, step.scale,  out,        stride(step.out)};
  entry(&args);
  return absl::OkStatus();
}

absl::Status Reference::rms_norm(KernelEntry entry, const Step& step, const Call& call) {
  const Weight& w = program_.weights[static_cast<size_t>(step.weight)];
  ENGINE_ASSIGN_OR_RETURN(float* const out, output_floats(step.out, call.n_tokens));
  const auto* x = input_floats(step.in0, call);
  const int64_t part = step.width / step.heads;
  // Without heads the rows are tokens; with heads they are the heads of each token in turn.
  for (int64_t t = 0; t < (step.heads > 1 ? call.n_tokens : 1); ++t) {
    RmsNormArgs args{};
    args.x = x + t * stride(step.in0);
    args.x_stride = step.heads > 1 ? part : stride(step.in0);
    args.weight = reinterpret_cast<const float*>(w.data);
    args.width = part;
    args.n_rows = step.heads > 1 ? step.heads : call.n_tokens;
    args.eps = step.eps;
    args.out = out + t * stride(step.out);
    args.out_stride = step.heads > 1 ? part : stride(step.out);
    entry(&args);
  }
  return absl::OkStatus();
}

absl::Status Reference::quantize(KernelEntry entry, const Step& step, const Call& call) {
  ENGINE_ASSIGN_OR_RETURN(uint8_t* const out, output(step.out, call.n_tokens));
  const auto* x = input_floats(step.in0, call);
  std::atomic<bool> all_finite{true};
  spread(call.n_tokens, call.n_tokens > 1, [&](int64_t begin, int64_t end) {
    bool finite = true;
    const QuantizeArgs args{
        x + begin * stride(step.in0),         stride(step.in0),       step.width, end - begin,
        out + begin * stride_bytes(step.out), stride_bytes(step.out), &finite};
    entry(&args);
    if (!finite) all_finite.store(false, std::memory_order_relaxed);
  });
  return all_finite.load() ? absl::OkStatus() : non_finite(step);
}

absl::Status Reference::matmul(KernelEntry entry, const Step& step, const Call& call) {
  const Weight& w = program_.weights[static_cast<size_t>(step.weight)];
  ENGINE_ASSIGN_OR_RETURN(float* const out, output_floats(step.out, call.n_tokens));
  const uint8_t* act = input(step.in0, call);
  spread(w.rows, call.n_tokens > 1, [&](int64_t begin, int64_t end) {
    const MatmulArgs args{
        w.data,        w.row_bytes, w.cols,          begin, end, act, stride_bytes(step.in0),
        call.n_tokens, out,         stride(step.out)};
    entry(&args);
  });
  return absl::OkStatus();
}

absl::Status Reference::add(KernelEntry entry, const Step& step, const Call& call) {
  ENGINE_ASSIGN_OR_RETURN(float* const out, output_floats(step.out, call.n_tokens));
  const bool is_bias = step.weight >= 0;
  AddArgs args{};
  args.a = input_floats(step.in0, call);
  args.a_stride = stride(step.in0);
  args.b = is_bias ? weight_floats(step.weight) : input_floats(step.in1, call);
  args.b_stride = is_bias ? 0 : stride(step.in1);
  args.width = step.width;
  args.n_rows = call.n_tokens;
  args.out = out;
  args.out_stride = stride(step.out);
  args.scale = step.scale;
  entry(&args);
  return absl::OkStatus();
}

absl::Status Reference::rope_angles(KernelEntry entry, const Step& step, const Call& call) {
  const RopeRule& rule = program_.ropes[static_cast<size_t>(step.rope)];
  ENGINE_ASSIGN_OR_RETURN(float* const out, output_floats(step.out, call.n_tokens));
  const std::vector<double>& theta = rule.theta_of(kv_->n_ctx());
  const RopeAnglesArgs args{theta.data(),    static_cast<int64_t>(theta.size()),
                            rule.mscale,     call.first_position,
                            call.n_tokens,   out,
                            stride(step.out)};
  entry(&args);
  return absl::OkStatus();
}

absl::Status Reference::rope(KernelEntry entry, const Step& step, const Call& call) {
  ENGINE_ASSIGN_OR_RETURN(float* const out, output_floats(step.out, call.n_tokens));
  RopeArgs args{};
  args.x = input_floats(step.in0, call);
  args.x_stride = stride(step.in0);
  args.n_heads = step.heads;
  args.head_dim = step.width / step.heads;
  args.n_rot = step.n_rot;
  args.pairing = step.pairing;
  args.angles = input_floats(step.in1, call);
  args.angles_stride = stride(step.in1);
  args.n_tokens = call.n_tokens;
  args.out = out;
  args.out_stride = stride(step.out);
  entry(&args);
  return absl::OkStatus();
}

absl::Status Reference::kv_store(KernelEntry entry, const Step& step, const Call& call) {
  const KvGeometry& kv = kv_->geometry(step.layer);
  bool finite = true;
  KvStoreArgs args{};
  args.k = input_floats(step.in0, call);
  args.k_stride = stride(step.in0);
  args.v = input_floats(step.in1, call);
  args.v_stride = stride(step.in1);
  args.n_kv_heads = kv.n_kv_heads;
  args.head_dim_k = kv.head_dim_k;
  args.head_dim_v = kv.head_dim_v;
  args.first_position = call.first_position;
  args.n_tokens = call.n_tokens;
  args.kv = kv_->layer(step.layer);
  args.finite = &finite;
  entry(&args);
  return finite ? absl::OkStatus() : non_finite(step);
}

absl::Status Reference::attention(KernelEntry entry, const Step& step, const Call& call) {
  const int32_t source = program_.kv_layer(step.layer);
  const KvGeometry& kv = kv_->geometry(source);
  ENGINE_ASSIGN_OR_RETURN(float* const out, output_floats(step.out, call.n_tokens));
  const auto scratch_bytes =
      (static_cast<uint64_t>(attention_scratch_floats(kv.head_dim_v)) * sizeof(float) + 63) / 64 *
      64;
  ENGINE_ASSIGN_OR_RETURN(const AlignedBuffer scratch,
                          AlignedBuffer::create(memory_, scratch_bytes * runner_->n_threads()));
  std::atomic<uint32_t> next_scratch{0};
  spread(call.n_tokens * step.heads, call.n_tokens > 1, [&](int64_t begin, int64_t end) {
    AttentionArgs args{};
    args.q = input_floats(step.in0, call);
    args.q_stride = stride(step.in0);
    args.n_heads = step.heads;
    args.n_kv_heads = kv.n_kv_heads;
    args.head_dim_k = kv.head_dim_k;
    args.head_dim_v = kv.head_dim_v;
    args.scale = step.scale;
    args.softcap = step.cap;
    args.window = step.window;
    args.first_position = call.first_position;
    args.n_tokens = call.n_tokens;
    args.item_begin = begin;
    args.item_end = end;
    args.kv = kv_->layer(source);
    args.out = out;
    args.out_stride = stride(step.out);
    args.scratch =
        reinterpret_cast<float*>(scratch.data() + scratch_bytes * next_scratch.fetch_add(1));
    if (step.weight >= 0) args.sinks = weight_floats(step.weight);
    entry(&args);
  });
  return absl::OkStatus();
}

absl::Status Reference::short_conv(KernelEntry entry, const Step& step, const Call& call) {
  const Weight& w = program_.weights[static_cast<size_t>(step.weight)];
  ENGINE_ASSIGN_OR_RETURN(float* const out, output_floats(step.out, call.n_tokens));
  const ShortConvArgs args{
      weight_floats(step.weight), w.rows, w.cols,          call.first_position, call.n_tokens,
      kv_->layer(step.layer),     out,    stride(step.out)};
  entry(&args);
  return absl::OkStatus();
}

absl::Status Reference::gated_act(KernelEntry entry, const Step& step, const Call& call) {
  ENGINE_ASSIGN_OR_RETURN(float* const out, output_floats(step.out, call.n_tokens));
  const auto* gate = input_floats(step.in0, call);
  const auto* up = input_floats(step.in1, call);
  const int64_t row = stride(step.out);  // gate, up and act have one width
  spread(call.n_tokens, call.n_tokens > 1, [&](int64_t begin, int64_t end) {
    const GatedActArgs args{gate + begin * row, up + begin * row, row, step.width, end - begin,
                            step.act,           out + begin * row};
    entry(&args);
  });
  return absl::OkStatus();
}

absl::Status Reference::softcap(KernelEntry entry, const Step& step, const Call& call) {
  ENGINE_ASSIGN_OR_RETURN(float* const x, output_floats(step.out, call.n_tokens));
  const SoftcapArgs args{x, stride(step.out), step.width, call.n_tokens, step.cap, step.scale};
  entry(&args);
  return absl::OkStatus();
}

absl::Status Reference::check_finite(KernelEntry entry, const Step& step, const Call& call) {
  bool finite = true;
  const CheckFiniteArgs args{input_floats(step.in0, call), stride(step.in0), step.width,
                             call.n_tokens, &finite};
  entry(&args);
  return finite ? absl::OkStatus() : non_finite(step);
}

}  // namespace engine
