// The token loop, and the firing of hooks between its steps.
#include "lib/session/interpreter.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "lib/contract/derive.h"
#include "lib/session/attention_probe.h"
#include "lib/session/query_source.h"

namespace engine {
namespace {

absl::Status cancelled() { return error(Code::kCancelled, "the decode was cancelled"); }

}  // namespace

Interpreter::Interpreter(const Program& program, const PackedWeights& packed,
                         std::shared_ptr<ThreadRunner> runner, const HostMemory& memory)
    : program_(program), packed_(packed), runner_(std::move(runner)), memory_(memory) {}

absl::StatusOr<std::shared_ptr<Interpreter>> Interpreter::create(
    std::shared_ptr<const Plan> plan, const Program& program, const PackedWeights& packed,
    std::shared_ptr<ThreadRunner> runner, const HostMemory& memory) {
  std::shared_ptr<Interpreter> made(new Interpreter(program, packed, std::move(runner), memory));
  ENGINE_ASSIGN_OR_RETURN(made->bound_, BoundPlan::bind(std::move(plan), program, made->packed_,
                                                        *made->runner_, memory));
  made->form_ = &made->bound_->form(1);
  return made;
}

absl::StatusOr<std::shared_ptr<Interpreter>> Interpreter::with_plan(
    std::shared_ptr<const Plan> plan) const {
  return create(std::move(plan), program_, packed_, runner_, memory_);
}

ExecContext Interpreter::context_of(std::span<SequenceRows> sequences) const {
  ExecContext context;
  context.sequences = sequences;
  for (const SequenceRows& s : sequences) context.n_tokens += s.n_rows;
  context.runner = runner_.get();
  context.scratch = form_->scratch;
  context.scratch_bytes = form_->scratch_bytes;
  context.cursors = bound_->cursors();
  context.progress = sequences.size() == 1 ? sequences[0].progress : nullptr;
  return context;
}

void Interpreter::run_layers(std::span<SequenceRows> sequences) {
  int64_t n = 0;
  for (const SequenceRows& s : sequences) n += s.n_rows;
  form_ = &bound_->form(n);
  if (n > form_->n_tokens) {
    for (SequenceRows& s : sequences) {
      s.status = error(Code::kInternal, "a call is larger than its plan");
    }
    return;
  }
  ExecContext context = context_of(sequences);
  run_steps(form_->body, context);
}

void Interpreter::run_head(std::span<SequenceRows> sequences, int64_t first_row, float* logits) {
  aim_final(form_->residual.row(nullptr, first_row), logits);
  ExecContext context = context_of(sequences);
  run_steps(form_->final_steps, context);
}

absl::Status Interpreter::unembed(const float* rows, int64_t n_rows, float* logits,
                                  RunCounters* counters) {
  const int64_t E = program_.n_embd;
  for (int64_t done = 0; done < n_rows;) {
    form_ = &bound_->form(n_rows - done);
    SequenceRows s;
    s.counters = counters;
    s.n_rows = std::min(n_rows - done, form_->n_head_rows);
    for (int64_t t = 0; t < s.n_rows; ++t) {
      std::memcpy(form_->residual.floats(t), rows + (done + t) * E,
                  static_cast<size_t>(E) * sizeof(float));
    }
    run_head({&s, 1}, 0, logits + done * program_.n_vocab);
    ENGINE_RETURN_IF_ERROR(s.status);
    done += s.n_rows;
  }
  return absl::OkStatus();
}

void Interpreter::aim_final(uint8_t* residual, float* logits) {
  for (Place* place : form_->residual_rows) place->base = residual;
  for (Place* place : form_->logits_rows) place->base = reinterpret_cast<uint8_t*>(logits);
}

void Interpreter::run_steps(const std::vector<BoundStep>& steps, ExecContext& context) {
  for (const BoundStep& step : steps) {
    bool any_in = false;
    for (SequenceRows& s : context.sequences) {
      if (s.is_in() && s.stop_asked()) {
        s.status = cancelled();
      }
      any_in |= s.is_in();
    }
    if (!any_in) return;
    run_step(step, context);
    if (context.progress != nullptr) tell_progress(step, context);
  }
}

// The tokens of the call so far: those before this run, and this run's by its share of steps.
void Interpreter::tell_progress(const BoundStep& step, const ExecContext& context) const {
  const SequenceRows& s = context.sequences[0];
  const auto n_steps = static_cast<int64_t>(form_->body.size() + form_->final_steps.size());
  context.progress->reach(
      static_cast<uint64_t>(s.n_before + s.n_rows * (step.index + 1) / (n_steps + 1)));
}

void Interpreter::run_step(const BoundStep& step, ExecContext& context) {
  Profile* const profile = context.sequences.size() == 1 ? context.sequences[0].profile : nullptr;
  const uint64_t start = profile != nullptr ? profile->now() : 0;
  if (!step.before.empty()) {
    for (SequenceRows& s : context.sequences) {
      if (s.is_in() && s.hooks != nullptr) s.status = fire_before(step, context, s);
    }
  }
  step.run(step, context);
  for (SequenceRows& s : context.sequences) {
    if (!s.is_in()) continue;
    if (s.stop_asked()) {  // the step may have ended early
      s.status = cancelled();
      continue;
    }
    if (s.counters != nullptr) {
      for (const BoundPart& part : step.parts) {
        ++s.counters->kernels[static_cast<size_t>(part.kernel)];
      }
      for (size_t f = 0; f < kNumFusions; ++f) {
        s.counters->fusions[f] += step.plan->fusions >> f & 1;
      }
    }
    if (!s.finite.value()) {
      s.status = error(Code::kNonFinite, non_finite_text(*step.parts.back().step));
    } else if (!step.after.empty() && s.hooks != nullptr) {
      s.status = fire_after(step, s);
    }
  }
  if (profile != nullptr) {
    profile->record(form_ == &bound_->form(2), static_cast<size_t>(step.index), start,
                    context.sequences[0].first_position, context.n_tokens);
  }
}

absl::Status Interpreter::fire_before(const BoundStep& step, const ExecContext& context,
                                      SequenceRows& s) {
  for (const BoundFire& fire : step.before) {
    const BoundPart& part = step.parts[static_cast<size_t>(fire.part)];
    if (part.step->op != Op::kAttention) {
      ENGINE_RETURN_IF_ERROR(s.hooks->fire(fire.site, step.layer, s.hook_rows(),
                                           part.in0.floats(s.first_row), part.in0.stride()));
      continue;
    }
    // Beside the kernel: its queries are made again, one head at a time, in this thread's scratch.
    const QuerySource queries(step, context.thread_scratch(0), s.first_row);
    const KvAttentionProbe probe(*part.step, kv_of(part, s), bound_->plan().key.kv, *part.geometry,
                                 s.first_position, queries,
                                 part.weight != nullptr ? part.weight_floats() : nullptr);
    ENGINE_RETURN_IF_ERROR(s.hooks->fire_attention(fire.site, step.layer, s.hook_rows(), probe));
  }
  return absl::OkStatus();
}

absl::Status Interpreter::fire_after(const BoundStep& step, SequenceRows& s) {
  for (const BoundFire& fire : step.after) {
    const Place& out = step.parts[static_cast<size_t>(fire.part)].out;
    ENGINE_RETURN_IF_ERROR(
        s.hooks->fire(fire.site, step.layer, s.hook_rows(), out.floats(s.first_row), out.stride()));
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
        const ProfileLabel one = step_label(program_, *part.step, bound_->plan().key.kv);
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
