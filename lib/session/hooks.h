// The hooks of one session: what is registered, what fires for which rows, what it changes and counts.
#ifndef ENGINE_LIB_SESSION_HOOKS_H_
#define ENGINE_LIB_SESSION_HOOKS_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lib/base/host_memory.h"
#include "lib/base/status.h"
#include "lib/contract/site.h"
#include "lib/contract/step.h"
#include "lib/session/token_history.h"

namespace engine {

// The numbers of ENGINE_HOOK_*, ENGINE_POSITIONS_* and ENGINE_TOKENS_* in engine.h.
enum class HookAction : int32_t {
  kCapture = 1,
  kRead = 2,
  kWrite = 3,
  kAdd = 10,
  kScale,
  kSet,
  kZero,
  kInterpolate,
  kProjectOut,
  kClamp,
  kReplace,
  kLowRank,
};
enum class PositionSelect : int32_t { kAll = 0, kList, kRange, kLastOfPrompt, kGenerated, kEvery };
enum class TokenKind : int32_t { kAuto = 0, kPrompt, kPromptPart, kGenerated };

// As engine_capture_record, byte for byte (asserted in lib/api).
struct CaptureRecord {
  int64_t position;
  int32_t sequence;
  int32_t token_id;
  int32_t site;
  int32_t layer;
};

// What a callback is told; lives during the call.
struct HookEvent {
  Site site;
  int32_t layer;
  int32_t sequence;
  bool generated;
  int64_t n_rows;
  int64_t width;
  const int32_t* token_ids;  // [n_rows]
  const int64_t* positions;  // [n_rows]
};

// A hook as it is asked for; the meanings are those of engine_hook_params.
struct HookSpec {
  HookAction action = HookAction::kCapture;
  std::string site;
  std::vector<int32_t> layers;  // empty: the range; both 0 = all
  int32_t layer_begin = 0, layer_end = 0;
  PositionSelect select = PositionSelect::kAll;
  std::vector<int64_t> positions;
  int64_t position_begin = 0, position_end = 0, position_step = 0;
  std::vector<int32_t> heads;      // empty = all
  std::vector<int32_t> sequences;  // empty = all
  bool capture_post = false, capture_ring = false;
  std::vector<float> values;
  std::vector<CaptureRecord> records;
  float alpha = 1.0f, low = 0.0f, high = 0.0f;
  int64_t rank = 0;
  float* capture = nullptr;  // [capture_rows][width], the caller's
  CaptureRecord* capture_records = nullptr;
  int64_t capture_rows = 0;
  int32_t (*callback)(void* user, const HookEvent& event, float* values) = nullptr;
  void* user = nullptr;
  std::shared_ptr<const void>
      owned;  // what `user` points to, where the hook shall keep it; else null
  uint64_t scope = 0;
};

struct HookStats {
  uint64_t calls = 0, positions = 0, prefill_positions = 0, decode_positions = 0;
  uint64_t writes = 0, rows_captured = 0, rows_dropped = 0;
};

// The tokens that a chunk of a decode call brings.
struct HookRows {
  const int32_t* ids = nullptr;  // [n_rows]
  int64_t n_rows = 0;
  int64_t first_position = 0;
};

// The active sites of a layer range, and the shape checks that engine_plan_create shares with registration.
// Adds to masks (one per layer) and *global. kArgument for an unknown site (with near names), a layer that
// does not exist or has no such site.
absl::Status select_sites(const Program& program, const HookSpec& spec,
                          std::vector<SiteMask>* layer_masks, SiteMask* global);

// Computes raw material of the attention sites beside the kernel.
class AttentionProbe {
 public:
  virtual ~AttentionProbe() = default;
  // Scores of query `row` of the call and one query head against keys 0 .. position: scaled, soft-capped,
  // -infinity outside the window. out: [position + 1].
  virtual void scores(int64_t row, int64_t head, float* out) const = 0;
  // The logit of each query head that only adds to the softmax's denominator; nullptr = none.
  virtual const float* sinks() const { return nullptr; }
};

// Serial, as its session. Nothing is allocated but in add(), remove() and the scope functions.
class Hooks {
 public:
  // `program` and what `memory` is made of must outlive the hooks. max_rows: tokens of the largest chunk.
  Hooks(const Program& program, int64_t n_ctx, int64_t max_rows, int32_t sequence,
        HostMemory memory = {});
  ~Hooks();
  Hooks(const Hooks&) = delete;
  Hooks& operator=(const Hooks&) = delete;

  // Into a new set of the same program and limits: the numbering of generated tokens, and with_hooks all hooks but
  // captures, with their numbers, scopes and counters. Callbacks are called for both sets. kMemory.
  absl::Status copy(const Hooks& from, bool with_hooks);

  // kArgument naming what does not fit; the set stays as it was.
  absl::StatusOr<uint64_t> add(HookSpec spec);
  absl::Status remove(uint64_t id);
  uint64_t open_scope();
  absl::Status close_scope(uint64_t scope);
  // remove() and close_scope() in two halves, for a caller who does between them what can fail: from
  // begin_* on masks() leaves the hooks out; end_removal() removes them, or keeps everything as it was.
  absl::Status begin_remove(uint64_t id);
  absl::Status begin_close_scope(uint64_t scope);
  void end_removal(bool done);
  // Of completed calls.
  absl::StatusOr<HookStats> stats(uint64_t id) const;
  bool empty() const;
  // Sites that have a hook, whatever its positions: the hook set of a plan.
  void masks(std::vector<SiteMask>* layer_masks, SiteMask* global) const;

  // A decode call of n tokens from `first_position` on. Afterwards either commit() or roll_back(), which
  // takes counters and capture cursors back. kAuto: one token, not at position 0, is generated, else a whole
  // prompt. Generated tokens are numbered from the end of the last prompt, by position, so that the number
  // of a position does not depend on calls, nor on rewinding behind the prompt.
  void begin_call(TokenKind kind, int64_t first_position, int64_t n_tokens);
  void commit();
  void roll_back();
  // Of the call that has begun: the hooks that could write in it. Writing callbacks, and selectors that depend on
  // where a prompt ends, are opaque where they could fire.
  WriterSet writer_set() const;
  // Of a call of that kind; not kAuto.
  WriterSet writer_set(TokenKind kind) const;
  // Position of generated token 0.
  int64_t prompt_end() const;
  void set_prompt_end(int64_t position);

  // In a call: whether a hook of this site and layer exists; then fire. rows: [n_rows][stride] floats of
  // which `width` are the value; changed in place by writers. kHookFailed, naming site and layer, when a
  // callback fails.
  bool wants(Site site, int32_t layer) const;
  absl::Status fire(Site site, int32_t layer, const HookRows& rows, float* values, int64_t stride);
  // The attention sites; the width is heads * n_ctx. A callback is called for one row at a time.
  absl::Status fire_attention(Site site, int32_t layer, const HookRows& rows,
                              const AttentionProbe& probe);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace engine

#endif  // ENGINE_LIB_SESSION_HOOKS_H_
