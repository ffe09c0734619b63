// What follows from a program by arithmetic alone, shared by the compiler and the executors.
#ifndef ENGINE_LIB_CONTRACT_DERIVE_H_
#define ENGINE_LIB_CONTRACT_DERIVE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "lib/contract/kernel.h"
#include "lib/contract/plan.h"
#include "lib/contract/step.h"

namespace engine {

// What resolve_kernel is asked for a step. kMoeMatmul runs the rows of kMatmul, kMoeBias and kMoeCombine those
// of kAdd.
KernelKey kernel_key(const Program& program, const Step& step, KvType kv);

// Bytes of n values of an activation type, n whole blocks.
int64_t act_bytes(ActType type, int64_t n);

// Bytes of a position's K or V of one head.
int64_t kv_row_bytes(KvType type, int64_t head_dim);

// Offsets of every layer in a page, each a multiple of 64 bytes.
KvLayout kv_layout(const std::vector<KvGeometry>& layers, KvType type);

// Bytes of thread scratch that a plan step of a section needs for n_tokens, a multiple of 64.
int64_t step_scratch_bytes(const Program& program, const std::vector<Step>& section,
                           const PlanStep& step, int64_t n_tokens);

// Bytes of weights that a step reads for one token: rows of a matrix, a row of the embedding.
int64_t step_weight_bytes(const Program& program, const Step& step);

// "a NaN or an infinity appeared in layer 3 (rms_norm)"
std::string non_finite_text(const Step& step);

}  // namespace engine

#endif  // ENGINE_LIB_CONTRACT_DERIVE_H_
