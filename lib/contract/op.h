// The operations of a forward pass, and the arguments that a kernel of each takes.
//
// A kernel entry is `void(const void* args)` with the struct named here. Strides are in elements of the
// array unless the name says bytes. All arrays are valid for reading 64 bytes past their end.
#ifndef ENGINE_LIB_CONTRACT_OP_H_
#define ENGINE_LIB_CONTRACT_OP_H_

#include <cstdint>
#include <string_view>

#include "lib/quant/activation.h"
#include "lib/quant/format.h"

namespace engine {

enum class Op : uint8_t {
  kEmbed,        // EmbedArgs         ids -> rows of the embedding, scaled
  kRmsNorm,      // RmsNormArgs
  kQuantize,     // QuantizeArgs      f32 rows -> activation blocks
  kMatmul,       // MatmulArgs        weights · activations
  kAdd,          // AddArgs           residual and bias
  kRopeAngles,   // RopeAnglesArgs    positions -> cos, sin
  kRope,         // RopeArgs
  kKvStore,      // KvStoreArgs
  kAttention,    // AttentionArgs
  kGatedAct,     // GatedActArgs      act(gate) ⊙ up
  kSoftcap,      // SoftcapArgs
  kCheckFinite,  // CheckFiniteArgs
  kShortConv,    // ShortConvArgs     convolution over stored positions
  kMoeRoute,     // MoeRouteArgs      router scores -> chosen experts and their weights
  kMoeMatmul,    // MatmulArgs        per token and chosen expert; the rows of kMatmul
  kMoeBias,      // AddArgs           per token and chosen expert; the rows of kAdd
  kMoeCombine,   // AddArgs           weighted sum over the chosen experts; the rows of kAdd
};
inline constexpr int kNumOps = 17;
std::string_view op_name(Op op);

enum class KvType : uint8_t { kF16 = 0, kF32 = 1, kQ8_0 = 2 };
// kNone: the product of both. kSwigluClamped (gpt-oss): g = min(gate, 7), u = clamp(up, -7, 7),
// g * sigmoid(1.702 g) * (u + 1).
enum class Activation : uint8_t { kSilu = 0, kGeluTanh = 1, kSwigluClamped = 2, kNone = 3 };
// kSoftmax: p = softmax over all scores; kRenormalised: p over the sum of the chosen p, at least 2^-14;
// kSoftmaxOfChosen: softmax over the chosen scores.
enum class MoeRule : uint8_t { kSoftmax = 0, kRenormalised = 1, kSoftmaxOfChosen = 2 };
enum class RopePairing : uint8_t { kAdjacent = 0, kHalves = 1 };  // (2i, 2i+1) or (i, i + n_rot/2)

struct EmbedArgs {
  const uint8_t* weights;  // [V][row_bytes]
  int64_t row_bytes;
  int64_t width;       // E
  const int32_t* ids;  // [N]
  int64_t n_tokens;
  float scale;  // out = decoded * scale
  float* out;   // [N][out_stride]
  int64_t out_stride;
};

// out = (x * inv) * weight, inv = 1 / sqrt(sum / width + eps); sum of squares in 16 virtual lanes:
// lane i takes elements i, i+16, ... by fma in order, then the fixed tree of backends/cpu (numerics.md rule 2).
struct RmsNormArgs {
  const float* x;  // [n_rows][x_stride]
  int64_t x_stride;
  const float* weight;  // [width], nullptr = all ones
  int64_t width;
  int64_t n_rows;
  float eps;
  float* out;  // [n_rows][out_stride]; may be x
  int64_t out_stride;
};

struct QuantizeArgs {
  const float* x;  // [n_rows][x_stride]
  int64_t x_stride;
  int64_t width;  // a multiple of the block
  int64_t n_rows;
  void* out;  // [n_rows] rows of ActQ8x32 or ActQ8x256
  int64_t out_stride_bytes;
  bool* finite;  // set to false when a non-finite value was seen, else left alone
};

// out[t][r] = weights row r · act row t, for row_begin <= r < row_end.
// Layout::kRows16: weights is the packed matrix (lib/quant/pack.h) and row_bytes a sixteenth of a strip;
// row_begin is a multiple of 16, and row_end one too or the number of rows.
struct MatmulArgs {
  const uint8_t* weights;  // [rows][row_bytes]
  int64_t row_bytes;
  int64_t cols;  // K
  int64_t row_begin, row_end;
  const void* act;  // [N] rows of ActQ8x32, ActQ8x256 or float
  int64_t act_stride_bytes;
  int64_t n_tokens;
  float* out;  // [N][out_stride]
  int64_t out_stride;
};

// out = fma(b, scale, a); a scale of 1 gives a + b exactly.
struct AddArgs {
  const float* a;  // [n_rows][a_stride]
  int64_t a_stride;
  const float* b;  // [n_rows][b_stride]; stride 0 = one row for all (bias)
  int64_t b_stride;
  int64_t width;
  int64_t n_rows;
  float* out;  // [n_rows][out_stride]; may be a or b
  int64_t out_stride;
  float scale = 1.0f;
};

// angle = position * theta[i] in double; cos and sin in double by our own polynomials, then times mscale
// and rounded to f32 once.
struct RopeAnglesArgs {
  const double* theta;  // [n_pairs] radians per position
  int64_t n_pairs;
  float mscale;
  int64_t first_position;
  int64_t n_tokens;
  float* out;  // [N][2 * n_pairs]: cos[n_pairs], sin[n_pairs]
  int64_t out_stride;
};

// a' = fma(a, c, -(b*s)), b' = fma(a, s, b*c); dims from n_rot on are copied.
struct RopeArgs {
  const float* x;  // [N][n_heads * head_dim]
  int64_t x_stride;
  int64_t n_heads;
  int64_t head_dim;
  int64_t n_rot;  // even, <= head_dim
  RopePairing pairing;
  const float* angles;  // [N][n_rot]: cos[n_rot/2], sin[n_rot/2]
  int64_t angles_stride;
  int64_t n_tokens;
  float* out;  // may be x
  int64_t out_stride;
};

// KV memory: pages of kKvPagePositions positions, every layer of a page at a fixed byte offset.
// Position p lives in page p / 64, slot p % 64. K is stored transposed, so that attention scores have one
// lane per position; V is stored by position, so that its sums have one lane per head dimension.
// With kQ8_0 each kKvBlock values of a position and head (the last block may be shorter) are
//   d = max(f16(max |x| / 127), 2^-14), code = x * (1 / d) rounded to nearest even, within -127 .. 127
// in f32, and what is read is d * code, which is exact: attention is that of f32 on these values. Storing what was
// read gives the same d and codes again. K is int8 [G][Dk][64], then d as f16 [G][ceil(Dk / 32)][64]; V is int8
// [G][64][Dv], then d as f16 [G][64][ceil(Dv / 32)].
inline constexpr int64_t kKvPagePositions = 64;
inline constexpr int64_t kKvBlock = 32;
constexpr int64_t kv_blocks(int64_t head_dim) { return (head_dim + kKvBlock - 1) / kKvBlock; }
struct KvLayer {
  uint8_t* const* pages;   // page table, 64-byte aligned pages
  int64_t k_offset_bytes;  // in a page: K [G][Dk][64]
  int64_t v_offset_bytes;  // in a page: V [G][64][Dv]
};

struct KvStoreArgs {
  const float* k;  // [N][k_stride], G*Dk used
  int64_t k_stride;
  const float* v;  // [N][v_stride], G*Dv used
  int64_t v_stride;
  int64_t n_kv_heads;
  int64_t head_dim_k, head_dim_v;
  int64_t first_position;
  int64_t n_tokens;
  KvLayer kv;
  bool* finite;  // set to false when a value, or d, is not finite as it is stored
};

// Query head h reads kv head h / (H/G). Query at position i sees keys j with j <= i and, with a window,
// i - j < window. Float sequence (numerics.md rules 2, 3):
//   s[j] = (fma chain over d ascending from 0 of q[d]*k[d][j]) * scale; cap > 0: s = cap * tanh(s / cap)
//   absolute splits of kAttentionSplit positions, each: m_b = max s; e = exp(s - m_b); l_b = sum of e in 16
//   virtual lanes (j mod 16) and the fixed tree; o_b[d] = fma chain over j ascending from 0 of e*v[j][d]
//   merged in index order: m' = max(m, m_b), a = exp(m - m'), c = exp(m_b - m'),
//   l = fma(l, a, l_b*c), o[d] = fma(o[d], a, o_b[d]*c); the first split is taken as it is.
//   out[d] = o[d] * (1 / l)
// With a sink s of the head, which only adds to the denominator: m' = max(m, s), a = exp(m - m'),
//   l' = fma(l, a, exp(s - m')), out[d] = o[d] * (a / l')
inline constexpr int64_t kAttentionSplit = 256;
struct AttentionArgs {
  const float* q;  // [N][q_stride], H*Dk used
  int64_t q_stride;
  int64_t n_heads, n_kv_heads;
  int64_t head_dim_k, head_dim_v;
  float scale;
  float softcap;           // 0 = none
  int64_t window;          // 0 = none
  int64_t first_position;  // of token 0 of this call; its own key is already stored
  int64_t n_tokens;
  int64_t item_begin, item_end;  // work items t * H + h of this call, 0 .. N*H
  KvLayer kv;
  float* out;  // [N][out_stride], H*Dv used
  int64_t out_stride;
  float* scratch;  // attention_scratch_floats(head_dim_v) floats, 64-byte aligned, one per thread
  const float* sinks = nullptr;  // [H], nullptr = none
};
// Query heads that a kernel may take at once: those of one token that share a KV head.
inline constexpr int64_t kAttentionQueries = 4;
inline constexpr int64_t attention_scratch_floats(int64_t head_dim_v) {
  return kAttentionQueries * (kAttentionSplit + 2 * ((head_dim_v + 15) / 16 * 16)) + 64;
}

struct GatedActArgs {
  const float* gate;  // [n_rows][stride]
  const float* up;
  int64_t stride;
  int64_t width;  // F
  int64_t n_rows;
  Activation act;
  float* out;  // [n_rows][stride]; may be gate or up
};

// y = x * scale, then cap * tanh(y / cap) where there is a cap.
struct SoftcapArgs {
  float* x;  // [n_rows][stride], in place
  int64_t stride;
  int64_t width;
  int64_t n_rows;
  float cap;  // 0 = none
  float scale = 1.0f;
};

struct CheckFiniteArgs {
  const float* x;
  int64_t stride;
  int64_t width;
  int64_t n_rows;
  bool* finite;  // set to false when a non-finite value was seen, else left alone
};

// A causal convolution per value: out[i] = fma chain over j ascending from 0 of z[p - n_taps + 1 + j][i] *
// taps[j][i], without the terms of negative positions. z of a position is stored as the V of a layer with one
// KV head of `width` dimensions and no K, so that cutting a session back needs no state of its own.
struct ShortConvArgs {
  const float* taps;  // [n_taps][width]
  int64_t n_taps;
  int64_t width;
  int64_t first_position;  // of token 0 of this call; its own z is already stored
  int64_t n_tokens;
  KvLayer kv;
  float* out;  // [N][out_stride]
  int64_t out_stride;
};

// The k largest scores in falling order, equal ones by rising index, and the weights of their experts.
// Softmax: e = exp(score - max), sums from the first term on in the order of the scores (kSoftmax,
// kRenormalised: all, by index) or of the choice, weight = e / sum; kRenormalised then divides by the sum of
// the weights in the order of the choice, which is raised to 2^-14 where it is less.
struct MoeRouteArgs {
  const float* scores;  // [N][stride]
  int64_t stride;
  int64_t n_experts;  // X
  int64_t n_used;     // k
  MoeRule rule;
  int64_t n_tokens;
  float* out;  // [N][out_stride]: weights [k], then expert indices [k] as floats
  int64_t out_stride;
};

}  // namespace engine

#endif  // ENGINE_LIB_CONTRACT_OP_H_
