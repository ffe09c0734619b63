// A plan ready to run: kernel entries, weights and arena addresses in place of indices. It knows no session:
// the sequences of a call bring their KV pages and hooks along.
#ifndef ENGINE_LIB_SESSION_BOUND_PLAN_H_
#define ENGINE_LIB_SESSION_BOUND_PLAN_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "lib/base/host_memory.h"
#include "lib/base/status.h"
#include "lib/base/thread_runner.h"
#include "lib/contract/packed.h"
#include "lib/contract/plan.h"
#include "lib/contract/step.h"
#include "lib/session/sequence_rows.h"

namespace engine {

// Where the rows of a slot lie: in the arena, or one row in the scratch of whatever thread runs.
struct Place {
  uint8_t* base = nullptr;  // arena, or the caller's memory
  int64_t stride_bytes = 0;
  int64_t scratch_offset =
      -1;  // >= 0: the slot is eliminated and has a row in the thread's scratch

  uint8_t* row(uint8_t* scratch, int64_t t) const {
    return scratch_offset >= 0 ? scratch + scratch_offset : base + t * stride_bytes;
  }
  float* floats(int64_t t = 0) const { return reinterpret_cast<float*>(base + t * stride_bytes); }
  float* row_floats(uint8_t* scratch, int64_t t) const {
    return reinterpret_cast<float*>(row(scratch, t));
  }
  int64_t stride() const { return stride_bytes / static_cast<int64_t>(sizeof(float)); }
};

struct BoundPart {
  const Step* step = nullptr;
  KernelEntry entry = nullptr;
  int32_t kernel = -1;                   // row, for the counters
  const Weight* weight = nullptr;        // nullptr: none
  const uint8_t* weight_data = nullptr;  // in the layout that the kernel reads
  int64_t weight_row_bytes = 0;
  int64_t weight_matrix_bytes = 0;  // from an expert's matrix to the next one's
  const RopeRule* rope = nullptr;
  KvLayer kv{};  // kKvStore, kAttention, kShortConv; pages are the sequence's
  const KvGeometry* geometry = nullptr;  // kKvStore, kAttention, kShortConv
  ActType act = ActType::kF32;           // of out
  Place in0, in1, out;

  const float* weight_floats() const { return reinterpret_cast<const float*>(weight_data); }
};

// Rows [begin, end) of a launch's member.
struct RowRange {
  int32_t part;
  int64_t begin, end;
};

struct BoundFire {
  Site site;
  int32_t part;  // whose output; of the sites before a step: whose input
};

// The part of a launch's pieces that a thread still has: [front, back) in one word, on a line of its own.
struct alignas(64) PieceCursor {
  std::atomic<uint64_t> range{0};

  void reset(uint32_t front, uint32_t back) {
    range.store(uint64_t{front} << 32 | back, std::memory_order_relaxed);
  }
  uint32_t left() const {
    const uint64_t r = range.load(std::memory_order_relaxed);
    return static_cast<uint32_t>(r) - static_cast<uint32_t>(r >> 32);
  }
  // The next piece from the front, or from the back; -1 when there is none.
  int64_t take(bool from_back) {
    uint64_t r = range.load(std::memory_order_relaxed);
    for (;;) {
      const auto front = static_cast<uint32_t>(r >> 32), back = static_cast<uint32_t>(r);
      if (front >= back) return -1;
      const uint64_t taken = from_back ? r - 1 : r + (uint64_t{1} << 32);
      if (range.compare_exchange_weak(r, taken, std::memory_order_relaxed)) {
        return from_back ? back - 1 : front;
      }
    }
  }
};

// What the steps of one call share.
struct ExecContext {
  std::span<SequenceRows> sequences;  // their rows follow each other without a gap
  int64_t n_tokens = 0;               // of all sequences
  ThreadRunner* runner = nullptr;
  uint8_t* scratch = nullptr;      // of all threads
  int64_t scratch_bytes = 0;       // of one
  PieceCursor* cursors = nullptr;  // one per thread
  CallProgress* progress = nullptr;

  uint8_t* thread_scratch(uint32_t index) const {
    return scratch + static_cast<int64_t>(index) * scratch_bytes;
  }
  SequenceRows& sequence_of(int64_t row) const {
    size_t i = 0;
    while (row >= sequences[i].first_row + sequences[i].n_rows) ++i;
    return sequences[i];
  }
  // Whether the work of the call is wanted no more, so that a long step may end early and leave garbage.
  bool is_abandoned() const {
    for (const SequenceRows& s : sequences) {
      if (s.is_in() && !s.stop_asked()) return false;
    }
    return true;
  }
  // For loops inside long launches, every few milliseconds: the first thread says that the call is alive; true when
  // it is abandoned.
  bool should_leave(const uint8_t* own_scratch) const {
    if (progress != nullptr && scratch_bytes > 0 && own_scratch == scratch) progress->beat();
    return is_abandoned();
  }
};

// Calls run(sequence, begin, end) for each sequence that has rows of the call in [begin, end).
template <class F>
void for_sequences(const ExecContext& context, int64_t begin, int64_t end, F&& run) {
  for (SequenceRows& s : context.sequences) {
    const int64_t b = std::max(begin, s.first_row), e = std::min(end, s.first_row + s.n_rows);
    if (b < e) run(s, b, e);
  }
}

// Calls is_finite(begin, end) on rows; when it says no, on every single one of them, which must do no harm, to
// find whose they are.
template <class F>
void check_rows(const ExecContext& context, int64_t begin, int64_t end, F&& is_finite) {
  if (is_finite(begin, end)) return;
  for (int64_t t = begin; t < end; ++t) {
    if (!is_finite(t, t + 1)) context.sequence_of(t).finite.fall();
  }
}

inline KvLayer kv_of(const BoundPart& part, const SequenceRows& sequence) {
  return {sequence.pages, part.kv.k_offset_bytes, part.kv.v_offset_bytes};
}

struct BoundStep {
  void (*run)(const BoundStep& step, ExecContext& context) = nullptr;
  const PlanStep* plan = nullptr;
  int32_t layer = -1;
  int32_t index = 0;  // in the form, for the profile
  std::vector<BoundPart> parts;
  // Of a launch over rows: pieces in the order of memory, and where each thread's share begins; the last entry is
  // the end.
  std::vector<RowRange> pieces;
  std::vector<uint32_t> shares;
  std::vector<BoundFire> before, after;  // active sites only
};

// Executors by kind; exec_single.cc, exec_moe.cc and exec_fused.cc.
using StepExecutor = void (*)(const BoundStep& step, ExecContext& context);
StepExecutor single_executor(Op op);
StepExecutor moe_executor(Op op);  // of the kMoe* ops
StepExecutor fused_executor(StepKind kind);

// Calls run(begin, end, scratch) over parts of [0, n): one part per thread when the step is split, else one.
template <class F>
void spread(const BoundStep& step, ExecContext& context, int64_t n, F&& run) {
  const int64_t n_threads = static_cast<int64_t>(context.runner->n_threads());
  const int64_t n_parts = step.plan->split == Split::kNone ? 1 : (n < n_threads ? n : n_threads);
  if (n_parts <= 1) {
    run(int64_t{0}, n, context.thread_scratch(0));
    return;
  }
  parallel_for(*context.runner, static_cast<uint32_t>(n_parts), [&](uint32_t i) {
    run(n * i / n_parts, n * (i + 1) / n_parts, context.thread_scratch(i));
  });
}

// Rows of one thread's launch between two looks at whether it is still wanted: some milliseconds of a large model.
inline constexpr int64_t kRowsAtOnce = 1024;
inline constexpr int64_t kDecodeRowsAtOnce = 16384;  // of one token

// Calls run(piece, scratch) for all pieces of rows, or ends early when the call is abandoned. A thread streams
// through its own share from the front; one that is done helps from the back of the share with most left, since
// cores are not equally fast (neighbours on a shared machine, clocks). Which thread runs a piece changes no bit.
template <class F>
void spread_rows(const BoundStep& step, ExecContext& context, F&& run) {
  const auto n_shares = static_cast<uint32_t>(step.shares.size()) - 1;
  if (n_shares == 1) {
    const int64_t at_once = context.n_tokens == 1 ? kDecodeRowsAtOnce : kRowsAtOnce;
    uint8_t* const scratch = context.thread_scratch(0);
    for (const RowRange& piece : step.pieces) {
      for (int64_t begin = piece.begin; begin < piece.end; begin += at_once) {
        run(RowRange{piece.part, begin, std::min(piece.end, begin + at_once)}, scratch);
        if (context.should_leave(scratch)) return;
      }
    }
    return;
  }
  for (uint32_t i = 0; i < n_shares; ++i) {
    context.cursors[i].reset(step.shares[i], step.shares[i + 1]);
  }
  parallel_for(*context.runner, n_shares, [&](uint32_t i) {
    PieceCursor* from = &context.cursors[i];
    for (bool own = true;; own = false) {
      for (int64_t p = from->take(!own); p >= 0; p = from->take(!own)) {
        run(step.pieces[static_cast<size_t>(p)], context.thread_scratch(i));
        if (context.should_leave(context.thread_scratch(i))) return;
      }
      from = std::max_element(
          context.cursors, context.cursors + n_shares,
          [](const PieceCursor& a, const PieceCursor& b) { return a.left() < b.left(); });
      if (from->left() == 0) return;
    }
  });
}

// One form, ready to run.
struct BoundForm {
  int64_t n_tokens = 0;
  int64_t n_head_rows = 0;
  uint8_t* scratch = nullptr;
  int64_t scratch_bytes = 0;
  std::vector<BoundStep> body;  // preamble and layers
  std::vector<BoundStep> final_steps;
  std::vector<Place*> residual_rows;  // in final_steps: point at the first row of a call
  std::vector<Place*> logits_rows;    // in final_steps: point at the caller's memory
  Place residual;
};

class BoundPlan {
 public:
  // kPlan when the plan does not fit the program or the runner; nothing is kept then.
  static absl::StatusOr<std::unique_ptr<BoundPlan>> bind(std::shared_ptr<const Plan> plan,
                                                         const Program& program,
                                                         const PackedWeights& packed,
                                                         const ThreadRunner& runner,
                                                         const HostMemory& memory);
  const Plan& plan() const { return *plan_; }
  const std::shared_ptr<const Plan>& shared_plan() const { return plan_; }
  PieceCursor* cursors() const { return cursors_.get(); }
  BoundForm& form(int64_t n_tokens) { return n_tokens == 1 ? decode_ : prefill_; }
  const BoundForm& decode() const { return decode_; }
  const BoundForm& prefill() const { return prefill_; }

 private:
  BoundPlan() = default;
  std::shared_ptr<const Plan> plan_;
  AlignedBuffer arena_;
  std::unique_ptr<PieceCursor[]> cursors_;
  BoundForm decode_, prefill_;
};

}  // namespace engine

#endif  // ENGINE_LIB_SESSION_BOUND_PLAN_H_
