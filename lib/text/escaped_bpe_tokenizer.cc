// BPE on text with escaped spaces (model `gemma4`): characters as symbols, merges by rank, bytes for
// what has no piece.
#include <array>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/text/bpe.h"
#include "lib/text/byte_map.h"
#include "lib/text/escaped_spaces.h"
#include "lib/text/utf8_scan.h"
#include "lib/text/vocab_tokenizer.h"

namespace engine {

namespace {

class EscapedBpeTokenizer final : public VocabTokenizer {
 public:
  EscapedBpeTokenizer(Vocab vocab, Pretokenizer pretokenizer)
      : VocabTokenizer(std::move(vocab), pretokenizer.rule().adds_bos),
        pretokenizer_(std::move(pretokenizer)),
        bpe_(this->vocab().merges()) {
    byte_ids_.fill(-1);
    constexpr std::string_view kHex = "0123456789ABCDEF";
    for (size_t byte = 0; byte < 256; ++byte) {
      const char text[] = {'<', '0', 'x', kHex[byte / 16], kHex[byte % 16], '>'};
      byte_ids_[byte] = this->vocab().find({text, sizeof(text)});
    }
  }

  using VocabTokenizer::index_special;
  std::string_view pre_name() const override { return pretokenizer_.rule().name; }
  bool strips_leading_space() const override { return pretokenizer_.rule().starts_with_space; }

  std::string token_bytes(int32_t id, bool with_special) const override {
    if (!vocab().has(id)) return "";
    const std::string_view piece = vocab().piece(id);
    switch (vocab().type(id)) {
      case TokenType::kNormal:
      case TokenType::kByte: {
        const int byte = byte_piece_value(piece);
        return byte >= 0 ? std::string(1, static_cast<char>(byte)) : unescape_spaces(piece);
      }
      case TokenType::kUserDefined:
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
  absl::Status encode_ordinary(std::string_view text, std::vector<int32_t>* ids) const override {
    std::string prefixed;
    if (pretokenizer_.rule().starts_with_space && !absl::StartsWith(text, kEscapedSpace)) {
      prefixed = absl::StrCat(kEscapedSpace, text);
      text = prefixed;
    }
    std::vector<size_t> ends;
    ENGINE_RETURN_IF_ERROR(pretokenizer_.split(text, &ends));
    Bpe::Work work;
    std::vector<int32_t> symbols;
    size_t begin = 0;
    for (size_t end : ends) {
      std::string_view word = text.substr(begin, end - begin);
      begin = end;
      const int32_t newlines = word[0] == '\n' ? vocab().find_text(word) : -1;
      if (newlines >= 0) {
        ids->push_back(newlines);
        continue;
      }
      symbols.clear();
      while (!word.empty()) {
        const Utf8Step step = utf8_step(word);
        ENGINE_RETURN_IF_ERROR(put_symbol(word.substr(0, step.n_bytes), &symbols));
        word.remove_prefix(step.n_bytes);
      }
      bpe_.merge(symbols, &work, ids);
    }
    return absl::OkStatus();
  }

 private:
  // The piece of one character, or the pieces of its bytes, which no merge takes.
  absl::Status put_symbol(std::string_view character, std::vector<int32_t>* symbols) const {
    const int32_t id = vocab().find_text(character);
    if (id >= 0) {
      symbols->push_back(id);
      return absl::OkStatus();
    }
    for (char c : character) {
      const uint8_t byte = static_cast<uint8_t>(c);
      const int32_t byte_id = byte_ids_[byte] >= 0 ? byte_ids_[byte] : vocab().unknown.value_or(-1);
      if (byte_id < 0) {
        return error(Code::kTokenizer, absl::StrCat("byte ", byte, " of the text has no token"));
      }
      symbols->push_back(byte_id);
    }
    return absl::OkStatus();
  }

  Pretokenizer pretokenizer_;
  Bpe bpe_;
  std::array<int32_t, 256> byte_ids_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> make_escaped_bpe_tokenizer(Vocab vocab,
                                                                      Pretokenizer pretokenizer) {
  // Gemma 4's files may say otherwise, and its models were trained with BOS.
  if (vocab.model == "gemma4") vocab.add_bos = vocab.bos.has_value();
  auto tokenizer = std::make_unique<EscapedBpeTokenizer>(std::move(vocab), std::move(pretokenizer));
  ENGINE_RETURN_IF_ERROR(tokenizer->index_special());
  return tokenizer;
}

}  // namespace engine
