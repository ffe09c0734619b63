// engine.h, text: tokenize, detokenize, streaming, end tokens, chat.
#include <optional>
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

// What a host can do where the file's own template is of no use.
std::string chat_alternatives() {
  std::string names;
  for (const engine::BuiltinTemplate& known : engine::builtin_chat_templates()) {
    absl::StrAppend(&names, names.empty() ? "" : ", ", known.name);
  }
  return absl::StrCat("; give another one in engine_chat_params (template_text, or template_name: ",
                      names, "), or render in the host and tokenize with ENGINE_SPECIAL_ALL");
}

// The template to use: the caller's, a built-in one, or the file's, which lives in *own or in the model.
absl::StatusOr<const engine::ChatTemplate*> choose_template(
    const engine::Model& m, const engine_chat_params& params,
    std::optional<engine::ChatTemplate>* own) {
  if (params.template_text != nullptr && params.template_name != nullptr) {
    return engine::error(Code::kArgument, "template_text and template_name exclude each other");
  }
  std::string_view source;
  if (params.template_name != nullptr) {
    const auto* known = engine::find_builtin_chat_template(params.template_name);
    if (known == nullptr) {
      return engine::error(Code::kArgument,
                           absl::StrCat("no chat template is called '", params.template_name, "'"));
    }
    source = known->source;
  } else if (params.template_text != nullptr) {
    source = {params.template_text, params.template_bytes};
  } else if (m.chat.has_value()) {
    return &*m.chat;
  } else {
    return engine::error_at(
        Code::kChatTemplate, "tokenizer.chat_template", engine::kNoOffset,
        absl::StrCat(m.chat_status.ok() ? "the file has no chat template" : m.chat_status.message(),
                     chat_alternatives()));
  }
  ENGINE_ASSIGN_OR_RETURN(*own, engine::ChatTemplate::parse(source));
  return &**own;
}

absl::StatusOr<std::vector<engine::ChatSegment>> render(const engine_model* model,
                                                        const engine_chat_message* messages,
                                                        uint64_t n_messages,
                                                        const engine_chat_params& params) {
  ENGINE_ASSIGN_OR_RETURN(const engine::Tokenizer* tokenizer, tokenizer_of(model));
  if (messages == nullptr || n_messages == 0) {
    return engine::error(Code::kArgument, "no messages were given");
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
  std::optional<engine::ChatTemplate> own;
  ENGINE_ASSIGN_OR_RETURN(const engine::ChatTemplate* chat,
                          choose_template(*model->model, params, &own));
  engine::ChatOptions options;
  options.add_generation_prompt = params.generate != 0;
  const auto piece = [&](std::optional<int32_t> id) {
    return id.has_value() ? tokenizer->piece(*id) : std::string_view();
  };
  options.bos_token = piece(tokenizer->bos());
  options.eos_token = piece(tokenizer->eos());
  if (params.variables_json != nullptr) options.variables_json = params.variables_json;
  if (params.unix_time != 0) options.unix_time = params.unix_time;
  return chat->render(list, options);
}

absl::Status read_chat_params(const engine_chat_params* in, engine_chat_params* out) {
  if (in == nullptr) return engine::error(Code::kArgument, "the parameters are NULL");
  return engine::api::read_struct(
      in, offsetof(engine_chat_params, unix_time) + sizeof(in->unix_time), out);
}

engine_chat_params plain_chat_params(int32_t generate) {
  engine_chat_params params = ENGINE_CHAT_PARAMS_INIT;
  params.generate = generate;
  return params;
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

const char* engine_chat_template_at(uint32_t index) {
  const auto known = engine::builtin_chat_templates();
  // Names are literals, NUL-terminated.
  return index < known.size() ? known[index].name.data() : nullptr;
}

int32_t engine_chat_tokenize(const engine_model* model, const engine_chat_message* messages,
                             uint64_t n_messages, int32_t generate, int32_t* ids, uint64_t capacity,
                             uint64_t* n_ids, engine_error* error) {
  const engine_chat_params params = plain_chat_params(generate);
  return engine_chat_tokenize_with(model, messages, n_messages, &params, ids, capacity, n_ids,
                                   error);
}

int32_t engine_chat_render(const engine_model* model, const engine_chat_message* messages,
                           uint64_t n_messages, int32_t generate, char* text, uint64_t capacity,
                           uint64_t* n_bytes, engine_error* error) {
  const engine_chat_params params = plain_chat_params(generate);
  return engine_chat_render_with(model, messages, n_messages, &params, text, capacity, n_bytes,
                                 error);
}

int32_t engine_chat_tokenize_with(const engine_model* model, const engine_chat_message* messages,
                                  uint64_t n_messages, const engine_chat_params* params,
                                  int32_t* ids, uint64_t capacity, uint64_t* n_ids,
                                  engine_error* error) {
  return guard(error, [&]() -> absl::Status {
    engine_chat_params p;
    ENGINE_RETURN_IF_ERROR(read_chat_params(params, &p));
    ENGINE_ASSIGN_OR_RETURN(const std::vector<engine::ChatSegment> segments,
                            render(model, messages, n_messages, p));
    ENGINE_ASSIGN_OR_RETURN(const std::vector<int32_t> result,
                            engine::chat_ids(*model->model->tokenizer, segments));
    return copy_out(result.data(), result.size(), ids, capacity, n_ids);
  });
}

int32_t engine_chat_render_with(const engine_model* model, const engine_chat_message* messages,
                                uint64_t n_messages, const engine_chat_params* params, char* text,
                                uint64_t capacity, uint64_t* n_bytes, engine_error* error) {
  return guard(error, [&]() -> absl::Status {
    engine_chat_params p;
    ENGINE_RETURN_IF_ERROR(read_chat_params(params, &p));
    ENGINE_ASSIGN_OR_RETURN(const std::vector<engine::ChatSegment> segments,
                            render(model, messages, n_messages, p));
    const std::string result = engine::chat_text(segments);
    return copy_out(result.data(), result.size(), text, capacity, n_bytes);
  });
}

}  // extern "C"
