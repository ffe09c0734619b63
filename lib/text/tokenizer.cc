// Chooses the tokenizer of a file's vocabulary.
#include "lib/text/tokenizer.h"

#include <utility>

#include "lib/text/vocab_tokenizer.h"

namespace engine {

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::create(const Gguf& file,
                                                             const TokenizerOptions& options) {
  ENGINE_ASSIGN_OR_RETURN(Vocab vocab, Vocab::read(file, options));
  if (vocab.model == "llama") return make_spm_tokenizer(std::move(vocab));
  const GgufValue* pre = file.find("tokenizer.ggml.pre");
  return make_bpe_tokenizer(std::move(vocab), options, pre == nullptr ? kNoOffset : pre->offset);
}

}  // namespace engine
