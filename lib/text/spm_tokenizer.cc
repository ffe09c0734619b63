// SentencePiece BPE (model `llama`): spaces as U+2581, an optional space before the text, byte
// fallback.
#include <utility>

#include "lib/text/byte_map.h"
#include "lib/text/escaped_spaces.h"
#include "lib/text/spm.h"
#include "lib/text/vocab_tokenizer.h"

namespace engine {

namespace {

class SpmTokenizer final : public VocabTokenizer {
 public:
  explicit SpmTokenizer(Vocab vocab)
      : VocabTokenizer(std::move(vocab), true),
        adds_prefix_(this->vocab().add_space_prefix.value_or(true)),
        spm_(this->vocab()) {
    // Phi-3's published tokenizer has this flag on its tokens; files cannot hold it.
    const auto has = [&](std::string_view piece) { return this->vocab().find(piece) >= 0; };
    is_phi3_ = has("<|placeholder1|>") && has("<|assistant|>") && has("<|end|>");
  }

  using VocabTokenizer::index_special;
  bool strips_leading_space() const override { return adds_prefix_; }

  std::string token_bytes(int32_t id, bool with_special) const override {
    if (!vocab().has(id)) return "";
    const std::string_view piece = vocab().piece(id);
    switch (vocab().type(id)) {
      case TokenType::kNormal: return unescape_spaces(piece);
      case TokenType::kByte: return std::string(1, static_cast<char>(byte_piece_value(piece)));
      case TokenType::kUserDefined:
        // Some files keep runs of spaces escaped.
        return is_plain_added(id) ? unescape_spaces(piece) : std::string(piece);
      case TokenType::kControl:
      case TokenType::kUnknown: return with_special ? std::string(piece) : "";
      case TokenType::kUndefined:
      case TokenType::kUnused: break;
    }
    return "";
  }

 protected:
  std::string comparable(std::string_view text) const override { return escape_spaces(text); }
  bool takes_space_after(int32_t id) const override {
    const std::string_view piece = vocab().piece(id);
    return is_phi3_ && piece != "<s>" && piece != "<unk>" && piece != "<|endoftext|>";
  }
  std::string_view prefix() const override { return adds_prefix_ ? kEscapedSpace : ""; }
  absl::Status encode_ordinary(std::string_view text, std::vector<int32_t>* ids) const override {
    return spm_.encode(text, ids);
  }

 private:
  bool adds_prefix_;
  bool is_phi3_ = false;
  Spm spm_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> make_spm_tokenizer(Vocab vocab) {
  auto tokenizer = std::make_unique<SpmTokenizer>(std::move(vocab));
  ENGINE_RETURN_IF_ERROR(tokenizer->index_special());
  return tokenizer;
}

}  // namespace engine
