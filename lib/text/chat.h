// Chat: recognises a model's template and renders messages to ids; user text never becomes control tokens.
#ifndef ENGINE_LIB_TEXT_CHAT_H_
#define ENGINE_LIB_TEXT_CHAT_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/status.h"
#include "lib/text/tokenizer.h"

namespace engine {

struct ChatMessage {
  std::string_view role;  // "system", "user", "assistant"
  std::string_view content;
};

enum class ChatFamily : int32_t { kUnknown = 0, kChatMl = 1, kGemma = 2 };

// The family of a template string; kUnknown where none is recognised with certainty.
ChatFamily recognise_chat_template(std::string_view template_text);
std::string_view chat_family_name(ChatFamily family);

// A rendered prompt as segments: template text is matched against control tokens, content is not.
struct ChatSegment {
  std::string text;
  bool from_template;
};
// `template_text` is the file's own (SmolLM2's ChatML has a default system message, which depends on it).
absl::StatusOr<std::vector<ChatSegment>> render_chat(ChatFamily family,
                                                     std::string_view template_text,
                                                     std::span<const ChatMessage> messages,
                                                     bool add_generation_prompt);
// The concatenated text, as Python jinja2 renders the real template (BOS text included).
std::string chat_text(std::span<const ChatSegment> segments);
// Ids of the segments: exactly one BOS where the model or template wants one.
absl::StatusOr<std::vector<int32_t>> chat_ids(const Tokenizer& tokenizer,
                                              std::span<const ChatSegment> segments);

}  // namespace engine

#endif  // ENGINE_LIB_TEXT_CHAT_H_
