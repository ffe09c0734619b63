// What all tokenizers share: added tokens, BOS and EOS, joining of parts, questions about the
// vocabulary.
#ifndef ENGINE_LIB_TEXT_VOCAB_TOKENIZER_H_
#define ENGINE_LIB_TEXT_VOCAB_TOKENIZER_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lib/text/pretokenize.h"
#include "lib/text/special_split.h"
#include "lib/text/tokenizer.h"
#include "lib/text/vocab.h"

namespace engine {

class VocabTokenizer : public Tokenizer {
 public:
  absl::StatusOr<TokenizeResult> encode(std::string_view text, BosPolicy bos,
                                        SpecialPolicy special) const override;
  absl::Status encode_append(std::string_view text, SpecialPolicy special, bool at_start,
                             std::vector<int32_t>* ids) const override;
  absl::Status encode_parts(std::span<const TextPart> parts, bool at_start,
                            std::vector<int32_t>* ids) const override;
  std::string decode(std::span<const int32_t> ids, bool with_special) const override;

  int32_t vocab_size() const override { return vocab_.size(); }
  std::string_view model_name() const override { return vocab_.model; }
  std::string_view pre_name() const override { return ""; }
  bool pretokenizer_fallback() const override { return false; }
  int64_t skipped_merges() const override { return vocab_.skipped_merges(); }
  TokenType type(int32_t id) const override;
  std::string_view piece(int32_t id) const override;
  std::optional<int32_t> find(std::string_view piece) const override;
  std::optional<int32_t> bos() const override { return vocab_.bos; }
  std::optional<int32_t> eos() const override { return vocab_.eos; }
  bool adds_bos() const override { return adds_bos_; }
  bool adds_eos() const override { return adds_eos_; }
  std::span<const EndToken> end_tokens() const override { return vocab_.end_tokens; }

 protected:
  // `adds_bos` and `adds_eos` hold where the file has no add_bos_token, add_eos_token.
  VocabTokenizer(Vocab vocab, bool adds_bos, bool adds_eos = false);
  // Finds the added tokens; an error where the vocabulary has absurdly many.
  absl::Status index_special();
  const Vocab& vocab() const { return vocab_; }
  // True when the piece is an added token that ordinary text of the vocabulary may become.
  bool is_plain_added(int32_t id) const;

  // The form in which pieces and text are compared, e.g. with spaces escaped.
  virtual std::string comparable(std::string_view text) const { return std::string(text); }
  // True when white space that follows this added token belongs to it.
  virtual bool takes_space_after(int32_t) const { return false; }
  // In that form: what is put before a text that begins, or that follows an added token.
  virtual std::string_view prefix() const { return ""; }
  // Appends the ids of comparable text that holds no added token.
  virtual absl::Status encode_ordinary(std::string_view text, std::vector<int32_t>* ids) const = 0;

 private:
  absl::Status encode_all(std::span<const TextPart> parts, bool at_start, bool* begins_special,
                          std::vector<int32_t>* ids) const;

  Vocab vocab_;
  bool adds_bos_;
  bool adds_eos_;
  std::unique_ptr<const SpecialSplit> special_;
};

absl::StatusOr<std::unique_ptr<Tokenizer>> make_bpe_tokenizer(const Gguf& file, Vocab vocab,
                                                              const TokenizerOptions& options);
absl::StatusOr<std::unique_ptr<Tokenizer>> make_escaped_bpe_tokenizer(Vocab vocab,
                                                                      Pretokenizer pretokenizer);
absl::StatusOr<std::unique_ptr<Tokenizer>> make_spm_tokenizer(Vocab vocab);
absl::StatusOr<std::unique_ptr<Tokenizer>> make_wordpiece_tokenizer(const Gguf& file, Vocab vocab);
absl::StatusOr<std::unique_ptr<Tokenizer>> make_unigram_tokenizer(const Gguf& file, Vocab vocab);
absl::StatusOr<std::unique_ptr<Tokenizer>> make_rwkv_tokenizer(Vocab vocab);

}  // namespace engine

#endif  // ENGINE_LIB_TEXT_VOCAB_TOKENIZER_H_
