// engine.h, text: tokenize, detokenize, streaming, end tokens, chat.
#include <string>
#include <utility>
#include <vector>

#include "lib/api/api_common.h"
#include "lib/text/chat.h"
#include "lib/text/pretokenize_rules.h"
#include "lib/text/utf8_stream.h"

using engine::Code;
using engine::api::copy_out;
using engine::api::guard;
using engine::api::tokenizer_of;

struct engine_text_decoder {
  const engine_model* model = nullptr;
  const engine::Tokenizer* tokenizer = nullptr;
  bool special = false;
  bool strip_space = false;  // the next visible token loses one leading space
  engine::Utf8Stream stream;
  std::string text;  // what the last call handed out
};

namespace {

absl::Status check_id(const engine_model* model, int32_t id) {
  const engine::Model& m = *model->model;
  const int64_t n = m.has_weights ? m.config.n_vocab : m.tokenizer->vocab_size();
  if (id < 0 || id >= n) {
    return engine::error(Code::kArgument, absl::StrCat("id ", id, " is outside 0 .. ", n - 1));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<engine::ChatSegment>> render(const engine_model* model,
                                                        const engine_chat_message* messages,
                                                        uint64_t n_messages, int32_t generate) {
  ENGINE_ASSIGN_OR_RETURN([[maybe_unused]] const engine::Tokenizer* tokenizer, tokenizer_of(model));
  if (messages == nullptr || n_messages == 0) {
    return engine::error(Code::kArgument, "no messages were given");
  }
  const engine::Model& m = *model->model;
  if (m.chat_template.empty()) {
    return engine::error_at(Code::kChatTemplate, "tokenizer.chat_template", engine::kNoOffset,
                            "the file has no chat template");
  }
  if (m.chat_family == engine::ChatFamily::kUnknown) {
    return engine::error_at(Code::kChatTemplate, "tokenizer.chat_template", engine::kNoOffset,
                            "the file's chat template is not recognised; render it in the host and "
                            "tokenize with ENGINE_SPECIAL_ALL, or use a ChatML or Gemma model");
  }
  std::vector<engine::ChatMessage> list;
  for (uint64_t i = 0; i < n_messages; ++i) {
    if (messages[i].role == nullptr ||
        (messages[i].content == nullptr && messages[i].content_bytes)) {
      return engine::error(Code::kArgument, absl::StrCat("messages[", i, "] has a NULL member"));
    }
    const char* content = messages[i].content == nullptr ? "" : messages[i].content;
    list.push_back({messages[i].role, {content, messages[i].content_bytes}});
  }
  return engine::render_chat(m.chat_family, m.chat_template, list, generate != 0);
}

}  // namespace

extern "C" {

int32_t engine_tokenize(const engine_model* model, const char* text, uint64_t n_bytes, int32_t bos,
                        int32_t special, int32_t* ids, uint64_t capacity, uint64_t* n_ids,
                        uint32_t* flags, engine_error* error) {
  return guard(error, [&]() -> absl::Status {
    ENGINE_ASSIGN_OR_RETURN(const engine::Tokenizer* tokenizer, tokenizer_of(model));
    if (text == nullptr && n_bytes > 0) return engine::error(Code::kArgument, "the text is NULL");
    if (bos < ENGINE_BOS_DEFAULT || bos > ENGINE_BOS_FORCE) {
      return engine::error(Code::kArgument, "bos is not an ENGINE_BOS_ value");
    }
    if (special < ENGINE_SPECIAL_PLAIN || special > ENGINE_SPECIAL_ALL) {
      return engine::error(Code::kArgument, "special is not an ENGINE_SPECIAL_ value");
    }
    ENGINE_ASSIGN_OR_RETURN(
        const engine::TokenizeResult result,
        tokenizer->encode({n_bytes ? text : "", n_bytes}, static_cast<engine::BosPolicy>(bos),
                          static_cast<engine::SpecialPolicy>(special)));
    if (flags != nullptr) {
      *flags = 0;
      if (result.bos_added) *flags |= ENGINE_TOKENIZE_BOS_ADDED;
      if (result.eos_added) *flags |= ENGINE_TOKENIZE_EOS_ADDED;
      if (result.text_had_bos) *flags |= ENGINE_TOKENIZE_TEXT_HAD_BOS;
    }
    return copy_out(result.ids.data(), result.ids.size(), ids, capacity, n_ids);
  });
}

int32_t engine_token_bytes(const engine_model* model, int32_t id, int32_t special, char* bytes,
                           uint64_t capacity, uint64_t* n_bytes) {
  return guard(nullptr, [&]() -> absl::Status {
    ENGINE_ASSIGN_OR_RETURN(const engine::Tokenizer* tokenizer, tokenizer_of(model));
    ENGINE_RETURN_IF_ERROR(check_id(model, id));
    const std::string text = tokenizer->token_bytes(id, special != 0);
    return copy_out(text.data(), text.size(), bytes, capacity, n_bytes);
  });
}

int32_t engine_detokenize(const engine_model* model, const int32_t* ids, uint64_t n_ids,
                          int32_t special, char* text, uint64_t capacity, uint64_t* n_bytes,
                          engine_error* error) {
  return guard(error, [&]() -> absl::Status {
    ENGINE_ASSIGN_OR_RETURN(const engine::Tokenizer* tokenizer, tokenizer_of(model));
    if (ids == nullptr && n_ids > 0) return engine::error(Code::kArgument, "the ids are NULL");
    for (uint64_t i = 0; i < n_ids; ++i) ENGINE_RETURN_IF_ERROR(check_id(model, ids[i]));
    const std::string result = tokenizer->decode({ids, n_ids}, special != 0);
    return copy_out(result.data(), result.size(), text, capacity, n_bytes);
  });
}

int32_t engine_text_decoder_create(const engine_model* model, int32_t special, int32_t at_start,
                                   engine_text_decoder** decoder) {
  return guard(nullptr, [&]() -> absl::Status {
    if (decoder == nullptr) return engine::error(Code::kArgument, "the handle pointer is NULL");
    *decoder = nullptr;
    ENGINE_ASSIGN_OR_RETURN(const engine::Tokenizer* tokenizer, tokenizer_of(model));
    auto made = std::make_unique<engine_text_decoder>();
    made->model = model;
    made->tokenizer = tokenizer;
    made->special = special != 0;
    made->strip_space = at_start != 0 && tokenizer->strips_leading_space();
    *decoder = made.release();
    return absl::OkStatus();
  });
}

int32_t engine_text_decoder_push(engine_text_decoder* decoder, int32_t id, const char** text,
                                 uint64_t* n_bytes) {
  return guard(nullptr, [&]() -> absl::Status {
    if (decoder == nullptr || text == nullptr || n_bytes == nullptr) {
      return engine::error(Code::kArgument, "a pointer is NULL");
    }
    ENGINE_RETURN_IF_ERROR(check_id(decoder->model, id));
    std::string bytes = decoder->tokenizer->token_bytes(id, decoder->special);
    if (decoder->strip_space && !bytes.empty()) {
      if (bytes[0] == ' ') bytes.erase(0, 1);
      decoder->strip_space = false;
    }
    decoder->text.clear();
    decoder->stream.push(bytes, &decoder->text);
    *text = decoder->text.c_str();
    *n_bytes = decoder->text.size();
    return absl::OkStatus();
  });
}

int32_t engine_text_decoder_flush(engine_text_decoder* decoder, const char** bytes,
                                  uint64_t* n_bytes) {
  return guard(nullptr, [&]() -> absl::Status {
    if (decoder == nullptr || bytes == nullptr || n_bytes == nullptr) {
      return engine::error(Code::kArgument, "a pointer is NULL");
    }
    decoder->text = decoder->stream.flush();
    decoder->strip_space = false;
    *bytes = decoder->text.c_str();
    *n_bytes = decoder->text.size();
    return absl::OkStatus();
  });
}

void engine_text_decoder_destroy(engine_text_decoder* decoder) { delete decoder; }

int32_t engine_token_end_reason(const engine_model* model, int32_t id) {
  if (model == nullptr || model->model->tokenizer == nullptr) return ENGINE_END_NONE;
  for (const engine::EndToken& end : model->model->tokenizer->end_tokens()) {
    if (end.id == id) return static_cast<int32_t>(end.reason);
  }
  return ENGINE_END_NONE;
}

const char* engine_pretokenizer_at(uint32_t index, int32_t* supported) {
  const auto rules = engine::pretokenize_rules();
  const auto refused = engine::unsupported_pretokenizers();
  if (index >= rules.size() + refused.size()) return nullptr;
  const bool known = index < rules.size();
  if (supported != nullptr) *supported = known ? 1 : 0;
  // Names are literals, NUL-terminated.
  return known ? rules[index].name.data() : refused[index - rules.size()].name.data();
}

int32_t engine_chat_template(const engine_model* model, const char** text, uint64_t* n_bytes) {
  return guard(nullptr, [&]() -> absl::Status {
    if (model == nullptr || text == nullptr || n_bytes == nullptr) {
      return engine::error(Code::kArgument, "a pointer is NULL");
    }
    const std::string_view source = model->model->chat_template;
    if (source.empty()) return engine::error(Code::kChatTemplate, "the file has no chat template");
    *text = source.data();
    *n_bytes = source.size();
    return absl::OkStatus();
  });
}

int32_t engine_chat_tokenize(const engine_model* model, const engine_chat_message* messages,
                             uint64_t n_messages, int32_t generate, int32_t* ids, uint64_t capacity,
                             uint64_t* n_ids, engine_error* error) {
  return guard(error, [&]() -> absl::Status {
    ENGINE_ASSIGN_OR_RETURN(const std::vector<engine::ChatSegment> segments,
                            render(model, messages, n_messages, generate));
    ENGINE_ASSIGN_OR_RETURN(const std::vector<int32_t> result,
                            engine::chat_ids(*model->model->tokenizer, segments));
    return copy_out(result.data(), result.size(), ids, capacity, n_ids);
  });
}

int32_t engine_chat_render(const engine_model* model, const engine_chat_message* messages,
                           uint64_t n_messages, int32_t generate, char* text, uint64_t capacity,
                           uint64_t* n_bytes, engine_error* error) {
  return guard(error, [&]() -> absl::Status {
    ENGINE_ASSIGN_OR_RETURN(const std::vector<engine::ChatSegment> segments,
                            render(model, messages, n_messages, generate));
    const std::string result = engine::chat_text(segments);
    return copy_out(result.data(), result.size(), text, capacity, n_bytes);
  });
}

}  // extern "C"
