// Scalar rows that store keys and values into KV pages (layout: contract/op.h).
#include <bit>
#include <cstdint>

#include "backends/cpu/cpu_kernels.h"
#include "lib/base/half.h"
#include "lib/contract/kv_block.h"

namespace engine {
namespace {

struct F16 {
  using Stored = uint16_t;
  static Stored store(float x) { return f32_to_f16(x); }
  static bool finite(Stored x) { return (x & 0x7C00u) != 0x7C00u; }
};
struct F32 {
  using Stored = float;
  static Stored store(float x) { return x; }
  static bool finite(Stored x) { return (std::bit_cast<uint32_t>(x) & 0x7F800000u) != 0x7F800000u; }
};

template <class Type>
void kv_store(const void* raw_args) {
  using Stored = typename Type::Stored;
  const KvStoreArgs& args = *static_cast<const KvStoreArgs*>(raw_args);
  bool finite = true;
  for (int64_t t = 0; t < args.n_tokens; ++t) {
    const int64_t position = args.first_position + t;
    uint8_t* page = args.kv.pages[position / kKvPagePositions];
    const int64_t slot = position % kKvPagePositions;
    Stored* k_page = reinterpret_cast<Stored*>(page + args.kv.k_offset_bytes);  // [G][Dk][64]
    Stored* v_page = reinterpret_cast<Stored*>(page + args.kv.v_offset_bytes);  // [G][64][Dv]
    const float* k = args.k + t * args.k_stride;
    const float* v = args.v + t * args.v_stride;
    for (int64_t i = 0; i < args.n_kv_heads * args.head_dim_k; ++i) {
      const Stored value = Type::store(k[i]);
      finite = finite && Type::finite(value);
      k_page[i * kKvPagePositions + slot] = value;
    }
    for (int64_t g = 0; g < args.n_kv_heads; ++g) {
      Stored* v_out = v_page + (g * kKvPagePositions + slot) * args.head_dim_v;
      for (int64_t i = 0; i < args.head_dim_v; ++i) {
        const Stored value = Type::store(v[g * args.head_dim_v + i]);
        finite = finite && Type::finite(value);
        v_out[i] = value;
      }
    }
  }
  if (!finite) *args.finite = false;
}

void kv_store_q8_0(const void* raw_args) {
  const KvStoreArgs& args = *static_cast<const KvStoreArgs*>(raw_args);
  const int64_t G = args.n_kv_heads, Dk = args.head_dim_k, Dv = args.head_dim_v;
  bool finite = true;
  for (int64_t t = 0; t < args.n_tokens; ++t) {
    const int64_t position = args.first_position + t;
    for (int64_t g = 0; g < G; ++g) {
      finite &= store_kv_blocks(args.k + t * args.k_stride + g * Dk, Dk,
                                q8_key(args.kv, G, Dk, g, position));
      finite &= store_kv_blocks(args.v + t * args.v_stride + g * Dv, Dv,
                                q8_value(args.kv, G, Dv, g, position));
    }
  }
  if (!finite) *args.finite = false;
}

}  // namespace

KernelEntry kv_store_f16_scalar(Target) { return &kv_store<F16>; }
KernelEntry kv_store_f32_scalar(Target) { return &kv_store<F32>; }
KernelEntry kv_store_q8_0_scalar(Target) { return &kv_store_q8_0; }

}  // namespace engine
