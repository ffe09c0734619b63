// A plan bound to a session: kernel entries, weights and arena addresses in place of indices.
#ifndef ENGINE_LIB_SESSION_BOUND_PLAN_H_
#define ENGINE_LIB_SESSION_BOUND_PLAN_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "lib/base/host_memory.h"
#include "lib/base/status.h"
#include "lib/base/thread_runner.h"
#include "lib/contract/packed.h"
#include "lib/contract/plan.h"
#include "lib/contract/step.h"
#include "lib/session/kv_cache.h"

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
  const RopeRule* rope = nullptr;
  const double* theta = nullptr;         // of rope, for this session's context
  KvLayer kv;                            // kKvStore, kAttention, kShortConv
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
  const int32_t* ids = nullptr;
  int64_t first_position = 0;
  int64_t n_tokens = 0;
  ThreadRunner* runner = nullptr;
  uint8_t* scratch = nullptr;      // of all threads
  int64_t scratch_bytes = 0;       // of one
  PieceCursor* cursors = nullptr;  // one per thread
  std::atomic<bool> finite{true};

  uint8_t* thread_scratch(uint32_t index) const {
    return scratch + static_cast<int64_t>(index) * scratch_bytes;
  }
  void found(bool is_finite) {
    if (!is_finite) finite.store(false, std::memory_order_relaxed);
  }
};

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

// Calls run(piece, scratch) for all pieces of rows. A thread streams through its own share from the front; one
// that is done helps from the back of the share with most left, since cores are not equally fast (neighbours
// on a shared machine, clocks). Which thread runs a piece changes no bit.
template <class F>
void spread_rows(const BoundStep& step, ExecContext& context, F&& run) {
  const auto n_shares = static_cast<uint32_t>(step.shares.size()) - 1;
  if (n_shares == 1) {
    for (const RowRange& piece : step.pieces) run(piece, context.thread_scratch(0));
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
  // kPlan when the plan does not fit the program, the cache or the runner; nothing is kept then.
  static absl::StatusOr<std::unique_ptr<BoundPlan>> bind(std::shared_ptr<const Plan> plan,
                                                         const Program& program,
                                                         const PackedWeights& packed, KvCache* kv,
                                                         const ThreadRunner& runner,
                                                         const HostMemory& memory);
  const Plan& plan() const { return *plan_; }
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
