// SentencePiece BPE (model `llama`): spaces as U+2581, an optional space before the text, byte
// fallback.
#include <utility>

#include "lib/text/byte_map.h"
#include "lib/text/spm.h"
#include "lib/text/vocab_tokenizer.h"

namespace engine {

namespace {

constexpr std::string_view kSpace = "\xE2\x96\x81";  // U+2581

std::string spaces_from(std::string_view text) {
  std::string out;
  size_t at = 0;
  while (true) {
    const size_t found = text.find(kSpace, at);
    out.append(text.substr(at, found - at));
    if (found == std::string_view::npos) return out;
    out.push_back(' ');
    at = found + kSpace.size();
  }
}

class SpmTokenizer final : public VocabTokenizer {
 public:
  explicit SpmTokenizer(Vocab vocab)
      : VocabTokenizer(std::move(vocab), true),
        adds_prefix_(this->vocab().add_space_prefix.value_or(true)),
        spm_(this->vocab()) {}

  using VocabTokenizer::index_special;
  bool strips_leading_space() const override { return adds_prefix_; }

  std::string token_bytes(int32_t id, bool with_special) const override {
    if (!vocab().has(id)) return "";
    const std::string_view piece = vocab().piece(id);
    switch (vocab().type(id)) {
      case TokenType::kNormal: return spaces_from(piece);
      case TokenType::kByte: return std::string(1, static_cast<char>(byte_piece_value(piece)));
      case TokenType::kUserDefined:
        // Some files keep runs of spaces escaped.
        return is_plain_added(id) ? spaces_from(piece) : std::string(piece);
      case TokenType::kControl:
      case TokenType::kUnknown: return with_special ? std::string(piece) : "";
      case TokenType::kUndefined:
      case TokenType::kUnused: break;
    }
    return "";
  }

 protected:
  std::string comparable(std::string_view text) const override {
    std::string out;
    out.reserve(text.size() + text.size() / 2);
    for (char c : text) {
      if (c == ' ') {
        out.append(kSpace);
      } else {
        out.push_back(c);
      }
    }
    return out;
  }
  std::string_view prefix() const override { return adds_prefix_ ? kSpace : ""; }
  absl::Status encode_ordinary(std::string_view text, std::vector<int32_t>* ids) const override {
    return spm_.encode(text, ids);
  }

 private:
  bool adds_prefix_;
  Spm spm_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> make_spm_tokenizer(Vocab vocab) {
  auto tokenizer = std::make_unique<SpmTokenizer>(std::move(vocab));
  ENGINE_RETURN_IF_ERROR(tokenizer->index_special());
  return tokenizer;
}

}  // namespace engine
