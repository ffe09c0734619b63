// A plan: what a session executes per token, decided once. Indices and metadata only, no pointers into a
// model, a session or an arena; plan/compile builds it, session/interpreter obeys it.
//
// Numbering. The plan steps are folded into one time line: the preamble's steps, then as many as the
// longest layer has, then the final ones. Step i of every layer has the same time, so a value that one layer
// makes and uses up has one lifetime for all layers, and memory is shared between values of a layer.
#ifndef ENGINE_LIB_CONTRACT_PLAN_H_
#define ENGINE_LIB_CONTRACT_PLAN_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "lib/contract/kernel.h"
#include "lib/contract/site.h"
#include "lib/contract/step.h"

namespace engine {

enum class Mode : uint8_t { kReference = 1, kPlanned = 2, kPlannedFused = 3 };  // as ENGINE_MODE_*
std::string_view kv_type_name(KvType type);  // "f16", "f32", "q8_0"
std::string_view mode_name(Mode mode);       // "reference", "planned", "planned-fused"

// The fusions F1..F6 of plan-and-hooks.md section 4, as bits.
enum Fusion : uint32_t {
  kF1 = 1u << 0,  // norm + quantise
  kF2 =
      1u
      << 1,  // residual add + norm (+ quantise), with the post-norm before the add where there is one
  kF3 = 1u << 2,  // q, k, v in one launch; gate and up in one launch
  kF4 = 1u << 3,  // q/k norm and rope inside the KV store and the attention
  kF5 = 1u << 4,  // output and down projections add into the residual
  kF6 = 1u << 5,  // act(gate) * up and quantise in the gate/up launch
};
inline constexpr int kNumFusions = 6;
const char* fusion_name(int index);  // 0 .. 5: "F1 norm+quantize" ...
inline constexpr uint32_t kAllFusions = (1u << kNumFusions) - 1;

// Which pattern of execution a plan step is. Every kind runs the kernels of its program steps on parts
// that fit a core's cache; values between them live in the thread's scratch, not in the arena.
enum class StepKind : uint8_t {
  kSingle,       // one program step
  kNormRows,     // [post-norm,] [add,] norm [, quantise]... per token row (F1, F2)
  kMatmulGroup,  // several matmuls, each [+ bias], as one launch over their concatenated rows (F3)
  kMatmulAdd,    // matmul [+ bias], then add to the residual (F5)
  kGateUp,      // gate matmul [+ bias], up matmul [+ bias], act, [quantise] (F6, which includes F3)
  kStoreKv,     // [norm,] rope of k, then KV store (F4)
  kAttentionQ,  // [norm,] rope of q, then attention (F4)
};
std::string_view step_kind_name(StepKind kind);

// How a launch is divided over threads; never through a reduction.
enum class Split : uint8_t {
  kNone,    // the caller's thread alone
  kRows,    // output rows, equal bytes per thread, at multiples of kRowGrain
  kTokens,  // tokens of the call
  kItems,   // attention: pairs of token and query head
};
std::string_view split_name(Split split);
inline constexpr int64_t kRowGrain = 16;
// Rows of a part in kMatmulAdd and kGateUp: whole quantisation blocks of the widest kind. One token's values are
// small, and long parts keep the stream of weights going; with many they shall stay in a core's cache.
inline constexpr int64_t tile_rows(int64_t n_tokens) { return n_tokens == 1 ? 2048 : 256; }
// Tokens of an expert whose activations are laid side by side for one call of kMoeMatmul's kernel: two tiles of AMX,
// and with 2048 columns still a small part of a core's cache.
inline constexpr int64_t kExpertTokens = 32;

struct PlanStep {
  StepKind kind = StepKind::kSingle;
  uint32_t fusions = 0;  // bits that this step realises
  Split split = Split::kNone;
  std::vector<int32_t>
      steps;  // indices into the section's program steps (preamble, layers[l] or final)
  std::vector<int32_t> kernels;  // row of kernel_rows() per entry of `steps`
};

struct PlanLayer {
  std::vector<PlanStep> steps;
  uint32_t fusions = 0;  // bits on in this layer
  std::array<std::string, kNumFusions>
      why_off;  // reasons of each that is off, also at one of its places only; "" = on wherever it could be
};

struct Region {
  int32_t slot = -1;   // slot of the program, -1 = the threads' scratch
  int64_t offset = 0;  // bytes, a multiple of 64
  int64_t bytes = 0;
  int32_t first_step = 0;  // in folded time, inclusive
  int32_t last_step = 0;
};

// Slots that live in nobody's arena have no region: those that a fusion eliminated, and the logits, which
// are the caller's memory unless a step needs them afterwards.
struct Arena {
  int64_t bytes = 0;
  std::vector<Region> regions;       // by offset, then slot
  std::vector<int32_t> slot_region;  // per slot of the program: index into regions, -1 = eliminated
  int64_t thread_scratch_bytes =
      0;  // per thread, a multiple of 64; region with slot -1 holds n_threads of them
};

// One form of the plan: for calls of up to n_tokens.
struct PlanForm {
  int64_t n_tokens = 1;
  int64_t n_head_rows = 1;  // rows that the final steps take at once
  std::vector<PlanStep> preamble;
  std::vector<PlanLayer> layers;
  std::vector<PlanStep> final_steps;
  Arena arena;
};

// Which kernel runs for a weight, and why. One per (weight, op) pair: an embedding that is also the head
// has two.
struct TensorChoice {
  int32_t weight = -1;
  Op op = Op::kMatmul;
  int32_t kernel = -1;     // row
  int32_t runner_up = -1;  // row, -1 = none
  std::string reason;
};

// What a plan is made for; equal keys give equal plans.
struct PlanKey {
  Mode mode = Mode::kPlannedFused;
  Target target = Target::kScalar;
  KvType kv = KvType::kF16;
  int64_t n_ctx = 0;
  int64_t prefill_chunk = 0;
  uint32_t n_threads = 1;
  uint32_t fusions = kAllFusions;     // fusions that may be used
  bool packed = true;                 // weights may be packed in the layout of the kernel
  std::string kernel_pattern;         // "" = free choice; see resolve_kernel
  std::vector<SiteMask> layer_sites;  // per layer; empty = no hooks
  SiteMask global_sites = 0;
  friend bool operator==(const PlanKey&, const PlanKey&) = default;
  SiteMask sites(int32_t layer) const {
    if (layer < 0) return global_sites;
    return layer_sites.empty() ? 0 : layer_sites[static_cast<size_t>(layer)];
  }
};

struct KvLayout {
  int64_t page_positions = kKvPagePositions;
  int64_t page_bytes = 0;
  std::vector<int64_t> k_offset_bytes, v_offset_bytes;  // in a page, per layer
  int64_t bytes_per_position = 0;
};

struct Plan {
  PlanKey key;
  PlanForm decode;   // n_tokens 1
  PlanForm prefill;  // n_tokens prefill_chunk
  std::vector<TensorChoice> tensors;
  KvLayout kv;
};

}  // namespace engine

#endif  // ENGINE_LIB_CONTRACT_PLAN_H_
