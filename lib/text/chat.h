// Chat: renders conversations by a model's template to text and ids; the caller's text never becomes control
// tokens.
#ifndef ENGINE_LIB_TEXT_CHAT_H_
#define ENGINE_LIB_TEXT_CHAT_H_

#include <cstdint>
#include <memory>
#include <optional>
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

struct ChatOptions {
  bool add_generation_prompt = true;
  std::string_view bos_token;  // texts of the model's tokens, "" where it has none
  std::string_view eos_token;
  // A JSON object of further variables, "" = none: {"enable_thinking": false, "tools": [...]}.
  std::string_view variables_json;
  std::optional<int64_t> unix_time;  // for templates that print the date
};

// A rendered prompt as segments: template text is matched against control tokens, the caller's is not.
struct ChatSegment {
  std::string text;
  bool from_template;
};

// A Jinja chat template, read once. Immutable: safe from any thread.
class ChatTemplate {
 public:
  // kChatTemplate where the template is malformed or uses what is not supported.
  static absl::StatusOr<ChatTemplate> parse(std::string_view source);
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  // As Python's jinja2 renders it in Hugging Face's environment. Errors: kArgument for malformed JSON,
  // kChatTemplate for what the template refuses.
  absl::StatusOr<std::vector<ChatSegment>> render(std::span<const ChatMessage> messages,
                                                  const ChatOptions& options) const;

 private:
  struct Tree;
  explicit ChatTemplate(std::unique_ptr<Tree> tree);

  std::unique_ptr<Tree> tree_;
};

// What a template looks like: "chatml", "llama3", ...; "other" for none of the known. For people: rendering does
// not depend on it.
std::string_view chat_family_name(std::string_view source);

// Templates of published families in our own words, by name; for files without a usable one.
struct BuiltinTemplate {
  std::string_view name;
  std::string_view source;
};
std::span<const BuiltinTemplate> builtin_chat_templates();
const BuiltinTemplate* find_builtin_chat_template(std::string_view name);  // nullptr: no such name

// The concatenated text (BOS text included).
std::string chat_text(std::span<const ChatSegment> segments);
// Ids of the segments: exactly one BOS where the model or template wants one.
absl::StatusOr<std::vector<int32_t>> chat_ids(const Tokenizer& tokenizer,
                                              std::span<const ChatSegment> segments);

}  // namespace engine

#endif  // ENGINE_LIB_TEXT_CHAT_H_
