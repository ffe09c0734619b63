// Vector rows that quantise activations; same bits as lib/quant/quant_ref.h.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/quantize_hwy.cc"
#include "backends/cpu/hwy_targets.h"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target.h
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "hwy/highway.h"
#include "lib/contract/op.h"

#if ENGINE_HWY_FMA_TARGET
HWY_BEFORE_NAMESPACE();
namespace engine::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::CappedTag<float, 16>;
using DI = hn::RebindToSigned<DF>;
constexpr int kN = static_cast<int>(hn::MaxLanes(DF()));

// max |x| as bits: magnitudes compare like integers, so the maximum is exact in any order and a NaN
// or an infinity is the largest.
template <int kElements>
HWY_INLINE int32_t max_magnitude_bits(const float* x) {
  const DI di;
  const auto mask = hn::Set(di, 0x7FFFFFFF);
  auto max0 = hn::Zero(di);
  auto max1 = hn::Zero(di);
  for (int i = 0; i < kElements; i += 2 * kN) {
    max0 = hn::Max(max0, hn::And(mask, hn::BitCast(di, hn::LoadU(DF(), x + i))));
    max1 = hn::Max(max1, hn::And(mask, hn::BitCast(di, hn::LoadU(DF(), x + i + kN))));
  }
  return hn::ReduceMax(di, hn::Max(max0, max1));
}

// Quantises kElements values; false when one is not finite. Rule: lib/quant/activation.h.
template <int kElements>
HWY_INLINE bool quantize_block(const float* x, float* d, int8_t* q) {
  constexpr int32_t kInfinityBits = 0x7F800000;
  const int32_t amax_bits = max_magnitude_bits<kElements>(x);
  const float amax = std::bit_cast<float>(amax_bits);
  const bool finite = amax_bits < kInfinityBits;
  const float inv = amax > 0 ? 127.0f / amax : 0;
  if (!finite || inv == 0 || std::isinf(inv)) {
    *d = finite ? 0 : std::numeric_limits<float>::quiet_NaN();
    std::memset(q, 0, kElements);
    return finite;
  }
  *d = amax / 127.0f;
  const DF df;
  const hn::Rebind<int8_t, DF> d8;
  const auto scale = hn::Set(df, inv);
  for (int i = 0; i < kElements; i += kN) {
    const auto rounded = hn::NearestInt(hn::Mul(hn::LoadU(df, x + i), scale));
    hn::StoreU(hn::DemoteTo(d8, rounded), d8, q + i);
  }
  return true;
}

// The sum of 16 q.
HWY_INLINE int32_t sum16(const int8_t* q) {
  const hn::Full128<int8_t> d8;
  const hn::Full128<int16_t> d16;
  const hn::Full128<int32_t> d32;
  const auto pairs =
      hn::SatWidenMulPairwiseAdd(d16, hn::Set(hn::Full128<uint8_t>(), 1), hn::LoadU(d8, q));
  return hn::ReduceSum(d32, hn::WidenMulPairwiseAdd(d32, pairs, hn::Set(d16, 1)));
}

HWY_INLINE bool quantize_one(const float* x, ActQ8x32* out) {
  const bool finite = quantize_block<32>(x, &out->d, out->q);
  out->sum = sum16(out->q) + sum16(out->q + 16);
  return finite;
}

HWY_INLINE bool quantize_one(const float* x, ActQ8x256* out) {
  const bool finite = quantize_block<256>(x, &out->d, out->q);
  std::memset(out->pad, 0, sizeof(out->pad));
  for (int j = 0; j < 16; ++j) out->sum16[j] = static_cast<int16_t>(sum16(out->q + 16 * j));
  return finite;
}

template <class Act, int kElements>
HWY_INLINE void quantize_rows(const void* raw_args) {
  const QuantizeArgs& args = *static_cast<const QuantizeArgs*>(raw_args);
  bool finite = true;
  for (int64_t r = 0; r < args.n_rows; ++r) {
    const float* x = args.x + r * args.x_stride;
    Act* out = reinterpret_cast<Act*>(static_cast<uint8_t*>(args.out) + r * args.out_stride_bytes);
    for (int64_t b = 0; b < args.width / kElements; ++b) {
      finite = quantize_one(x + b * kElements, out + b) && finite;
    }
  }
  if (!finite) *args.finite = false;
}

void quantize_q8x32(const void* args) { quantize_rows<ActQ8x32, 32>(args); }
void quantize_q8x256(const void* args) { quantize_rows<ActQ8x256, 256>(args); }

}  // namespace engine::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // ENGINE_HWY_FMA_TARGET

#if HWY_ONCE
namespace engine {
ENGINE_HWY_ENTRY(quantize_q8x32_hwy, quantize_q8x32)
ENGINE_HWY_ENTRY(quantize_q8x256_hwy, quantize_q8x256)
}  // namespace engine
#endif  // HWY_ONCE
