// Conversations as variables of a template, rendered text as segments and ids.
#include "lib/text/chat.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/text/jinja.h"
#include "nlohmann/json.hpp"

namespace engine {

namespace {

using jinja::Value;
using Json = nlohmann::ordered_json;

constexpr int kMaxJsonDepth = 32;

absl::StatusOr<Value> from_json(const Json& json, int depth) {
  if (depth > kMaxJsonDepth) return error(Code::kArgument, "the variables are nested too deeply");
  if (json.is_null()) return Value::none();
  if (json.is_boolean()) return Value::boolean(json.get<bool>());
  if (json.is_number_unsigned() && json.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) {
    return error(Code::kArgument, "a number of the variables is too large");
  }
  if (json.is_number_integer()) return Value::integer(json.get<int64_t>());
  if (json.is_number()) return Value::real(json.get<double>());
  if (json.is_string()) return Value::text(json.get_ref<const std::string&>(), true);
  if (json.is_array()) {
    jinja::List items;
    for (const Json& element : json) {
      ENGINE_ASSIGN_OR_RETURN(Value value, from_json(element, depth + 1));
      items.push_back(std::move(value));
    }
    return Value::list(std::move(items));
  }
  jinja::Dict entries;
  for (const auto& [key, element] : json.items()) {
    ENGINE_ASSIGN_OR_RETURN(Value value, from_json(element, depth + 1));
    entries.emplace_back(key, std::move(value));
  }
  return Value::dict(std::move(entries));
}

absl::StatusOr<Value> read_variables(std::string_view text) {
  if (text.empty()) return Value::dict({});
  const Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded() || !json.is_object()) {
    return error(Code::kArgument, "the variables of the chat template are no JSON object");
  }
  return from_json(json, 0);
}

}  // namespace

struct ChatTemplate::Tree {
  jinja::Block block;
};

ChatTemplate::ChatTemplate(std::unique_ptr<Tree> tree) : tree_(std::move(tree)) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

absl::StatusOr<ChatTemplate> ChatTemplate::parse(std::string_view source) {
  auto tree = std::make_unique<Tree>();
  ENGINE_ASSIGN_OR_RETURN(tree->block, jinja::parse(source));
  return ChatTemplate(std::move(tree));
}

absl::StatusOr<std::vector<ChatSegment>> ChatTemplate::render(std::span<const ChatMessage> messages,
                                                              const ChatOptions& options) const {
  ENGINE_ASSIGN_OR_RETURN(const Value given, read_variables(options.variables_json));
  jinja::List list;
  for (const ChatMessage& message : messages) {
    list.push_back(Value::dict({{"role", Value::text(message.role, true)},
                                {"content", Value::text(message.content, true)}}));
  }
  const Value variables =
      Value::dict({{"messages", Value::list(std::move(list))},
                   {"tools", Value::none()},
                   {"documents", Value::none()},
                   {"add_generation_prompt", Value::boolean(options.add_generation_prompt)},
                   {"bos_token", Value::text(options.bos_token)},
                   {"eos_token", Value::text(options.eos_token)}});
  for (const auto& [name, value] : given.as_dict()) variables.set(name, value);
  ENGINE_ASSIGN_OR_RETURN(const jinja::Text text,
                          jinja::render(tree_->block, variables, {options.unix_time}));
  std::vector<ChatSegment> segments;
  for (size_t i = 0; i < text.chars.size(); ++i) {
    const bool from_template = text.owners[i] == '\0';
    if (segments.empty() || segments.back().from_template != from_template) {
      segments.push_back({"", from_template});
    }
    segments.back().text.push_back(text.chars[i]);
  }
  return segments;
}

std::string_view chat_family_name(std::string_view source) {
  const auto has = [&](std::string_view text) { return absl::StrContains(source, text); };
  if (has("<|im_start|>")) {
    if (has("<|im_sep|>")) return "phi4";
    if (has("<|tool_list_start|>") || has("<|startoftext|>")) return "lfm2";
    return has("enable_thinking") || has("</think>") ? "qwen3" : "chatml";
  }
  if (has("<|start|>") && has("<|channel|>")) return "gpt-oss";
  if (has("<\uFF5CAssistant\uFF5C>")) return "deepseek";
  if (has("<|start_header_id|>")) return "llama3";
  if (has("<start_of_turn>")) return "gemma";
  if (has("<<SYS>>")) return "llama2";
  if (has("[INST]")) return has("[SYSTEM_PROMPT]") ? "mistral-v7" : "mistral";
  if (has("<|assistant|>") && has("<|end|>")) return "phi3";
  if (has("<|assistant|>") && has("<|user|>")) return "zephyr";
  return "other";
}

const BuiltinTemplate* find_builtin_chat_template(std::string_view name) {
  for (const BuiltinTemplate& known : builtin_chat_templates()) {
    if (known.name == name) return &known;
  }
  return nullptr;
}

std::string chat_text(std::span<const ChatSegment> segments) {
  std::string text;
  for (const ChatSegment& segment : segments) text += segment.text;
  return text;
}

absl::StatusOr<std::vector<int32_t>> chat_ids(const Tokenizer& tokenizer,
                                              std::span<const ChatSegment> segments) {
  std::vector<TextPart> parts;
  for (const ChatSegment& segment : segments) {
    parts.push_back(
        {segment.text, segment.from_template ? SpecialPolicy::kAll : SpecialPolicy::kPlain});
  }
  std::vector<int32_t> ids;
  ENGINE_RETURN_IF_ERROR(tokenizer.encode_parts(parts, true, &ids));
  const bool has_bos = !ids.empty() && tokenizer.bos().has_value() && ids[0] == *tokenizer.bos();
  if (tokenizer.adds_bos() && !has_bos) ids.insert(ids.begin(), *tokenizer.bos());
  return ids;
}

}  // namespace engine
