// Reads a Jinja chat template just far enough to tell whether it is one that chat.cc renders
// natively.
#ifndef ENGINE_LIB_TEXT_CHAT_TEMPLATE_H_
#define ENGINE_LIB_TEXT_CHAT_TEMPLATE_H_

#include <string>
#include <string_view>
#include <vector>

#include "lib/text/chat.h"

namespace engine {

// A template as a sequence of steps in one spelling: white space control applied, quotes and blanks
// made equal, `a.role` as `a['role']`, sums of strings taken apart, neighbouring text joined.
struct TemplateStep {
  enum class Kind { kText, kOutput, kStatement };
  Kind kind;
  std::string code;  // the text, expression or statement

  bool operator==(const TemplateStep&) const = default;
};
// Empty where the template is not well-formed.
std::vector<TemplateStep> template_steps(std::string_view template_text);

struct ChatTemplateInfo {
  ChatFamily family = ChatFamily::kUnknown;
  // ChatML: the system message that stands before a conversation without one; "" = none.
  std::string default_system;
  // Gemma: a system message goes before the first user's text, or is refused.
  bool takes_system = false;
};
ChatTemplateInfo read_chat_template(std::string_view template_text);

}  // namespace engine

#endif  // ENGINE_LIB_TEXT_CHAT_TEMPLATE_H_
