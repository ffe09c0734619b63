// What a stored plan says about its model beyond the program: identity by hashes, dimensions, rules.
#ifndef ENGINE_LIB_PLAN_PLAN_FACTS_H_
#define ENGINE_LIB_PLAN_PLAN_FACTS_H_

#include <cstdint>
#include <span>
#include <string>

#include "lib/base/hash.h"
#include "lib/model/model_load.h"

namespace engine {

// Hashes are XXH3-128 in 32 hex digits.
struct PlanModelFacts {
  ModelConfig config;
  uint64_t file_bytes = 0;
  std::string tensor_table_hash;  // name, shape, type and place of every tensor
  std::string
      file_hash_sampled;  // size and 256 blocks of 4 KiB at equal distances, first and last included
  std::string file_hash_full;  // "" = not asked for
  std::string tokenizer_hash;  // every tokenizer.ggml.* value
};

// `bytes` is the model's whole file. full_hash reads all of it (seconds per 10 GB), else about 1 MiB.
PlanModelFacts plan_model_facts(const Model& model, std::span<const uint8_t> bytes, bool full_hash);

// Of the tensor table, the hyper-parameters and a sample of the file: what saved states are bound to.
Hash128 model_fingerprint(const Model& model, std::span<const uint8_t> bytes);

// Of every tokenizer.ggml.* value, in hex: equal for models that name the same tokens in the same way.
std::string vocabulary_hash(const Model& model);

std::string hash_hex(const Hash128& hash);

}  // namespace engine

#endif  // ENGINE_LIB_PLAN_PLAN_FACTS_H_
