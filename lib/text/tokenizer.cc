// Chooses the tokenizer of a file's vocabulary.
#include "lib/text/tokenizer.h"

#include <utility>

#include "lib/text/vocab_tokenizer.h"

namespace engine {

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::create(const Gguf& file,
                                                             const TokenizerOptions& options) {
  ENGINE_ASSIGN_OR_RETURN(Vocab vocab, Vocab::read(file, options));
  if (vocab.model == "llama") return make_spm_tokenizer(std::move(vocab));
  if (vocab.model == "bert") return make_wordpiece_tokenizer(file, std::move(vocab));
  if (vocab.model == "t5") return make_unigram_tokenizer(file, std::move(vocab));
  if (vocab.model == "rwkv") return make_rwkv_tokenizer(std::move(vocab));
  return make_bpe_tokenizer(file, std::move(vocab), options);
}

}  // namespace engine
