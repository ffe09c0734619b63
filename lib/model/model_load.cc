// Loads a model in order: container, architecture, hyper-parameters, tensors, vocabulary, chat template.
#include "lib/model/model_load.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/file/shards.h"
#include "lib/model/config_read.h"
#include "lib/quant/format.h"

namespace engine {
namespace {

BlockShape gguf_block_shape(uint32_t ggml_type) {
  const FormatInfo* info = format_info(ggml_type);
  if (info == nullptr) return {0, 0, refused_reason(ggml_type)};
  return {info->block_elements, info->block_bytes, info->name};
}

// A shard alone has not all weights; by its path its set would have been found.
absl::Status check_whole(const Gguf& file) {
  ENGINE_ASSIGN_OR_RETURN(const auto keys, read_shard_keys(file));
  if (!keys.has_value()) return absl::OkStatus();
  return error_at(
      Code::kFileUnsupported, "split.count", file.find("split.count")->offset,
      absl::StrCat("the file is shard ", keys->number + 1, " of ", keys->count,
                   " and its name is not PREFIX-00001-of-00003.gguf; open the set by the "
                   "list of its paths"));
}

// Reads the vocabulary where the file has one.
absl::Status load_text(const LoadOptions& options, Model* model) {
  auto kind = model->file.get_string("tokenizer.ggml.model");
  if (kind.ok() && (!kind->has_value() || **kind == "none" || **kind == "no_vocab")) {
    if (!options.vocab_only) return absl::OkStatus();
    return error_at(Code::kTokenizer, "tokenizer.ggml.model", kNoOffset,
                    "the file has no text vocabulary");
  }
  TokenizerOptions text_options;
  text_options.allow_pretokenizer_fallback = options.allow_pretokenizer_fallback;
  ENGINE_ASSIGN_OR_RETURN(model->tokenizer, Tokenizer::create(model->file, text_options));
  auto chat = model->file.get_string("tokenizer.chat_template");
  if (chat.ok() && chat->has_value()) {
    model->chat_template = **chat;
    auto read = ChatTemplate::parse(model->chat_template);
    if (read.ok()) {
      model->chat = std::move(*read);
    } else {
      model->chat_status = read.status();
    }
  }
  return absl::OkStatus();
}

absl::Status load_weights(const LoadOptions& options, Model* model) {
  ENGINE_ASSIGN_OR_RETURN(model->arch, read_architecture(model->file));
  ENGINE_ASSIGN_OR_RETURN(model->config, read_config(model->file, *model->arch));
  ENGINE_ASSIGN_OR_RETURN(model->weights, bind_weights(model->file, *model->arch,
                                                       options.readable_past_end, &model->config));
  model->has_weights = true;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> load_model(std::span<const uint8_t> bytes,
                                                  const LoadOptions& options) {
  auto model = std::make_unique<Model>();
  GgufOptions gguf_options;
  gguf_options.metadata_only = options.metadata_only || options.vocab_only;
  ENGINE_ASSIGN_OR_RETURN(
      model->file, options.shards.empty()
                       ? Gguf::parse(bytes, gguf_block_shape, gguf_options)
                       : Gguf::parse_set(bytes, options.shards, gguf_block_shape, gguf_options));
  if (options.shards.empty() && !gguf_options.metadata_only) {
    ENGINE_RETURN_IF_ERROR(check_whole(model->file));
  }
  if (options.metadata_only) return model;
  if (options.before_tensors) options.before_tensors(model->file.data_start());
  if (!options.vocab_only) ENGINE_RETURN_IF_ERROR(load_weights(options, model.get()));
  ENGINE_RETURN_IF_ERROR(load_text(options, model.get()));
  if (model->has_weights && model->tokenizer != nullptr &&
      model->tokenizer->vocab_size() > model->config.n_vocab) {
    return error_at(Code::kModelTensor, "token_embd.weight",
                    model->file.find_tensor("token_embd.weight")->info_offset,
                    absl::StrCat("the embedding has ", model->config.n_vocab,
                                 " rows for a vocabulary of ", model->tokenizer->vocab_size()));
  }
  return model;
}

}  // namespace engine
