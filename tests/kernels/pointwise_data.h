// Buffers, random numbers and the comparison with the scalar row for the tests of non-matmul
// kernels.
#ifndef ENGINE_TESTS_KERNELS_POINTWISE_DATA_H_
#define ENGINE_TESTS_KERNELS_POINTWISE_DATA_H_

#include <bit>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string_view>
#include <vector>

#include "lib/contract/kernel.h"

namespace engine::test {

inline constexpr double kUnit = 0x1p-24;  // unit roundoff of f32
inline constexpr float kNanF = std::numeric_limits<float>::quiet_NaN();
inline constexpr float kInfF = std::numeric_limits<float>::infinity();

using Rng = std::mt19937_64;

// `size` floats, 64-byte aligned, with 64 bytes of NaN behind them that kernels may read and must
// not use.
class Floats {
 public:
  explicit Floats(int64_t size, float value = 0.0f) : size_(size) {
    storage_.assign(static_cast<size_t>(size) + 32, kNanF);
    offset_ = (64 - reinterpret_cast<uintptr_t>(storage_.data()) % 64) % 64 / sizeof(float);
    for (int64_t i = 0; i < size; ++i) data()[i] = value;
  }
  Floats(const Floats& other) : Floats(other.size_) {
    std::memcpy(data(), other.data(), static_cast<size_t>(size_) * sizeof(float));
  }
  Floats& operator=(const Floats&) = delete;
  float* data() { return storage_.data() + offset_; }
  const float* data() const { return storage_.data() + offset_; }
  float& operator[](int64_t i) { return data()[i]; }
  float operator[](int64_t i) const { return data()[i]; }
  int64_t size() const { return size_; }

 private:
  std::vector<float> storage_;
  size_t offset_ = 0;
  int64_t size_;
};

inline bool same_bits(const Floats& a, const Floats& b) {
  return a.size() == b.size() &&
         std::memcmp(a.data(), b.data(), static_cast<size_t>(a.size()) * sizeof(float)) == 0;
}

inline float uniform(Rng& rng, float low, float high) {
  return std::uniform_real_distribution<float>(low, high)(rng);
}

inline Floats random_floats(Rng& rng, int64_t size, float low, float high) {
  Floats values(size);
  for (int64_t i = 0; i < size; ++i) values[i] = uniform(rng, low, high);
  return values;
}

// Finite floats of every magnitude, zeros of both signs among them.
inline Floats wild_floats(Rng& rng, int64_t size) {
  Floats values(size);
  for (int64_t i = 0; i < size; ++i) {
    const uint64_t pick = rng();
    if (pick % 8 == 0) {
      values[i] = pick & 256 ? -0.0f : 0.0f;
    } else if (pick % 8 < 4) {
      values[i] = uniform(rng, -20.0f, 20.0f);
    } else {
      values[i] = std::bit_cast<float>(static_cast<uint32_t>(rng()));
      if (!std::isfinite(values[i])) values[i] = 1.5f;
    }
  }
  return values;
}

inline KernelEntry scalar_entry(Op op, KvType kv = KvType::kF16) {
  const auto resolved = resolve_kernel({.op = op, .kv = kv}, Target::kScalar);
  REQUIRE(resolved.ok());
  return resolved->entry;
}

// Calls check(name, entry) for every row of the op that is not scalar, on every target that runs
// here. Every target but kScalar must have one.
template <class Check>
void for_each_vector_entry(Op op, KvType kv, Check check) {
  for (const Target target : cpu_targets()) {
    if (target == Target::kScalar) continue;
    int found = 0;
    for (const KernelRow& row : kernel_rows()) {
      if (row.key.op != op || row.key.kv != kv) continue;
      if (std::string_view(row.name).ends_with("_scalar")) continue;
      const KernelEntry entry = row.entry(target);
      if (entry == nullptr) continue;
      INFO(row.name << " on " << target_name(target));
      check(entry);
      ++found;
    }
    CHECK(found > 0);
  }
}

}  // namespace engine::test

#endif  // ENGINE_TESTS_KERNELS_POINTWISE_DATA_H_
