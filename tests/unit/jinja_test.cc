// Chat templates: who wrote which character of a rendering. What is rendered is compared with Python's jinja2 by
// tests/parity/test_chat_templates.py.
#include "lib/text/chat.h"
#include "tests/unit/text_toy_vocab.h"

namespace engine {
namespace {

// The rendering with the caller's parts in brackets.
std::string marked(std::string_view source, std::string_view variables = "") {
  const auto chat = ChatTemplate::parse(source);
  INFO(source << ": " << chat.status().ToString());
  REQUIRE(chat.ok());
  const ChatMessage messages[] = {{"user", " Hello <x> "}, {"assistant", "a,b"}};
  ChatOptions options;
  options.bos_token = "<s>";
  options.variables_json = variables;
  const auto segments = chat->render(messages, options);
  INFO(segments.status().ToString());
  REQUIRE(segments.ok());
  std::string out;
  for (const ChatSegment& segment : *segments) {
    out += segment.from_template ? segment.text : "[" + segment.text + "]";
  }
  return out;
}

TEST_CASE("content stays the caller's through every operation", "[text]") {
  CHECK(marked("{{ bos_token }}<|{{ messages[0].role }}|>{{ messages[0].content }}<e>") ==
        "<s><|[user]|>[ Hello <x> ]<e>");
  CHECK(marked("{{ 'x' + messages[0].content | trim + 'y' }}") == "x[Hello <x>]y");
  CHECK(marked("{{ messages[0].content[1:3] ~ '!' }}") == "[He]!");
  CHECK(marked("{{ messages[1].content.split(',') | join('<|') }}") == "[a]<|[b]");
  CHECK(marked("{{ messages[1].content.replace(',', '<|') | upper }}") == "[A]<|[B]");
  CHECK(marked("{{ '<a>'.replace('a', messages[1].content) }}") == "<[a,b]>");
  CHECK(marked("{% set x %}<{{ messages[1].content }}>{% endset %}{{ x }}") == "<[a,b]>");
  CHECK(marked("{% macro m(t) %}<{{ t }}>{% endmacro %}{{ m(messages[1].content) }}") == "<[a,b]>");
  CHECK(marked("{{ messages[1].content | tojson }}{{ [messages[1].content] }}") ==
        "\"[a,b]\"['[a,b]']");
  CHECK(marked("{% for c in messages[1].content %}{{ c }}-{% endfor %}") == "[a]-[,]-[b]-");
  CHECK(marked("{{ messages[0].content * 2 }}{{ messages[1].content[::-1] }}") ==
        "[ Hello <x>  Hello <x> b,a]");
  CHECK(marked("{% filter trim %} {{ messages[0].content }} {% endfilter %}") == "[Hello <x>]");
  CHECK(marked("{{ messages[1].content | indent(1, true) }}") == " [a,b]");
  constexpr std::string_view kTools = R"({"tools": [{"name": "<|e|>"}]})";
  CHECK(marked("{{ tools[0].name }};{% for k in tools[0] %}{{ k }}{% endfor %}", kTools) ==
        "[<|e|>];[name]");
  CHECK(marked("{{ tools | tojson }}", kTools) == "[{\"[name]\": \"[<|e|>]\"}]");
}

TEST_CASE("variables must be a JSON object", "[text]") {
  const auto chat = ChatTemplate::parse("{{ x }}");
  REQUIRE(chat.ok());
  const ChatMessage hello[] = {{"user", "Hello"}};
  for (const char* wrong : {"[]", "{", "1", "{\"x\": 99999999999999999999}x"}) {
    ChatOptions options;
    options.variables_json = wrong;
    CHECK(code_of(chat->render(hello, options).status()) == Code::kArgument);
  }
  ChatOptions deep;
  const std::string nested = "{\"x\": " + std::string(1000, '[') + std::string(1000, ']') + "}";
  deep.variables_json = nested;
  CHECK(code_of(chat->render(hello, deep).status()) == Code::kArgument);
}

TEST_CASE("built-in templates are found by name and can be read", "[text]") {
  for (const BuiltinTemplate& known : builtin_chat_templates()) {
    INFO(known.name);
    CHECK(ChatTemplate::parse(known.source).ok());
    CHECK(find_builtin_chat_template(known.name) == &known);
  }
  CHECK(find_builtin_chat_template("nonsense") == nullptr);
}

TEST_CASE("what a template looks like has a name", "[text]") {
  const auto named = [](std::string_view name) {
    return chat_family_name(find_builtin_chat_template(name)->source);
  };
  for (const char* name :
       {"chatml", "llama2", "llama3", "gemma", "phi4", "deepseek", "gpt-oss", "mistral-v7"}) {
    CHECK(named(name) == name);
  }
  CHECK(named("mistral-v3") == "mistral");
  CHECK(chat_family_name("<|user|><|assistant|><|end|>") == "phi3");
  CHECK(chat_family_name("<|user|>\n</s><|assistant|>") == "zephyr");
  CHECK(chat_family_name("{{ messages }}") == "other");
}

// Rendered strings that the published templates of families give, which no package here ships.
TEST_CASE("Mistral's variants and DeepSeek, as published", "[text]") {
  const auto rendered = [](std::string_view name, std::span<const ChatMessage> messages) {
    const auto chat = ChatTemplate::parse(find_builtin_chat_template(name)->source);
    ChatOptions options;
    options.bos_token = "B";
    options.eos_token = "E";
    const auto segments = chat->render(messages, options);
    return segments.ok() ? chat_text(*segments) : "refused";
  };
  const std::vector<ChatMessage> with_system = {{"system", "S"}, {"user", "U1"}};
  const std::vector<ChatMessage> turns = {{"user", "U1"}, {"assistant", "A1"}, {"user", "U2"}};
  const std::vector<ChatMessage> all = {
      {"system", "S"}, {"user", "U1"}, {"assistant", "A1"}, {"user", "U2"}};
  struct Expected {
    const char* name;
    const char* with_system;
    const char* turns;
    const char* all;
  };
  const Expected expected[] = {
      {"mistral-v1", "B [INST] S\n\nU1 [/INST]", "B [INST] U1 [/INST] A1E [INST] U2 [/INST]",
       "B [INST] S\n\nU1 [/INST] A1E [INST] U2 [/INST]"},
      {"mistral-v3", "B[INST] S\n\nU1[/INST]", "B[INST] U1[/INST] A1E[INST] U2[/INST]",
       "B[INST] U1[/INST] A1E[INST] S\n\nU2[/INST]"},
      {"mistral-v3-tekken", "B[INST]S\n\nU1[/INST]", "B[INST]U1[/INST]A1E[INST]U2[/INST]",
       "B[INST]U1[/INST]A1E[INST]S\n\nU2[/INST]"},
      {"mistral-v7", "B[SYSTEM_PROMPT] S[/SYSTEM_PROMPT][INST] U1[/INST]",
       "B[INST] U1[/INST] A1E[INST] U2[/INST]",
       "B[SYSTEM_PROMPT] S[/SYSTEM_PROMPT][INST] U1[/INST] A1E[INST] U2[/INST]"},
      {"mistral-v7-tekken", "B[SYSTEM_PROMPT]S[/SYSTEM_PROMPT][INST]U1[/INST]",
       "B[INST]U1[/INST]A1E[INST]U2[/INST]",
       "B[SYSTEM_PROMPT]S[/SYSTEM_PROMPT][INST]U1[/INST]A1E[INST]U2[/INST]"},
      {"deepseek", "BS<\uFF5CUser\uFF5C>U1<\uFF5CAssistant\uFF5C>",
       "B<\uFF5CUser\uFF5C>U1<\uFF5CAssistant\uFF5C>A1<\uFF5Cend\u2581of\u2581sentence\uFF5C>"
       "<\uFF5CUser\uFF5C>U2<\uFF5CAssistant\uFF5C>",
       "BS<\uFF5CUser\uFF5C>U1<\uFF5CAssistant\uFF5C>A1<\uFF5Cend\u2581of\u2581sentence\uFF5C>"
       "<\uFF5CUser\uFF5C>U2<\uFF5CAssistant\uFF5C>"},
  };
  for (const Expected& e : expected) {
    INFO(e.name);
    CHECK(rendered(e.name, with_system) == e.with_system);
    CHECK(rendered(e.name, turns) == e.turns);
    CHECK(rendered(e.name, all) == e.all);
  }
  const std::vector<ChatMessage> twice = {{"user", "U1"}, {"user", "U2"}};
  CHECK(rendered("mistral-v1", twice) == "refused");
}

}  // namespace
}  // namespace engine
