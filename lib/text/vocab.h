// The vocabulary of a GGUF file: pieces, types, scores, merges, special ids, flags; validated and
// owned.
#ifndef ENGINE_LIB_TEXT_VOCAB_H_
#define ENGINE_LIB_TEXT_VOCAB_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "lib/base/status.h"
#include "lib/file/gguf.h"
#include "lib/text/tokenizer.h"

namespace engine {

class Vocab {
 public:
  struct Merge {
    int32_t left;
    int32_t right;
    int32_t result;
  };

  static absl::StatusOr<Vocab> read(const Gguf& file, const TokenizerOptions& options);
  Vocab(Vocab&&) = default;
  Vocab& operator=(Vocab&&) = default;
  // Not copyable: the index holds views of the pieces.
  Vocab(const Vocab&) = delete;
  Vocab& operator=(const Vocab&) = delete;

  int32_t size() const { return static_cast<int32_t>(types_.size()); }
  bool has(int32_t id) const { return id >= 0 && id < size(); }
  std::string_view piece(int32_t id) const {
    return {text_.data() + begins_[id], static_cast<size_t>(begins_[id + 1] - begins_[id])};
  }
  TokenType type(int32_t id) const { return types_[id]; }
  float score(int32_t id) const { return scores_[id]; }
  // The lowest id with this text; -1 when there is none.
  int32_t find(std::string_view piece) const;
  // The same among pieces that ordinary text can become (NORMAL, UNUSED).
  int32_t find_ordinary(std::string_view piece) const;
  // The same among ordinary and user-defined pieces.
  int32_t find_text(std::string_view piece) const;
  bool is_ordinary(int32_t id) const {
    return types_[id] == TokenType::kNormal || types_[id] == TokenType::kUnused;
  }
  // Merges in rank order; those that name an unknown piece are left out and counted.
  const std::vector<Merge>& merges() const { return merges_; }
  int64_t skipped_merges() const { return skipped_merges_; }

  std::string model;            // tokenizer.ggml.model
  bool escapes_spaces = false;  // byte pair vocabularies: pieces are text with spaces as U+2581
  std::optional<std::string> pre;
  std::optional<int32_t> bos;
  std::optional<int32_t> eos;
  std::optional<int32_t> unknown;
  std::optional<bool> add_bos;
  std::optional<bool> add_eos;
  std::optional<bool> add_space_prefix;
  std::vector<EndToken> end_tokens;  // ascending ids

 private:
  Vocab() = default;
  absl::Status read_pieces(const Gguf& file);
  absl::Status read_merges(const Gguf& file, bool strict);
  absl::Status read_special_ids(const Gguf& file);

  std::vector<char> text_;
  std::vector<uint64_t> begins_;  // V + 1
  std::vector<TokenType> types_;  // V
  std::vector<float> scores_;     // V, empty for byte-level vocabularies
  absl::flat_hash_map<std::string_view, int32_t> index_;
  absl::flat_hash_map<int32_t, int32_t> next_same_;  // id -> next id with the same text
  std::vector<Merge> merges_;
  int64_t skipped_merges_ = 0;
};

}  // namespace engine

#endif  // ENGINE_LIB_TEXT_VOCAB_H_
