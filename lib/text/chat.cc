// ChatML and Gemma conversations as segments, and their ids.
#include "lib/text/chat.h"

#include "lib/text/chat_template.h"
#include "lib/text/utf8_scan.h"

namespace engine {

namespace {

constexpr std::string_view kGemmaBos = "<bos>";

class Segments {
 public:
  void from_template(std::string_view text) { add(text, true); }
  void content(std::string_view text) { add(text, false); }
  std::vector<ChatSegment> take() { return std::move(segments_); }

 private:
  void add(std::string_view text, bool from_template) {
    if (text.empty()) return;
    if (!segments_.empty() && segments_.back().from_template == from_template) {
      segments_.back().text += text;
    } else {
      segments_.push_back({std::string(text), from_template});
    }
  }
  std::vector<ChatSegment> segments_;
};

// White space of Python's str.strip, which Jinja's `trim` calls.
bool is_python_space(uint32_t scalar) {
  return (scalar >= 0x09 && scalar <= 0x0D) || (scalar >= 0x1C && scalar <= 0x20) ||
         scalar == 0x85 || scalar == 0xA0 || scalar == 0x1680 ||
         (scalar >= 0x2000 && scalar <= 0x200A) || scalar == 0x2028 || scalar == 0x2029 ||
         scalar == 0x202F || scalar == 0x205F || scalar == 0x3000;
}

std::string_view trimmed(std::string_view text) {
  size_t begin = 0;
  size_t end = 0;
  bool seen = false;
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = utf8_step(text.substr(at));
    const bool space = step.valid && is_python_space(step.scalar);
    if (!space && !seen) begin = at;
    at += step.n_bytes;
    if (!space) {
      seen = true;
      end = at;
    }
  }
  return text.substr(begin, seen ? end - begin : 0);
}

void render_chatml(const ChatTemplateInfo& info, std::span<const ChatMessage> messages,
                   bool add_generation_prompt, Segments* out) {
  if (!info.default_system.empty() && !messages.empty() && messages[0].role != "system") {
    out->from_template("<|im_start|>system\n" + info.default_system + "<|im_end|>\n");
  }
  for (const ChatMessage& message : messages) {
    out->from_template("<|im_start|>");
    out->content(message.role);
    out->from_template("\n");
    out->content(message.content);
    out->from_template("<|im_end|>\n");
  }
  if (add_generation_prompt) out->from_template("<|im_start|>assistant\n");
}

absl::Status render_gemma(const ChatTemplateInfo& info, std::span<const ChatMessage> messages,
                          bool add_generation_prompt, Segments* out) {
  if (messages.empty()) return error(Code::kArgument, "the conversation has no message");
  std::string_view system;
  const bool has_system = messages[0].role == "system";
  if (has_system) {
    if (!info.takes_system) {
      return error(Code::kChatTemplate, "the model's template has no system role");
    }
    system = messages[0].content;
    messages = messages.subspan(1);
  }
  out->from_template(kGemmaBos);
  bool users_turn = true;
  for (const ChatMessage& message : messages) {
    if ((message.role == "user") != users_turn) {
      return error(Code::kChatTemplate, "the model's template wants user and assistant in turn");
    }
    out->from_template("<start_of_turn>");
    if (message.role == "assistant") {
      out->from_template("model");
    } else {
      out->content(message.role);
    }
    out->from_template("\n");
    if (has_system && &message == &messages[0]) {
      out->content(system);
      out->from_template("\n\n");
    }
    out->content(trimmed(message.content));
    out->from_template("<end_of_turn>\n");
    users_turn = !users_turn;
  }
  if (add_generation_prompt) out->from_template("<start_of_turn>model\n");
  return absl::OkStatus();
}

}  // namespace

ChatFamily recognise_chat_template(std::string_view template_text) {
  return read_chat_template(template_text).family;
}

std::string_view chat_family_name(ChatFamily family) {
  switch (family) {
    case ChatFamily::kChatMl: return "chatml";
    case ChatFamily::kGemma: return "gemma";
    case ChatFamily::kUnknown: break;
  }
  return "unknown";
}

absl::StatusOr<std::vector<ChatSegment>> render_chat(ChatFamily family,
                                                     std::string_view template_text,
                                                     std::span<const ChatMessage> messages,
                                                     bool add_generation_prompt) {
  const ChatTemplateInfo info = read_chat_template(template_text);
  if (info.family == ChatFamily::kUnknown || info.family != family) {
    return error_at(Code::kChatTemplate, "tokenizer.chat_template", kNoOffset,
                    "tokenizer.chat_template: the chat template is absent or of no known family");
  }
  Segments out;
  if (family == ChatFamily::kChatMl) {
    render_chatml(info, messages, add_generation_prompt, &out);
  } else {
    ENGINE_RETURN_IF_ERROR(render_gemma(info, messages, add_generation_prompt, &out));
  }
  return out.take();
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
