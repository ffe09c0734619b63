// Packing in parallel, strip ranges of about equal size per task.
#include "lib/plan/weight_store.h"

#include <algorithm>
#include <utility>

#include "lib/quant/pack.h"

namespace engine {
namespace {

constexpr int64_t kTaskBytes = int64_t{1} << 20;  // enough for a task's start to cost nothing

// Weights that a section's matmuls read packed, and those that any step reads as stored.
struct Uses {
  std::vector<bool> packed, stored;
};

void collect(const std::vector<Step>& section, const std::vector<PlanStep>& steps, Uses* uses) {
  for (const PlanStep& step : steps) {
    for (size_t i = 0; i < step.steps.size(); ++i) {
      const int32_t weight = section[static_cast<size_t>(step.steps[i])].weight;
      if (weight < 0) continue;
      const KernelRow& row = kernel_rows()[static_cast<size_t>(step.kernels[i])];
      (row.key.layout == Layout::kRows16 ? uses->packed
                                         : uses->stored)[static_cast<size_t>(weight)] = true;
    }
  }
}

Uses uses_of(const Program& program, const Plan& plan) {
  Uses uses{std::vector<bool>(program.weights.size()), std::vector<bool>(program.weights.size())};
  for (const PlanForm* form : {&plan.decode, &plan.prefill}) {
    collect(program.preamble, form->preamble, &uses);
    for (size_t l = 0; l < form->layers.size(); ++l) {
      collect(program.layers[l], form->layers[l].steps, &uses);
    }
    collect(program.final_steps, form->final_steps, &uses);
  }
  return uses;
}

int64_t n_padded_rows(const Weight& w) {
  return (w.rows + kStripRows - 1) / kStripRows * kStripRows;
}

void pack(const Weight& w, ThreadRunner* runner, uint8_t* out) {
  const int64_t strips = n_padded_rows(w) / kStripRows;
  const int64_t n_tasks = std::clamp<int64_t>(w.rows * w.row_bytes / kTaskBytes, 1, strips);
  parallel_for(*runner, static_cast<uint32_t>(n_tasks), [&](uint32_t t) {
    const int64_t begin = strips * t / n_tasks * kStripRows;
    const int64_t end = std::min(w.rows, strips * (t + 1) / n_tasks * kStripRows);
    pack_rows(w.format, w.data, w.row_bytes, w.cols, begin, end, out);
  });
}

}  // namespace

absl::StatusOr<PackedWeights> WeightStore::prepare(const Program& program, const Plan& plan,
                                                   ThreadRunner* runner, const HostMemory& memory,
                                                   const ProgressFn& progress,
                                                   const ReleaseFn& release) {
  const std::lock_guard lock(mutex_);
  views_.resize(program.weights.size());
  const Uses uses = uses_of(program, plan);
  const auto bytes_of = [&](size_t i) {
    const Weight& w = program.weights[i];
    if (!uses.packed[i] || views_[i].data != nullptr) return int64_t{0};
    return (engine::packed_bytes(w.format, w.rows, w.cols) + 63) / 64 * 64;
  };
  uint64_t total = 0;
  for (size_t i = 0; i < program.weights.size(); ++i) total += static_cast<uint64_t>(bytes_of(i));
  if (total == 0) return views_;
  ENGINE_ASSIGN_OR_RETURN(AlignedBuffer block, AlignedBuffer::create_large(memory, total));
  PackedWeights views = views_;
  if (progress) progress(0, total);
  uint64_t done = 0;
  for (size_t i = 0; i < program.weights.size(); ++i) {
    const Weight& w = program.weights[i];
    const int64_t n_bytes = bytes_of(i);
    if (n_bytes == 0) continue;
    uint8_t* const to = block.data() + done;
    pack(w, runner, to);
    views[i] = {to, engine::packed_bytes(w.format, w.rows, w.cols) / n_padded_rows(w)};
    if (release && !uses.stored[i]) release(w.data, static_cast<uint64_t>(w.rows * w.row_bytes));
    done += static_cast<uint64_t>(n_bytes);
    if (progress) progress(done, total);
  }
  views_ = std::move(views);
  blocks_.push_back(std::move(block));
  return views_;
}

uint64_t WeightStore::packed_bytes() const {
  const std::lock_guard lock(mutex_);
  uint64_t n = 0;
  for (const AlignedBuffer& block : blocks_) n += block.size();
  return n;
}

}  // namespace engine
