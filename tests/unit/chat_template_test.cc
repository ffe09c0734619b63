// Which templates are recognised; what is only near to a family is not.
#include "lib/text/chat_template.h"

#include "catch2/catch_test_macros.hpp"

namespace engine {
namespace {

const std::string kChatMl =
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] "
    "+ "
    "'<|im_end|>' + '\\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' "
    "}}{% endif %}";

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

TEST_CASE("ChatML in several spellings", "[text]") {
  CHECK(recognise_chat_template(kChatMl) == ChatFamily::kChatMl);
  CHECK(read_chat_template(kChatMl).default_system.empty());
  const std::string lines = R"({%- for message in messages %}
    {# a turn #}
    {{- '<|im_start|>' ~ '' -}}
{%- endfor %})";
  CHECK(recognise_chat_template(lines) == ChatFamily::kUnknown);
  const std::string spread = R"({% for message in messages %}
  {% if loop.first and messages[0].role != "system" %}
<|im_start|>system
You are D.<|im_end|>
  {% endif %}
<|im_start|>{{ message.role }}
{{ message["content"] }}<|im_end|>
{% endfor %}
{% if add_generation_prompt %}
<|im_start|>assistant
{% endif %}
)";
  const ChatTemplateInfo info = read_chat_template(spread);
  CHECK(info.family == ChatFamily::kChatMl);
  CHECK(info.default_system == "You are D.");
}

TEST_CASE("a step more or less is another template", "[text]") {
  for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{
           {"message['content']", "message['content'] | trim"},
           {"message['content']", "(message['content'] or '')"},
           {"'\\n' + message", "message"},
           {"{% endfor %}", "{% endfor %}{{ 'x' }}"},
           {"{% endfor %}", "{% endfor %} "},
           {"assistant\\n", "assistant\\n<think>\\n"},
           {"{% if add_generation_prompt %}", "{% if enable_thinking %}"},
           {"<|im_start|>", "<|im_start|>-"},
           {"{% endif %}", ""},
           {"{% for message in messages %}", "{% for message in messages[1:] %}"},
       }) {
    INFO(from << " -> " << to);
    CHECK(recognise_chat_template(replaced(kChatMl, from, to)) == ChatFamily::kUnknown);
  }
  for (const char* text : {"", "{{", "{%", "{", "{{ '", "{{ 'a\\", "{% if", "plain", "{{ }}",
                           "{# {{", "<|im_start|>", "<start_of_turn>model", "}} %}"}) {
    INFO(text);
    CHECK(recognise_chat_template(text) == ChatFamily::kUnknown);
  }
}

TEST_CASE("Gemma without a system role refuses one", "[text]") {
  const std::string gemma2 =
      "{{ bos_token }}{% if messages[0]['role'] == 'system' %}"
      "{{ raise_exception('System role not supported') }}{% endif %}"
      "{% for message in messages %}"
      "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
      "{{ raise_exception('order') }}{% endif %}"
      "{% if (message['role'] == 'assistant') %}{% set role = 'model' %}{% else %}"
      "{% set role = message['role'] %}{% endif %}"
      "{{ '<start_of_turn>' + role + '\\n' + message['content'] | trim + '<end_of_turn>\\n' }}"
      "{% endfor %}{% if add_generation_prompt %}{{'<start_of_turn>model\\n'}}{% endif %}";
  REQUIRE(recognise_chat_template(gemma2) == ChatFamily::kGemma);
  const std::vector<ChatMessage> with_system = {{"system", "S"}, {"user", "U"}};
  CHECK(code_of(render_chat(ChatFamily::kGemma, gemma2, with_system, true).status()) ==
        Code::kChatTemplate);
  const std::vector<ChatMessage> turns = {{"user", " U "}, {"assistant", "A"}, {"user", "V"}};
  const auto segments = render_chat(ChatFamily::kGemma, gemma2, turns, true);
  REQUIRE(segments.ok());
  CHECK(chat_text(*segments) ==
        "<bos><start_of_turn>user\nU<end_of_turn>\n<start_of_turn>model\nA<end_of_turn>\n"
        "<start_of_turn>user\nV<end_of_turn>\n<start_of_turn>model\n");
  CHECK(code_of(render_chat(ChatFamily::kGemma, gemma2, {}, true).status()) == Code::kArgument);
  CHECK(code_of(render_chat(ChatFamily::kChatMl, gemma2, turns, true).status()) ==
        Code::kChatTemplate);
  for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{
           {"'model'", "'assistant'"},
           {" | trim", ""},
           {"(loop.index0 % 2 == 0)", "true"},
           {"{% endfor %}", "{% endfor %}{% if thinking %}{% endif %}"}}) {
    INFO(from << " -> " << to);
    CHECK(recognise_chat_template(replaced(gemma2, from, to)) == ChatFamily::kUnknown);
  }
}

}  // namespace
}  // namespace engine
