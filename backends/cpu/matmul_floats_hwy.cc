// Vector matmul rows of the float formats F32, F16 and BF16.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/matmul_floats_hwy.cc"
#include "backends/cpu/hwy_targets.h"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target.h
#include <cstring>

#include "backends/cpu/lane_tree-inl.h"
#include "hwy/cache_control.h"
#include "lib/contract/op.h"

#if ENGINE_HWY_FMA_TARGET
HWY_BEFORE_NAMESPACE();
namespace engine::HWY_NAMESPACE {

struct WeightF32 {
  using Element = float;
  static HWY_INLINE VF load(const float* p) { return hn::LoadU(DF(), p); }
};
struct WeightF16 {
  using Element = hwy::float16_t;
  static HWY_INLINE VF load(const hwy::float16_t* p) {
    return hn::PromoteTo(DF(), hn::LoadU(hn::Rebind<hwy::float16_t, DF>(), p));
  }
};
struct WeightBf16 {
  using Element = uint16_t;
  static HWY_INLINE VF load(const uint16_t* p) {
    const hn::RebindToUnsigned<DF> d32;
    return hn::BitCast(
        DF(), hn::ShiftLeft<16>(hn::PromoteTo(d32, hn::LoadU(hn::Rebind<uint16_t, DF>(), p))));
  }
};

// R rows times T tokens; the float sequence is that of matmul_scalar.cc, matmul_floats.
template <class Weight, int R, int T>
HWY_INLINE void dot_tile(const MatmulArgs& args, int64_t r, int64_t t0) {
  using Element = typename Weight::Element;
  constexpr int kV = static_cast<int>(kTreeVectors);
  constexpr int kN = static_cast<int>(kLanesF);
  const DF df;
  const Element* w[R];
  for (int i = 0; i < R; ++i) {
    w[i] = reinterpret_cast<const Element*>(args.weights + (r + i) * args.row_bytes);
  }
  const float* x[T];
  for (int t = 0; t < T; ++t) {
    x[t] = reinterpret_cast<const float*>(static_cast<const uint8_t*>(args.act) +
                                          (t0 + t) * args.act_stride_bytes);
  }
  VF lanes[R][T][kV];
  HWY_UNROLL(8)
  for (int i = 0; i < R; ++i) {
    HWY_UNROLL(8)
    for (int t = 0; t < T; ++t) {
      HWY_UNROLL(8)
      for (int v = 0; v < kV; ++v) lanes[i][t][v] = hn::Zero(df);
    }
  }
  const int64_t whole = args.cols / kVirtualLanes * kVirtualLanes;
  for (int64_t k = 0; k < whole; k += kVirtualLanes) {
    HWY_UNROLL(8)
    for (int v = 0; v < kV; ++v) {
      HWY_UNROLL(8)
      for (int i = 0; i < R; ++i) {
        const VF weight = Weight::load(w[i] + k + v * kN);
        HWY_UNROLL(8)
        for (int t = 0; t < T; ++t) {
          lanes[i][t][v] = hn::MulAdd(weight, hn::LoadU(df, x[t] + k + v * kN), lanes[i][t][v]);
        }
      }
    }
  }
  const int64_t rest = args.cols - whole;
  if (rest > 0) {
    // Lanes without an element keep their value: adding a zero product could turn -0 into +0.
    HWY_UNROLL(8)
    for (int v = 0; v < kV; ++v) {
      const int64_t in_vector = rest - v * kN;
      const auto used = hn::FirstN(df, static_cast<size_t>(in_vector > 0 ? in_vector : 0));
      HWY_UNROLL(8)
      for (int i = 0; i < R; ++i) {
        const VF weight = Weight::load(w[i] + whole + v * kN);
        HWY_UNROLL(8)
        for (int t = 0; t < T; ++t) {
          const VF sum = hn::MulAdd(weight, hn::LoadU(df, x[t] + whole + v * kN), lanes[i][t][v]);
          lanes[i][t][v] = hn::IfThenElse(used, sum, lanes[i][t][v]);
        }
      }
    }
  }
  HWY_UNROLL(8)
  for (int i = 0; i < R; ++i) {
    HWY_UNROLL(8)
    for (int t = 0; t < T; ++t) {
      args.out[(t0 + t) * args.out_stride + r + i] = lane_tree_sum_v(lanes[i][t]);
    }
  }
}

template <class Weight>
HWY_INLINE void matmul_floats(const void* raw_args) {
  const MatmulArgs& args = *static_cast<const MatmulArgs*>(raw_args);
  int64_t r = args.row_begin;
  // Enough independent sums to hide the latency of fma: 4 rows of one token, or 2 rows of 2 tokens.
  for (; r + 4 <= args.row_end; r += 4) {
    int64_t t = 0;
    for (; t + 2 <= args.n_tokens; t += 2) {
      dot_tile<Weight, 2, 2>(args, r, t);
      dot_tile<Weight, 2, 2>(args, r + 2, t);
    }
    for (; t < args.n_tokens; ++t) dot_tile<Weight, 4, 1>(args, r, t);
  }
  for (; r < args.row_end; ++r) {
    for (int64_t t = 0; t < args.n_tokens; ++t) dot_tile<Weight, 1, 1>(args, r, t);
  }
}

void matmul_f32(const void* args) { matmul_floats<WeightF32>(args); }
void matmul_f16(const void* args) { matmul_floats<WeightF16>(args); }
void matmul_bf16(const void* args) { matmul_floats<WeightBf16>(args); }

}  // namespace engine::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // ENGINE_HWY_FMA_TARGET

#if HWY_ONCE
namespace engine {
ENGINE_HWY_ENTRY(matmul_f32_hwy, matmul_f32)
ENGINE_HWY_ENTRY(matmul_f16_hwy, matmul_f16)
ENGINE_HWY_ENTRY(matmul_bf16_hwy, matmul_bf16)
}  // namespace engine
#endif  // HWY_ONCE
