// The tokenizer interface: text to ids and back, special tokens, end-of-generation set.
#ifndef ENGINE_LIB_TEXT_TOKENIZER_H_
#define ENGINE_LIB_TEXT_TOKENIZER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/status.h"
#include "lib/file/gguf.h"

namespace engine {

enum class TokenType : uint8_t {
  kUndefined = 0,
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6,
};

enum class BosPolicy : int32_t { kModelDefault = 0, kNone = 1, kForce = 2 };
// Which added tokens are matched in text. A user-defined piece without ASCII punctuation (a run of white
// space, a letter) is ordinary text of its vocabulary and matched at every level.
enum class SpecialPolicy : int32_t { kPlain = 0, kUserDefined = 1, kAll = 2 };

enum class EndReason : int32_t {
  kEos = 1,
  kEot = 2,
  kEom = 3,
  kFim = 4,
  kName = 5
};  // kName: a guess by text
struct EndToken {
  int32_t id;
  EndReason reason;
};

struct TokenizeResult {
  std::vector<int32_t> ids;
  bool bos_added = false;
  bool eos_added = false;
  bool text_had_bos = false;  // the text itself began with the BOS token
};

struct TokenizerOptions {
  // An absent or unknown pre-tokenizer name is an error unless this is set; then `default` is used and
  // pretokenizer_fallback() tells so.
  bool allow_pretokenizer_fallback = false;
  // A merge entry without a space, or that names a piece the vocabulary lacks, is an error; else it is
  // left out and counted in skipped_merges().
  bool strict = false;
};

// A stretch of a text, with the added tokens that may be matched inside it.
struct TextPart {
  std::string_view text;
  SpecialPolicy special = SpecialPolicy::kPlain;
};

class Tokenizer {
 public:
  // Reads tokenizer.ggml.* (models `llama` = SentencePiece BPE, `gpt2` = byte-level BPE, `gemma4` = BPE on
  // text with escaped spaces, `bert` = WordPiece, `t5` = SentencePiece unigram, `rwkv` = longest match). The
  // result keeps no reference into the file. Errors name the key. Immutable afterwards: safe from any thread.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> create(const Gguf& file,
                                                           const TokenizerOptions& options = {});
  virtual ~Tokenizer() = default;

  // Any bytes are accepted, also invalid UTF-8 and NUL.
  virtual absl::StatusOr<TokenizeResult> encode(std::string_view text, BosPolicy bos,
                                                SpecialPolicy special) const = 0;
  // Appends the ids of text that continues after other tokens: no BOS, no EOS, and a space prefix only
  // when `at_start`. Used by chat rendering.
  virtual absl::Status encode_append(std::string_view text, SpecialPolicy special, bool at_start,
                                     std::vector<int32_t>* ids) const = 0;
  // The same for one text given in parts: added tokens are matched inside each part by its own policy, all
  // else is tokenized as if the parts were one string.
  virtual absl::Status encode_parts(std::span<const TextPart> parts, bool at_start,
                                    std::vector<int32_t>* ids) const = 0;
  // Raw bytes of a token in running text. Control tokens give nothing unless `with_special`. A token
  // outside [0, vocab_size) gives nothing.
  virtual std::string token_bytes(int32_t id, bool with_special) const = 0;
  // Whole text: token_bytes concatenated, with one leading space removed when the model adds a prefix.
  virtual std::string decode(std::span<const int32_t> ids, bool with_special) const = 0;
  // True when decode() drops one leading space from the first visible token (streaming needs it).
  virtual bool strips_leading_space() const = 0;

  virtual int32_t vocab_size() const = 0;
  virtual std::string_view model_name() const = 0;  // "llama", "gpt2", ...
  virtual std::string_view pre_name() const = 0;    // pre-tokenizer in force, "" where none
  virtual bool pretokenizer_fallback() const = 0;
  virtual int64_t skipped_merges() const = 0;
  virtual TokenType type(int32_t id) const = 0;
  virtual std::string_view piece(int32_t id) const = 0;  // as stored in the file
  virtual std::optional<int32_t> find(
      std::string_view piece) const = 0;  // lowest id of that stored text
  virtual std::optional<int32_t> bos() const = 0;
  virtual std::optional<int32_t> eos() const = 0;
  virtual bool adds_bos() const = 0;
  virtual bool adds_eos() const = 0;
  virtual std::span<const EndToken> end_tokens() const = 0;  // ascending ids
};

}  // namespace engine

#endif  // ENGINE_LIB_TEXT_TOKENIZER_H_
