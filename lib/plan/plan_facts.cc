// Texts are hashed with their lengths, so that no two tables read alike.
#include "lib/plan/plan_facts.h"

#include <vector>

namespace engine {
namespace {

constexpr uint64_t kSampleBytes = 4096;
constexpr uint64_t kSamples = 256;

class HashInput {
 public:
  void number(uint64_t value) {
    for (int shift = 0; shift < 64; shift += 8)
      bytes_.push_back(static_cast<uint8_t>(value >> shift));
  }
  void data(const void* data, uint64_t n_bytes) {
    number(n_bytes);
    const auto* first = static_cast<const uint8_t*>(data);
    if (n_bytes > 0) bytes_.insert(bytes_.end(), first, first + n_bytes);
  }
  Hash128 hash() const { return hash128(bytes_.data(), bytes_.size()); }
  std::string hex() const { return hash_hex(hash128(bytes_.data(), bytes_.size())); }

 private:
  std::vector<uint8_t> bytes_;
};

std::string tensor_table_hash(const Gguf& file) {
  HashInput input;
  for (const GgufTensor& tensor : file.tensors()) {
    input.data(tensor.name.data(), tensor.name.size());
    input.number(tensor.type);
    for (const uint64_t dim : tensor.dims) input.number(dim);
    input.number(tensor.offset);
  }
  return input.hex();
}

std::string tokenizer_hash(const Gguf& file) {
  HashInput input;
  for (const GgufValue& value : file.values()) {
    if (!value.key.starts_with("tokenizer.ggml.")) continue;
    input.data(value.key.data(), value.key.size());
    input.number(static_cast<uint64_t>(value.type));
    input.number(static_cast<uint64_t>(value.element_type));
    input.data(value.data, value.data_bytes);
  }
  return input.hex();
}

std::string sampled_hash(std::span<const uint8_t> bytes) {
  HashInput input;
  input.number(bytes.size());
  if (bytes.size() <= kSamples * kSampleBytes) {
    input.data(bytes.data(), bytes.size());
    return input.hex();
  }
  for (uint64_t i = 0; i < kSamples; ++i) {
    const uint64_t last = bytes.size() - kSampleBytes;
    // last * i would overflow only above 2^56 bytes.
    input.data(bytes.data() + last * i / (kSamples - 1), kSampleBytes);
  }
  return input.hex();
}

}  // namespace

Hash128 model_fingerprint(const Model& model, std::span<const uint8_t> bytes) {
  HashInput input;
  for (const std::string& hash : {tensor_table_hash(model.file), sampled_hash(bytes)}) {
    input.data(hash.data(), hash.size());
  }
  for (const GgufValue& value : model.file.values()) {
    if (value.key.starts_with("tokenizer.")) continue;
    input.data(value.key.data(), value.key.size());
    input.data(value.data, value.data_bytes);
  }
  return input.hash();
}

std::string vocabulary_hash(const Model& model) { return tokenizer_hash(model.file); }

std::string hash_hex(const Hash128& hash) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const uint64_t half : {hash.high, hash.low}) {
    for (int shift = 60; shift >= 0; shift -= 4) text.push_back(kDigits[half >> shift & 15]);
  }
  return text;
}

PlanModelFacts plan_model_facts(const Model& model, std::span<const uint8_t> bytes,
                                bool full_hash) {
  PlanModelFacts facts;
  facts.config = model.config;
  facts.file_bytes = bytes.size();
  facts.tensor_table_hash = tensor_table_hash(model.file);
  facts.tokenizer_hash = tokenizer_hash(model.file);
  facts.file_hash_sampled = sampled_hash(bytes);
  if (full_hash) facts.file_hash_full = hash_hex(hash128(bytes.data(), bytes.size()));
  return facts;
}

}  // namespace engine
