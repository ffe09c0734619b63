// Byte-level BPE (model `gpt2`): words by the pre-tokenizer, bytes as symbols, merges by rank.
#include <array>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/file/gguf_common.h"
#include "lib/text/bpe.h"
#include "lib/text/byte_map.h"
#include "lib/text/normalise.h"
#include "lib/text/pretokenize.h"
#include "lib/text/utf8_scan.h"
#include "lib/text/vocab_tokenizer.h"

namespace engine {

namespace {

// The piece text of raw bytes.
std::string mapped(std::string_view bytes) {
  std::string text;
  for (char byte : bytes) utf8_append(kByteToCodePoint[static_cast<uint8_t>(byte)], &text);
  return text;
}

// Back again; what is not of the alphabet stays as it is.
std::string unmapped(std::string_view text) {
  std::string bytes;
  while (!text.empty()) {
    const Utf8Step step = utf8_step(text);
    if (step.valid && step.scalar < kByteMapEnd && kCodePointToByte[step.scalar] >= 0) {
      bytes.push_back(static_cast<char>(kCodePointToByte[step.scalar]));
    } else {
      bytes.append(text.substr(0, step.n_bytes));
    }
    text.remove_prefix(step.n_bytes);
  }
  return bytes;
}

class BpeTokenizer final : public VocabTokenizer {
 public:
  BpeTokenizer(Vocab vocab, Pretokenizer pretokenizer, bool whole_words, bool fallback)
      : VocabTokenizer(std::move(vocab), pretokenizer.rule().adds_bos),
        pretokenizer_(std::move(pretokenizer)),
        bpe_(this->vocab().merges()),
        whole_words_(whole_words),
        fallback_(fallback) {
    for (int byte = 0; byte < 256; ++byte) {
      const char text = static_cast<char>(byte);
      byte_ids_[byte] = this->vocab().find_ordinary(mapped({&text, 1}));
    }
  }

  using VocabTokenizer::index_special;
  std::string_view pre_name() const override { return pretokenizer_.rule().name; }
  bool pretokenizer_fallback() const override { return fallback_; }
  bool strips_leading_space() const override { return false; }

  std::string token_bytes(int32_t id, bool with_special) const override {
    if (!vocab().has(id)) return "";
    switch (vocab().type(id)) {
      case TokenType::kNormal:
      case TokenType::kByte: return unmapped(vocab().piece(id));
      case TokenType::kUserDefined: return std::string(vocab().piece(id));
      case TokenType::kControl:
      case TokenType::kUnknown: return with_special ? std::string(vocab().piece(id)) : "";
      case TokenType::kUndefined:
      case TokenType::kUnused: break;
    }
    return "";
  }

 protected:
  absl::Status encode_ordinary(std::string_view text, std::vector<int32_t>* ids) const override {
    std::string normal;
    if (pretokenizer_.rule().nfc) {
      ENGINE_ASSIGN_OR_RETURN(normal, to_nfc(text));
      text = normal;
    }
    std::vector<size_t> ends;
    ENGINE_RETURN_IF_ERROR(pretokenizer_.split(text, &ends));
    Bpe::Work work;
    std::vector<int32_t> symbols;
    size_t begin = 0;
    for (size_t end : ends) {
      const std::string_view word = text.substr(begin, end - begin);
      begin = end;
      if (whole_words_) {
        const int32_t id = vocab().find_ordinary(mapped(word));
        if (id >= 0) {
          ids->push_back(id);
          continue;
        }
      }
      symbols.clear();
      for (char c : word) {
        const uint8_t byte = static_cast<uint8_t>(c);
        if (byte_ids_[byte] < 0) {
          return error(Code::kTokenizer, absl::StrCat("byte ", byte, " of the text has no token"));
        }
        symbols.push_back(byte_ids_[byte]);
      }
      bpe_.merge(symbols, &work, ids);
    }
    return absl::OkStatus();
  }

 private:
  Pretokenizer pretokenizer_;
  Bpe bpe_;
  bool whole_words_;  // a word that is a piece is taken whole
  bool fallback_;
  std::array<int32_t, 256> byte_ids_;
};

// The error for a file whose pre-tokenizer is absent, unknown or not supported.
absl::Status pre_error(const Gguf& file, const Vocab& vocab) {
  constexpr std::string_view kKey = "tokenizer.ggml.pre";
  if (!vocab.pre.has_value()) {
    return error_at(Code::kTokenizer, kKey, kNoOffset,
                    absl::StrCat(kKey, ": the file names no pre-tokenizer"));
  }
  const uint64_t offset = file.find(kKey)->offset;
  for (const UnsupportedPretokenizer& known : unsupported_pretokenizers()) {
    if (known.name != *vocab.pre) continue;
    return gguf_error(
        Code::kTokenizer, kKey, offset,
        absl::StrCat("pre-tokenizer '", *vocab.pre, "' is not supported: ", known.why));
  }
  return gguf_error(Code::kTokenizer, kKey, offset,
                    absl::StrCat("pre-tokenizer '", *vocab.pre, "' is not known"));
}

// Llama 3's 128,000 pieces, whose published tokenizer takes whole words whatever its file says.
bool is_llama3_vocabulary(const Vocab& vocab) {
  constexpr int32_t kPieces = 128000;
  return vocab.size() > kPieces && vocab.type(kPieces - 1) == TokenType::kNormal &&
         vocab.piece(kPieces) == "<|begin_of_text|>";
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> make_bpe_tokenizer(const Gguf& file, Vocab vocab,
                                                              const TokenizerOptions& options) {
  // The model `gemma4` has one rule, whatever its file calls it.
  const bool gemma4 = vocab.model == "gemma4";
  const PretokenizeRule* rule = gemma4                  ? find_pretokenize_rule("gemma4")
                                : vocab.pre.has_value() ? find_pretokenize_rule(*vocab.pre)
                                                        : nullptr;
  const bool fallback = rule == nullptr;
  if (fallback && !options.allow_pretokenizer_fallback) return pre_error(file, vocab);
  if (fallback) rule = find_pretokenize_rule("default");
  ENGINE_ASSIGN_OR_RETURN(Pretokenizer pretokenizer, Pretokenizer::create(*rule));
  if (rule->alphabet == Alphabet::kEscapedSpaces) {
    return make_escaped_bpe_tokenizer(std::move(vocab), std::move(pretokenizer));
  }
  const bool whole_words =
      rule->ignore_merges || (rule->name == "smaug-bpe" && is_llama3_vocabulary(vocab));
  auto tokenizer = std::make_unique<BpeTokenizer>(std::move(vocab), std::move(pretokenizer),
                                                  whole_words, fallback);
  ENGINE_RETURN_IF_ERROR(tokenizer->index_special());
  return tokenizer;
}

}  // namespace engine
