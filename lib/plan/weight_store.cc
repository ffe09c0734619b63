// Packing in parallel, piece by piece.
#include "lib/plan/weight_store.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "lib/quant/pack.h"

namespace engine {
namespace {

constexpr int64_t kPieceBytes = int64_t{256}
                                << 10;  // stays in a core's L2 between reading and packing

// Weights that a section's steps read packed.
void collect(const std::vector<Step>& section, const std::vector<PlanStep>& steps,
             std::vector<bool>* packed) {
  for (const PlanStep& step : steps) {
    for (size_t i = 0; i < step.steps.size(); ++i) {
      const int32_t weight = section[static_cast<size_t>(step.steps[i])].weight;
      const KernelRow& row = kernel_rows()[static_cast<size_t>(step.kernels[i])];
      if (row.key.layout == Layout::kRows16) (*packed)[static_cast<size_t>(weight)] = true;
    }
  }
}

std::vector<bool> packed_in(const Program& program, const Plan& plan) {
  std::vector<bool> packed(program.weights.size());
  for (const PlanForm* form : {&plan.decode, &plan.prefill}) {
    collect(program.preamble, form->preamble, &packed);
    for (size_t l = 0; l < form->layers.size(); ++l) {
      collect(program.layers[l], form->layers[l].steps, &packed);
    }
    collect(program.final_steps, form->final_steps, &packed);
  }
  return packed;
}

int64_t n_padded_rows(const Weight& w) {
  return (w.rows + kStripRows - 1) / kStripRows * kStripRows;
}

// Of one expert's packed matrix and what is left free behind it.
int64_t matrix_bytes(const Weight& w) {
  return (packed_bytes(w.format, w.rows, w.cols) + 63) / 64 * 64;
}

// Rows of a weight that fit a piece, whole strips.
int64_t piece_rows(const Weight& w) {
  return std::max<int64_t>(1, kPieceBytes / (w.row_bytes * kStripRows)) * kStripRows;
}

// Bytes between two words on the progress: milliseconds, also from a slow disk less than the 100 ms promised.
constexpr int64_t kTellBytes = int64_t{2} << 20;

// Every thread reads a piece at a time into its own buffer and packs it from there. tell: the bytes packed so far,
// now and then, from task 0 alone.
absl::Status pack(const Weight& w, ThreadRunner* runner, const AlignedBuffer& buffers,
                  int64_t buffer_bytes, const WeightStore::ReadFn& read,
                  const std::function<void(int64_t)>& tell, uint8_t* out) {
  const int64_t rows = piece_rows(w);
  const int64_t n_matrix_pieces = (w.rows + rows - 1) / rows;
  const int64_t n_pieces = n_matrix_pieces * w.n_experts;
  const auto n_tasks =
      static_cast<uint32_t>(std::min<int64_t>(n_pieces, static_cast<int64_t>(runner->n_threads())));
  std::atomic<int64_t> next{0}, packed{0};
  std::mutex fault_mutex;
  absl::Status fault;
  parallel_for(*runner, n_tasks, [&](uint32_t task) {
    uint8_t* const buffer = buffers.data() + task * buffer_bytes;
    int64_t told = 0;
    for (int64_t piece = next++; piece < n_pieces; piece = next++) {
      const int64_t expert = piece / n_matrix_pieces;
      const int64_t begin = piece % n_matrix_pieces * rows, n = std::min(rows, w.rows - begin);
      const absl::Status status = read(w.data + (expert * w.rows + begin) * w.row_bytes,
                                       static_cast<uint64_t>(n * w.row_bytes), buffer);
      if (!status.ok()) {
        const std::lock_guard lock(fault_mutex);
        fault = status;
        return;
      }
      pack_rows(w.format, buffer, w.row_bytes, w.cols, 0, n,
                out + expert * matrix_bytes(w) + packed_bytes(w.format, begin, w.cols));
      const int64_t done = packed += packed_bytes(w.format, n, w.cols);
      if (task == 0 && done - told >= kTellBytes) tell(told = done);
    }
  });
  return fault;
}

}  // namespace

absl::StatusOr<PackedWeights> WeightStore::prepare(const Program& program, const Plan& plan,
                                                   ThreadRunner* runner, const HostMemory& memory,
                                                   const ProgressFn& progress, const ReadFn& read) {
  const std::lock_guard lock(mutex_);
  views_.resize(program.weights.size());
  const std::vector<bool> packed = packed_in(program, plan);
  const auto bytes_of = [&](size_t i) {
    const Weight& w = program.weights[i];
    if (!packed[i] || views_[i].data != nullptr) return int64_t{0};
    return matrix_bytes(w) * w.n_experts;
  };
  uint64_t total = 0;
  for (size_t i = 0; i < program.weights.size(); ++i) total += static_cast<uint64_t>(bytes_of(i));
  if (total == 0) return views_;
  ENGINE_ASSIGN_OR_RETURN(AlignedBuffer block, AlignedBuffer::create_large(memory, total));
  int64_t buffer_bytes = 0;
  for (size_t i = 0; i < program.weights.size(); ++i) {
    const Weight& w = program.weights[i];
    if (bytes_of(i) > 0) {
      buffer_bytes = std::max(buffer_bytes, (piece_rows(w) * w.row_bytes + 63) / 64 * 64);
    }
  }
  ENGINE_ASSIGN_OR_RETURN(
      const AlignedBuffer buffers,
      AlignedBuffer::create(memory, static_cast<uint64_t>(buffer_bytes) * runner->n_threads()));
  PackedWeights views = views_;
  if (progress) progress(0, total);
  uint64_t done = 0;
  for (size_t i = 0; i < program.weights.size(); ++i) {
    const Weight& w = program.weights[i];
    const int64_t n_bytes = bytes_of(i);
    if (n_bytes == 0) continue;
    uint8_t* const to = block.data() + done;
    const auto tell = [&](int64_t n) {
      if (progress) progress(done + static_cast<uint64_t>(n), total);
    };
    ENGINE_RETURN_IF_ERROR(pack(w, runner, buffers, buffer_bytes, read, tell, to));
    views[i] = {to, engine::packed_bytes(w.format, w.rows, w.cols) / n_padded_rows(w),
                matrix_bytes(w)};
    done += static_cast<uint64_t>(n_bytes);
    if (progress) progress(done, total);
  }
  views_ = std::move(views);
  blocks_.push_back(std::move(block));
  return views_;
}

WeightStore::Need WeightStore::need(const Program& program, const Plan& plan) {
  Need need;
  const std::vector<bool> packed = packed_in(program, plan);
  for (size_t i = 0; i < program.weights.size(); ++i) {
    const Weight& w = program.weights[i];
    if (!packed[i]) {
      need.stored_bytes += static_cast<uint64_t>(w.rows * w.row_bytes * w.n_experts);
      continue;
    }
    need.packed_bytes += static_cast<uint64_t>(matrix_bytes(w) * w.n_experts);
    const int64_t piece = (piece_rows(w) * w.row_bytes + 63) / 64 * 64;
    need.buffer_bytes = std::max(need.buffer_bytes, static_cast<uint64_t>(piece));
  }
  need.buffer_bytes *= plan.key.n_threads;
  return need;
}

uint64_t WeightStore::packed_bytes() const {
  const std::lock_guard lock(mutex_);
  uint64_t n = 0;
  for (const AlignedBuffer& block : blocks_) n += block.size();
  return n;
}

}  // namespace engine
