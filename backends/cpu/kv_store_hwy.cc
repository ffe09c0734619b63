// Vector rows that store keys and values into KV pages (layout: contract/op.h).
// clang-format off: the order matters, foreach_target.h includes this file once per target
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/kv_store_hwy.cc"
#include "backends/cpu/hwy_targets.h"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
// clang-format on

#include <cstring>
#include <limits>

#include "backends/cpu/lane_tree-inl.h"
#include "lib/base/half.h"
#include "lib/contract/kv_block.h"

#if ENGINE_HWY_FMA_TARGET
HWY_BEFORE_NAMESPACE();
namespace engine::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

struct F16 {
  using Stored = hwy::float16_t;
  // From here on rounding to nearest even gives infinity: half way between 65,504 and 2^16.
  static constexpr float kTooLarge = 65520.0f;
  static HWY_INLINE auto convert(VF x) { return hn::DemoteTo(hn::Rebind<Stored, DF>(), x); }
};
struct F32 {
  using Stored = float;
  static constexpr float kTooLarge = std::numeric_limits<float>::infinity();
  static HWY_INLINE VF convert(VF x) { return x; }
};

using MF = hn::Mask<DF>;

// Converts n <= kLanesF values at x to `out` and clears lanes of `finite` that do not fit.
template <class Type>
HWY_INLINE void convert_some(const float* x, size_t n, typename Type::Stored* out, MF& finite) {
  const DF d;
  const hn::Rebind<typename Type::Stored, DF> ds;
  const VF value = n < kLanesF ? hn::LoadN(d, x, n) : hn::LoadU(d, x);
  finite = hn::And(finite, hn::Lt(hn::Abs(value), hn::Set(d, Type::kTooLarge)));
  const auto converted = Type::convert(value);
  if (n < kLanesF) {
    hn::StoreN(converted, ds, out, n);
  } else {
    hn::StoreU(converted, ds, out);
  }
}

template <class Type>
void kv_store(const void* raw_args) {
  using Stored = typename Type::Stored;
  const KvStoreArgs& args = *static_cast<const KvStoreArgs*>(raw_args);
  const DF d;
  const int64_t n = kLanesF;
  const int64_t k_width = args.n_kv_heads * args.head_dim_k;
  MF finite = hn::Eq(hn::Zero(d), hn::Zero(d));
  for (int64_t t = 0; t < args.n_tokens; ++t) {
    const int64_t position = args.first_position + t;
    uint8_t* page = args.kv.pages[position / kKvPagePositions];
    const int64_t slot = position % kKvPagePositions;
    Stored* k_page =
        reinterpret_cast<Stored*>(page + args.kv.k_offset_bytes) + slot;        // [G][Dk][64]
    Stored* v_page = reinterpret_cast<Stored*>(page + args.kv.v_offset_bytes);  // [G][64][Dv]
    const float* k = args.k + t * args.k_stride;
    const float* v = args.v + t * args.v_stride;
    for (int64_t i = 0; i < k_width; i += n) {
      const int64_t count = HWY_MIN(n, k_width - i);
      HWY_ALIGN Stored column[kLanesF];
      convert_some<Type>(k + i, static_cast<size_t>(count), column, finite);
      for (int64_t c = 0; c < count; ++c) k_page[(i + c) * kKvPagePositions] = column[c];
    }
    for (int64_t g = 0; g < args.n_kv_heads; ++g) {
      Stored* v_out = v_page + (g * kKvPagePositions + slot) * args.head_dim_v;
      for (int64_t i = 0; i < args.head_dim_v; i += n) {
        const int64_t count = HWY_MIN(n, args.head_dim_v - i);
        convert_some<Type>(v + g * args.head_dim_v + i, static_cast<size_t>(count), v_out + i,
                           finite);
      }
    }
  }
  if (!hn::AllTrue(d, finite)) *args.finite = false;
}

// Quantises n <= 32 values at x: codes[32], and the bits of d. Clears lanes of `finite` that are not.
HWY_INLINE uint16_t quantize_block(const float* x, int64_t n, int8_t* codes, MF& finite) {
  const DF d;
  const hn::Rebind<int8_t, DF> di8;
  const int64_t lanes = kLanesF;
  VF max = hn::Zero(d);
  for (int64_t i = 0; i < n; i += lanes) {
    const VF value = hn::Abs(hn::LoadN(d, x + i, static_cast<size_t>(HWY_MIN(lanes, n - i))));
    finite = hn::And(finite, hn::Lt(value, hn::Set(d, F32::kTooLarge)));
    max = hn::Max(max, value);
  }
  const uint16_t scale = kv_block_scale(hn::ReduceMax(d, max));
  const float scale_f32 = f16_to_f32(scale);
  finite = hn::And(finite, hn::Lt(hn::Set(d, scale_f32), hn::Set(d, F32::kTooLarge)));
  const VF inverse = hn::Set(d, 1.0f / scale_f32);
  for (int64_t i = 0; i < n; i += lanes) {
    const VF value = hn::LoadN(d, x + i, static_cast<size_t>(HWY_MIN(lanes, n - i)));
    hn::StoreU(hn::DemoteTo(di8, hn::NearestInt(hn::Mul(value, inverse))), di8, codes + i);
  }
  return scale;
}

void kv_store_q8_0(const void* raw_args) {
  const KvStoreArgs& args = *static_cast<const KvStoreArgs*>(raw_args);
  const DF d;
  const int64_t G = args.n_kv_heads, Dk = args.head_dim_k, Dv = args.head_dim_v;
  MF finite = hn::Eq(hn::Zero(d), hn::Zero(d));
  HWY_ALIGN int8_t codes[kKvBlock];
  for (int64_t t = 0; t < args.n_tokens; ++t) {
    const int64_t position = args.first_position + t;
    for (int64_t g = 0; g < G; ++g) {
      const float* const k = args.k + t * args.k_stride + g * Dk;
      const float* const v = args.v + t * args.v_stride + g * Dv;
      const Q8Vector key = q8_key(args.kv, G, Dk, g, position);
      for (int64_t b = 0; b < kv_blocks(Dk); ++b) {
        const int64_t first = b * kKvBlock, n = HWY_MIN(kKvBlock, Dk - first);
        key.scales[b * kKvPagePositions] = quantize_block(k + first, n, codes, finite);
        int8_t* const out = key.codes + first * kKvPagePositions;
        for (int64_t i = 0; i < n; ++i) out[i * kKvPagePositions] = codes[i];
      }
      const Q8Vector value = q8_value(args.kv, G, Dv, g, position);
      for (int64_t b = 0; b < kv_blocks(Dv); ++b) {
        const int64_t first = b * kKvBlock, n = HWY_MIN(kKvBlock, Dv - first);
        value.scales[b] = quantize_block(v + first, n, codes, finite);
        std::memcpy(value.codes + first, codes, static_cast<size_t>(n));
      }
    }
  }
  if (!hn::AllTrue(d, finite)) *args.finite = false;
}

void kv_store_f16(const void* raw_args) { kv_store<F16>(raw_args); }
void kv_store_f32(const void* raw_args) { kv_store<F32>(raw_args); }

}  // namespace engine::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // ENGINE_HWY_FMA_TARGET

#if HWY_ONCE
namespace engine {
ENGINE_HWY_ENTRY(kv_store_f16_hwy, kv_store_f16)
ENGINE_HWY_ENTRY(kv_store_f32_hwy, kv_store_f32)
ENGINE_HWY_ENTRY(kv_store_q8_0_hwy, kv_store_q8_0)
}  // namespace engine
#endif  // HWY_ONCE
