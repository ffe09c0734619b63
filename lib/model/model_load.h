// A loaded model: file, configuration, bound weights, vocabulary. Immutable afterwards.
#ifndef ENGINE_LIB_MODEL_MODEL_LOAD_H_
#define ENGINE_LIB_MODEL_MODEL_LOAD_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "lib/base/status.h"
#include "lib/file/gguf.h"
#include "lib/model/arch.h"
#include "lib/model/config.h"
#include "lib/model/weights.h"
#include "lib/text/chat.h"
#include "lib/text/tokenizer.h"

namespace engine {

struct LoadOptions {
  bool vocab_only = false;     // no architecture, no weights
  bool metadata_only = false;  // no vocabulary either; unknown tensor types accepted
  bool allow_pretokenizer_fallback = false;
  std::span<const Gguf::Shard>
      shards;                      // of a split set, inside the file's memory; empty = one file
  uint64_t readable_past_end = 0;  // bytes after the file's memory that may be read safely
  // Told where the tensors' data begin, before a few small ones are read here and there. May be empty.
  std::function<void(uint64_t data_start)> before_tensors;
};

struct Model {
  Gguf file;
  bool has_weights = false;
  const ArchSpec* arch = nullptr;  // with weights only
  ModelConfig config;
  ModelWeights weights;
  std::unique_ptr<Tokenizer> tokenizer;  // nullptr: the file has no text vocabulary
  std::string_view chat_template;        // the file's own, "" = none
  std::optional<ChatTemplate> chat;      // the same, read
  absl::Status chat_status;              // why there is no `chat`
};

// `bytes` is the whole file and must outlive the model.
absl::StatusOr<std::unique_ptr<Model>> load_model(std::span<const uint8_t> bytes,
                                                  const LoadOptions& options);

}  // namespace engine

#endif  // ENGINE_LIB_MODEL_MODEL_LOAD_H_
