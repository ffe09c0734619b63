// The token loop, and the firing of hooks between its steps.
#include "lib/session/interpreter.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "lib/contract/derive.h"
#include "lib/session/attention_probe.h"
#include "lib/session/query_source.h"

namespace engine {

Interpreter::Interpreter(const Program& program, PackedWeights packed, KvCache* kv,
                         ThreadRunner* runner, Hooks* hooks, HostMemory memory)
    : program_(program),
      packed_(std::move(packed)),
      kv_(kv),
      runner_(runner),
      hooks_(hooks),
      memory_(memory),
      counts_(kernel_rows().size(), 0) {}

absl::Status Interpreter::bind(std::shared_ptr<const Plan> plan) {
  ENGINE_ASSIGN_OR_RETURN(
      bound_, BoundPlan::bind(std::move(plan), program_, packed_, kv_, *runner_, memory_));
  form_ = &bound_->form(1);
  return absl::OkStatus();
}

void Interpreter::prepare(ExecContext* context, const HookRows& rows) const {
  context->ids = rows.ids;
  context->first_position = rows.first_position;
  context->n_tokens = rows.n_rows;
  context->runner = runner_;
  context->scratch = form_->scratch;
  context->scratch_bytes = form_->scratch_bytes;
  context->cursors = bound_->cursors();
}

absl::Status Interpreter::run_layers(std::span<const int32_t> ids, int64_t first_position,
                                     bool (*should_stop)(void*), void* stop_data) {
  const auto n = static_cast<int64_t>(ids.size());
  form_ = &bound_->form(n);
  if (n > form_->n_tokens) return error(Code::kInternal, "a call is larger than its plan");
  rows_ = {ids.data(), n, first_position};
  ExecContext context;
  prepare(&context, rows_);
  for (const BoundStep& step : form_->body) {
    if (should_stop(stop_data)) return error(Code::kCancelled, "the decode was cancelled");
    ENGINE_RETURN_IF_ERROR(run_step(step, context, rows_));
  }
  return absl::OkStatus();
}

absl::Status Interpreter::run_head(int64_t first_row, int64_t n_rows, float* logits) {
  const HookRows rows{rows_.ids + first_row, n_rows, rows_.first_position + first_row};
  return run_final(rows, form_->residual.row(nullptr, first_row), logits);
}

absl::Status Interpreter::unembed(const float* rows, int64_t n_rows, float* logits) {
  const int64_t E = program_.n_embd;
  silent_ = true;
  absl::Status status;
  for (int64_t done = 0; done < n_rows && status.ok();) {
    form_ = &bound_->form(n_rows - done);
    const int64_t n = std::min(n_rows - done, form_->n_head_rows);
    for (int64_t t = 0; t < n; ++t) {
      std::memcpy(form_->residual.floats(t), rows + (done + t) * E,
                  static_cast<size_t>(E) * sizeof(float));
    }
    status = run_final({nullptr, n, 0}, form_->residual.base, logits + done * program_.n_vocab);
    done += n;
  }
  silent_ = false;
  return status;
}

absl::Status Interpreter::run_final(const HookRows& rows, uint8_t* residual, float* logits) {
  for (Place* place : form_->residual_rows) place->base = residual;
  for (Place* place : form_->logits_rows) place->base = reinterpret_cast<uint8_t*>(logits);
  ExecContext context;
  prepare(&context, rows);
  for (const BoundStep& step : form_->final_steps) {
    ENGINE_RETURN_IF_ERROR(run_step(step, context, rows));
  }
  return absl::OkStatus();
}

absl::Status Interpreter::run_step(const BoundStep& step, ExecContext& context,
                                   const HookRows& rows) {
  const uint64_t start = profile_ != nullptr ? profile_->now() : 0;
  if (!step.before.empty() && !silent_) ENGINE_RETURN_IF_ERROR(fire_before(step, context, rows));
  step.run(step, context);
  for (const BoundPart& part : step.parts) ++counts_[static_cast<size_t>(part.kernel)];
  for (int f = 0; f < kNumFusions; ++f) fusion_counts_[f] += step.plan->fusions >> f & 1;
  if (!context.finite.load(std::memory_order_relaxed)) {
    return error(Code::kNonFinite, non_finite_text(*step.parts.back().step));
  }
  if (!step.after.empty() && !silent_) ENGINE_RETURN_IF_ERROR(fire_after(step, rows));
  if (profile_ != nullptr) {
    profile_->record(form_ == &bound_->form(2), static_cast<size_t>(step.index), start,
                     context.first_position, context.n_tokens);
  }
  return absl::OkStatus();
}

absl::Status Interpreter::fire_before(const BoundStep& step, ExecContext& context,
                                      const HookRows& rows) {
  for (const BoundFire& fire : step.before) {
    const BoundPart& part = step.parts[static_cast<size_t>(fire.part)];
    if (part.step->op != Op::kAttention) {
      ENGINE_RETURN_IF_ERROR(
          hooks_->fire(fire.site, step.layer, rows, part.in0.floats(), part.in0.stride()));
      continue;
    }
    // Beside the kernel: its queries are made again, one head at a time, in this thread's scratch.
    const QuerySource queries(step, context.thread_scratch(0));
    const KvAttentionProbe probe(*part.step, part.kv, kv_->type(), *part.geometry,
                                 context.first_position, queries,
                                 part.weight != nullptr ? part.weight_floats() : nullptr);
    ENGINE_RETURN_IF_ERROR(hooks_->fire_attention(fire.site, step.layer, rows, probe));
  }
  return absl::OkStatus();
}

absl::Status Interpreter::fire_after(const BoundStep& step, const HookRows& rows) {
  for (const BoundFire& fire : step.after) {
    const Place& out = step.parts[static_cast<size_t>(fire.part)].out;
    ENGINE_RETURN_IF_ERROR(hooks_->fire(fire.site, step.layer, rows, out.floats(), out.stride()));
  }
  return absl::OkStatus();
}

std::vector<ProfileLabel> Interpreter::labels(bool prefill) const {
  std::vector<ProfileLabel> labels;
  const BoundForm& form = prefill ? bound_->prefill() : bound_->decode();
  for (const auto* steps : {&form.body, &form.final_steps}) {
    for (const BoundStep& step : *steps) {
      ProfileLabel label;
      label.layer = step.layer;
      label.fusions = step.plan->fusions;
      int64_t most = -1;  // bytes of the part that names the kernel
      for (const BoundPart& part : step.parts) {
        const ProfileLabel one = step_label(program_, *part.step, kv_->type());
        label.op += (label.op.empty() ? "" : "+") + one.op;
        label.weight_bytes += one.weight_bytes;
        label.kv_bytes_per_key += one.kv_bytes_per_key;
        label.window = one.window;
        if (label.tensor.empty()) label.tensor = one.tensor;
        if (one.weight_bytes > most || part.step->op == Op::kAttention) {
          most = one.weight_bytes;
          label.kernel = kernel_rows()[static_cast<size_t>(part.kernel)].name;
        }
      }
      labels.push_back(std::move(label));
    }
  }
  return labels;
}

}  // namespace engine
