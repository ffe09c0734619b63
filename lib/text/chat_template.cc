// Compares a template's steps with the families that are rendered natively; any step too many is
// "unknown".
#include "lib/text/chat_template.h"

#include <algorithm>
#include <span>

namespace engine {

namespace {

using Kind = TemplateStep::Kind;
using Steps = std::span<const TemplateStep>;

bool starts_with(std::string_view text, std::string_view start) {
  return text.substr(0, start.size()) == start;
}

bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

// Takes `count` steps off the front when they are equal to `expected`.
bool take(Steps* steps, std::initializer_list<TemplateStep> expected) {
  if (steps->size() < expected.size()) return false;
  if (!std::equal(expected.begin(), expected.end(), steps->begin())) return false;
  *steps = steps->subspan(expected.size());
  return true;
}

// A condition on the first message, then the default system turn.
bool take_default_system(Steps* steps, std::string_view condition, std::string* default_system) {
  constexpr std::string_view kBefore = "<|im_start|>system\n";
  constexpr std::string_view kAfter = "<|im_end|>\n";
  if (steps->size() < 3 || (*steps)[0] != TemplateStep{Kind::kStatement, std::string(condition)} ||
      (*steps)[1].kind != Kind::kText || (*steps)[2] != TemplateStep{Kind::kStatement, "endif"}) {
    return false;
  }
  const std::string_view turn = (*steps)[1].code;
  if (turn.size() < kBefore.size() + kAfter.size() || !starts_with(turn, kBefore) ||
      !ends_with(turn, kAfter)) {
    return false;
  }
  const std::string_view text =
      turn.substr(kBefore.size(), turn.size() - kBefore.size() - kAfter.size());
  // An empty default is a turn of its own, which default_system cannot tell from none.
  if (text.empty() || text.find("<|im_") != std::string_view::npos) return false;
  *default_system = std::string(text);
  *steps = steps->subspan(3);
  return true;
}

bool read_chatml(Steps steps, std::string* default_system) {
  take(&steps, {{Kind::kStatement, "if not add_generation_prompt is defined"},
                {Kind::kStatement, "set add_generation_prompt=false"},
                {Kind::kStatement, "endif"}});
  take_default_system(&steps, "if messages[0]['role']!='system'", default_system);
  if (!take(&steps, {{Kind::kStatement, "for message in messages"}})) return false;
  if (default_system->empty() &&
      !take_default_system(&steps, "if loop.first and messages[0]['role']!='system'",
                           default_system)) {
    take_default_system(&steps, "if(loop.first and messages[0]['role']!='system')", default_system);
  }
  return take(&steps, {{Kind::kText, "<|im_start|>"},
                       {Kind::kOutput, "message['role']"},
                       {Kind::kText, "\n"},
                       {Kind::kOutput, "message['content']"},
                       {Kind::kText, "<|im_end|>\n"},
                       {Kind::kStatement, "endfor"},
                       {Kind::kStatement, "if add_generation_prompt"},
                       {Kind::kText, "<|im_start|>assistant\n"},
                       {Kind::kStatement, "endif"}}) &&
         steps.empty();
}

// All that a Gemma template does besides showing text. The branches over the content's type are for
// lists of parts, which ChatMessage cannot hold.
constexpr std::string_view kGemmaStatements[] = {
    "if messages[0]['role']=='system'",
    "if messages[0]['content']is string",
    "set first_user_prefix=messages[0]['content']+'\\n\\n'",
    "set first_user_prefix=messages[0]['content'][0]['text']+'\\n\\n'",
    "set first_user_prefix=''",
    "set loop_messages=messages[1:]",
    "set loop_messages=messages",
    "for message in loop_messages",
    "for message in messages",
    "if(message['role']=='user')!=(loop.index0%2==0)",
    "if(message['role']=='assistant')",
    "if message['role']=='assistant'",
    "set role='model'",
    "set role=message['role']",
    "set role='model'if message['role']=='assistant'else message['role']",
    "if message['content']is string",
    "elif message['content']is iterable",
    "else",
    "endif",
    "endfor",
    "if add_generation_prompt",
};

bool is_gemma_statement(std::string_view code) {
  return std::find(std::begin(kGemmaStatements), std::end(kGemmaStatements), code) !=
         std::end(kGemmaStatements);
}

// The steps of a Gemma template that are not about checking roles or about content that is a list.
bool read_gemma(Steps steps, bool* takes_system) {
  std::vector<TemplateStep> shown;
  bool checks_order = false;
  bool maps_role = false;
  bool refuses_system = false;
  int list_depth = 0;  // loops over a content that is a list: never entered with text
  for (const TemplateStep& step : steps) {
    if (step.kind == Kind::kStatement) {
      if (starts_with(step.code, "for item in ")) ++list_depth;
      if (list_depth > 0) {
        if (step.code == "endfor") --list_depth;
        continue;
      }
      if (!is_gemma_statement(step.code)) return false;
      maps_role |= starts_with(step.code, "set role='model'");
      checks_order |= step.code == "if(message['role']=='user')!=(loop.index0%2==0)";
      if (starts_with(step.code, "for message ")) shown.push_back({step.kind, "for"});
      if (step.code == "endfor" || step.code == "if add_generation_prompt") shown.push_back(step);
      if (step.code == "set first_user_prefix=messages[0]['content']+'\\n\\n'")
        *takes_system = true;
      continue;
    }
    if (list_depth > 0) continue;
    if (starts_with(step.code, "raise_exception(") && step.kind == Kind::kOutput) {
      refuses_system |= step.code == "raise_exception('System role not supported')";
      continue;
    }
    shown.push_back(step);
  }
  if (!checks_order || !maps_role || *takes_system == refuses_system) return false;
  std::vector<TemplateStep> expected = {
      {Kind::kOutput, "bos_token"}, {Kind::kStatement, "for"}, {Kind::kText, "<start_of_turn>"},
      {Kind::kOutput, "role"},      {Kind::kText, "\n"},
  };
  if (*takes_system) {
    expected.push_back({Kind::kOutput, "(first_user_prefix if loop.first else'')"});
  }
  for (const TemplateStep& step :
       {TemplateStep{Kind::kOutput, "message['content']|trim"},
        TemplateStep{Kind::kText, "<end_of_turn>\n"}, TemplateStep{Kind::kStatement, "endfor"},
        TemplateStep{Kind::kStatement, "if add_generation_prompt"},
        TemplateStep{Kind::kText, "<start_of_turn>model\n"}}) {
    expected.push_back(step);
  }
  return shown == expected;
}

}  // namespace

ChatTemplateInfo read_chat_template(std::string_view template_text) {
  const std::vector<TemplateStep> steps = template_steps(template_text);
  ChatTemplateInfo info;
  if (read_chatml(steps, &info.default_system)) {
    info.family = ChatFamily::kChatMl;
    return info;
  }
  info = {};
  if (read_gemma(steps, &info.takes_system)) {
    info.family = ChatFamily::kGemma;
    return info;
  }
  return {};
}

}  // namespace engine
