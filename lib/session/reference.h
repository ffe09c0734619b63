// The reference mode: executes a program straightforwardly, deciding everything anew at every call.
#ifndef ENGINE_LIB_SESSION_REFERENCE_H_
#define ENGINE_LIB_SESSION_REFERENCE_H_

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "lib/base/host_memory.h"
#include "lib/base/status.h"
#include "lib/base/thread_runner.h"
#include "lib/contract/kernel.h"
#include "lib/contract/step.h"
#include "lib/session/hooks.h"
#include "lib/session/kv_cache.h"
#include "lib/session/profile.h"

namespace engine {

// Readable, and the oracle of all other modes: values live in a map by name and are allocated per call,
// every kernel is resolved at every step, weights are read as stored, and a single token's matmul is not
// split over threads. Steps over several tokens may be.
class Reference {
 public:
  // All references must outlive the executor.
  Reference(const Program& program, Target target, KvCache* kv, ThreadRunner* runner,
            HostMemory memory);

  // May be null, and then nothing fires; must outlive the executor, or be set anew.
  void set_hooks(Hooks* hooks) { hooks_ = hooks; }
  // As of resolve_kernel.
  void set_kernel_pattern(std::string pattern) { kernel_pattern_ = std::move(pattern); }
  // May be null. Its labels must be those of labels().
  void set_profile(Profile* profile) { profile_ = profile; }
  std::vector<ProfileLabel> labels() const;

  // Runs the preamble and all layers for ids at positions first.. ; pages must be reserved. The values stay
  // until the next call. `should_stop` is asked between steps: true ends with kCancelled.
  absl::Status run_layers(std::span<const int32_t> ids, int64_t first_position,
                          bool (*should_stop)(void*), void* stop_data);
  // Final norm and head for rows of the last run_layers; logits is [n_rows][n_vocab]. Hooks fire in both,
  // and what they return is returned.
  absl::Status run_head(int64_t first_row, int64_t n_rows, float* logits);
  // Final steps on rows of the caller, [n_rows][n_embd]; no hooks. Spoils the values of the last run_layers.
  absl::Status unembed(const float* rows, int64_t n_rows, float* logits);

  // Executions per row of kernel_rows().
  std::span<const uint64_t> counts() const { return counts_; }

 private:
  struct Call {  // what the steps of one call share
    std::span<const int32_t> ids;
    int64_t first_position = 0;
    int64_t n_tokens = 0;
    int64_t row_offset = 0;  // first row of the residual slot that is read
  };

  absl::Status run_final(const Call& call, float* logits);
  absl::Status run_hooked(const Step& step, const Call& call);
  absl::Status fire(Site site, int32_t slot_id, const Step& step, const Call& call);
  absl::Status run_step(const Step& step, const Call& call);
  absl::StatusOr<uint8_t*> output(int32_t slot_id, int64_t n_tokens);
  absl::StatusOr<float*> output_floats(int32_t slot_id, int64_t n_tokens);
  const uint8_t* input(int32_t slot_id, const Call& call) const;
  const float* input_floats(int32_t slot_id, const Call& call) const;
  const float* weight_floats(int32_t weight_id) const;
  int64_t stride(int32_t slot_id) const;  // in floats
  int64_t stride_bytes(int32_t slot_id) const;

  // Calls run(begin, end) over parts of [0, n_items): one part per thread when parallel, else one part. A part
  // never cuts a reduction, so the split cannot change a bit. Runners give every task the default float state.
  template <class F>
  void spread(int64_t n_items, bool parallel, F&& run) {
    const int64_t n_parts =
        parallel ? std::min<int64_t>(n_items, static_cast<int64_t>(runner_->n_threads())) : 1;
    if (n_parts <= 1) {
      run(int64_t{0}, n_items);
      return;
    }
    parallel_for(*runner_, static_cast<uint32_t>(n_parts), [&](uint32_t part) {
      run(n_items * part / n_parts, n_items * (part + 1) / n_parts);
    });
  }

  absl::Status embed(KernelEntry entry, const Step& step, const Call& call);
  absl::Status rms_norm(KernelEntry entry, const Step& step, const Call& call);
  absl::Status quantize(KernelEntry entry, const Step& step, const Call& call);
  absl::Status matmul(KernelEntry entry, const Step& step, const Call& call);
  absl::Status add(KernelEntry entry, const Step& step, const Call& call);
  absl::Status rope_angles(KernelEntry entry, const Step& step, const Call& call);
  absl::Status rope(KernelEntry entry, const Step& step, const Call& call);
  absl::Status kv_store(KernelEntry entry, const Step& step, const Call& call);
  absl::Status attention(KernelEntry entry, const Step& step, const Call& call);
  absl::Status gated_act(KernelEntry entry, const Step& step, const Call& call);
  absl::Status softcap(KernelEntry entry, const Step& step, const Call& call);
  absl::Status check_finite(KernelEntry entry, const Step& step, const Call& call);
  absl::Status short_conv(KernelEntry entry, const Step& step, const Call& call);
  // reference_moe.cc
  absl::Status moe_route(KernelEntry entry, const Step& step, const Call& call);
  absl::Status moe_matmul(KernelEntry entry, const Step& step, const Call& call);
  absl::Status moe_bias(KernelEntry entry, const Step& step, const Call& call);
  absl::Status moe_combine(KernelEntry entry, const Step& step, const Call& call);

  const Program& program_;
  const Target target_;
  KvCache* const kv_;
  ThreadRunner* const runner_;
  const HostMemory memory_;
  absl::flat_hash_map<std::string, AlignedBuffer> values_;  // of the current call, by slot name
  std::vector<uint64_t> counts_;
  Hooks* hooks_ = nullptr;
  std::string kernel_pattern_;
  Profile* profile_ = nullptr;
  size_t step_index_ = 0;     // in the program, for the profile
  bool is_prefill_ = false;   // the last run_layers had several tokens
  std::vector<int32_t> ids_;  // of the last run_layers
  int64_t first_position_ = 0;
};

}  // namespace engine

#endif  // ENGINE_LIB_SESSION_REFERENCE_H_
