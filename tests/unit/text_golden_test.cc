// Ids and chat renderings recorded from other implementations by tests/parity/record_tokens.py.
#include <map>
#include <sstream>

#include "lib/text/chat.h"
#include "nlohmann/json.hpp"
#include "tests/unit/text_toy_vocab.h"

namespace engine {
namespace {

struct Model {
  const char* name;
  const char* file;
};
constexpr Model kModels[] = {{"smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"},
                             {"gemma3", "gemma-3-270m-q4_k_m.gguf"}};
// Made by tests/parity/make_vocabs.py.
constexpr Model kVocabularies[] = {{"vocab_deepseek", "vocab-deepseek.gguf"},
                                   {"vocab_llama3", "vocab-llama3.gguf"},
                                   {"vocab_qwen3", "vocab-qwen3.gguf"},
                                   {"vocab_o200k", "vocab-o200k.gguf"}};

std::string unescape(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out.push_back(text[i]);
      continue;
    }
    out.push_back(static_cast<char>(std::stoi(std::string(text.substr(i + 1, 2)), nullptr, 16)));
    i += 2;
  }
  return out;
}

std::vector<std::string> golden_lines(std::string_view name) {
  std::istringstream in(file_text(source_path("tests/golden/" + std::string(name))));
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) {
    if (!line.empty() && line[0] != '#') lines.push_back(line);
  }
  REQUIRE(!lines.empty());
  return lines;
}

void check_recorded(const Model& model, size_t n_least) {
  const std::string path = model_path(model.file);
  const auto tokenizer = tokenizer_of_file(path);
  if (tokenizer == nullptr) SKIP("no model file " << path);
  size_t n_equal = 0;
  for (const std::string& line : golden_lines("tokens_" + std::string(model.name) + ".txt")) {
    const size_t tab = line.find('\t');
    const std::string text = unescape(std::string_view(line).substr(0, tab));
    INFO(line);
    const auto result = tokenizer->encode(text, BosPolicy::kNone, SpecialPolicy::kUserDefined);
    if (line.substr(tab + 1) == "!") {
      CHECK(code_of(result.status()) == Code::kTokenizer);
      continue;
    }
    REQUIRE(result.ok());
    std::istringstream numbers(line.substr(tab + 1));
    Ids expected;
    for (int32_t id = 0; numbers >> id;) expected.push_back(id);
    CHECK(result->ids == expected);
    n_equal += result->ids == expected;
    // U+2581 is how a SentencePiece vocabulary writes a space.
    // Qwen's text is brought to NFC.
    if (tokenizer->pre_name() != "qwen2" &&
        (tokenizer->model_name() == "gpt2" || text.find("\xE2\x96\x81") == std::string::npos)) {
      CHECK(tokenizer->decode(result->ids, true) == text);
      CHECK(tokenizer->decode(encode(*tokenizer, text), true) == text);
    }
  }
  CHECK(n_equal >= n_least);
}

TEST_CASE("recorded ids: SmolLM2", "[text]") { check_recorded(kModels[0], 1000); }
TEST_CASE("recorded ids: Gemma 3", "[text]") { check_recorded(kModels[1], 1000); }
TEST_CASE("recorded ids: DeepSeek", "[text]") { check_recorded(kVocabularies[0], 370); }
TEST_CASE("recorded ids: Llama 3", "[text]") { check_recorded(kVocabularies[1], 370); }
TEST_CASE("recorded ids: Qwen 3", "[text]") { check_recorded(kVocabularies[2], 370); }
TEST_CASE("recorded ids: gpt-oss", "[text]") { check_recorded(kVocabularies[3], 370); }

// Templates of the two families in our own words; the default message is the recorded one.
constexpr std::string_view kGemmaTemplate = R"({{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
  {%- set first_user_prefix = messages[0]['content'] + '\n\n' -%}
  {%- set loop_messages = messages[1:] -%}
{%- else -%}
  {%- set first_user_prefix = '' -%}
  {%- set loop_messages = messages -%}
{%- endif -%}
{%- for message in loop_messages -%}
  {%- if (message.role == 'user') != (loop.index0 % 2 == 0) -%}
    {{ raise_exception('roles must take turns') }}
  {%- endif -%}
  {%- set role = 'model' if message.role == 'assistant' else message.role -%}
  <start_of_turn>{{ role }}{{ '\n' }}{{ (first_user_prefix if loop.first else '') -}}
  {{ message.content | trim }}{{ '<end_of_turn>\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%} {{- '<start_of_turn>model\n' -}} {%- endif -%}
)";

std::string chatml_template(const std::string& default_system) {
  return "{% for message in messages %}"
         "{% if loop.first and messages[0].role != \"system\" %}"
         "{{ '<|im_start|>system\\n" +
         default_system +
         "<|im_end|>\\n' }}{% endif %}"
         "<|im_start|>{{ message['role'] + '\\n' }}{{ message.content + \"<|im_end|>\\n\" }}"
         "{% endfor %}"
         "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";
}

struct Conversation {
  std::string model;
  bool generate = false;
  std::vector<std::pair<std::string, std::string>> turns;
  std::string rendered;
  bool refused = false;
};

std::vector<Conversation> conversations() {
  std::vector<Conversation> all;
  Conversation next;
  for (const std::string& line : golden_lines("tokens_chat.txt")) {
    const size_t tab = std::min(line.find('\t'), line.size());
    const std::string key = line.substr(0, tab);
    const std::string text = tab < line.size() ? unescape(line.substr(tab + 1)) : "";
    if (key == "model") {
      next = {};
      next.model = text;
    } else if (key == "generate") {
      next.generate = text == "1";
    } else if (key == "=" || key == "!") {
      next.rendered = text;
      next.refused = key == "!";
      all.push_back(next);
    } else {
      next.turns.emplace_back(key, text);
    }
  }
  return all;
}

absl::StatusOr<std::vector<ChatSegment>> render(std::string_view text,
                                                std::span<const ChatMessage> messages,
                                                const Conversation& c) {
  ENGINE_ASSIGN_OR_RETURN(const ChatTemplate chat, ChatTemplate::parse(text));
  ChatOptions options;
  options.add_generation_prompt = c.generate;
  options.bos_token = "<bos>";  // only Gemma's template prints it
  return chat.render(messages, options);
}

TEST_CASE("chat renders as the recorded Jinja templates do", "[text]") {
  std::string default_system;
  for (const Conversation& c : conversations()) {
    const std::string before = "<|im_start|>system\n";
    if (c.model != "smollm2" || c.turns[0].first == "system") continue;
    default_system =
        c.rendered.substr(before.size(), c.rendered.find("<|im_end|>") - before.size());
    break;
  }
  REQUIRE(!default_system.empty());
  std::map<std::string, std::vector<std::string>> templates;
  templates["smollm2"].push_back(chatml_template(default_system));
  templates["gemma3"].push_back(std::string(kGemmaTemplate));
  const std::string smollm2 = file_text(model_path(kModels[0].file));
  if (!smollm2.empty()) {
    const std::vector<uint8_t> bytes(smollm2.begin(), smollm2.end());
    const auto file = Gguf::parse(bytes, test_block_shape);
    REQUIRE(file.ok());
    templates["smollm2"].push_back(
        std::string(file->get_string("tokenizer.chat_template").value().value()));
  }
  size_t n_checked = 0;
  for (const Conversation& c : conversations()) {
    std::vector<ChatMessage> messages;
    for (const auto& [role, content] : c.turns) messages.push_back({role, content});
    for (const std::string& text : templates.at(c.model)) {
      CHECK(chat_family_name(text) == (c.model == "smollm2" ? "chatml" : "gemma"));
      const auto segments = render(text, messages, c);
      INFO(c.model << ": " << c.rendered);
      if (c.refused) {
        CHECK(code_of(segments.status()) == Code::kChatTemplate);
      } else {
        REQUIRE(segments.ok());
        CHECK(chat_text(*segments) == c.rendered);
      }
      ++n_checked;
    }
  }
  CHECK(n_checked >= 48);
}

TEST_CASE("chat ids equal those of the rendered text, but content yields no control token",
          "[text]") {
  for (const Model& model : kModels) {
    const auto tokenizer = tokenizer_of_file(model_path(model.file));
    if (tokenizer == nullptr) SKIP("no model file " << model.file);
    const bool gemma = model.name == std::string("gemma3");
    const std::string text = gemma ? std::string(kGemmaTemplate) : chatml_template("D");
    for (const Conversation& c : conversations()) {
      if (c.refused) continue;
      std::vector<ChatMessage> messages;
      bool attack = false;
      for (const auto& [role, content] : c.turns) {
        messages.push_back({role, content});
        attack |= content.find('<') != std::string::npos;
      }
      const auto segments = render(text, messages, c);
      if (!segments.ok()) continue;  // an order that only the other family takes
      const auto ids = chat_ids(*tokenizer, *segments);
      REQUIRE(ids.ok());
      INFO(chat_text(*segments));
      const Ids flat =
          encode(*tokenizer, chat_text(*segments), BosPolicy::kModelDefault, SpecialPolicy::kAll);
      CHECK((*ids == flat) == !attack);
      // The markers of the turns themselves, and no more.
      size_t n_template_controls = 0;
      for (const ChatSegment& segment : *segments) {
        if (!segment.from_template) continue;
        for (int32_t id : encode(*tokenizer, segment.text, BosPolicy::kNone, SpecialPolicy::kAll)) {
          n_template_controls += tokenizer->type(id) == TokenType::kControl;
        }
      }
      size_t n_controls = 0;
      for (int32_t id : *ids) n_controls += tokenizer->type(id) == TokenType::kControl;
      CHECK(n_controls == n_template_controls);
      CHECK(tokenizer->decode(*ids, true) == chat_text(*segments));
      CHECK((ids->size() > 1 && (*ids)[0] == *tokenizer->bos() && (*ids)[1] == *tokenizer->bos()) ==
            false);
    }
  }
}

// Not compared, since SentencePiece is followed where llama.cpp does otherwise: U+2581 in the text
// is a space like any other, and Gemma's user-defined </s>, an HTML tag, is no control token.
TEST_CASE("ids recorded from llama.cpp", "[text]") {
  for (const Model& model : kModels) {
    const auto tokenizer = tokenizer_of_file(model_path(model.file));
    if (tokenizer == nullptr) SKIP("no model file " << model.file);
    const auto golden = nlohmann::json::parse(
        file_text(source_path("tests/golden/llama_" + std::string(model.name) + ".json")));
    for (const auto& entry : golden.at("tokenizations")) {
      const std::string text = entry.at("text");
      INFO(entry.dump());
      if (tokenizer->model_name() == "llama" && (text.find("\xE2\x96\x81") != std::string::npos ||
                                                 text.find("</s>") != std::string::npos)) {
        continue;
      }
      CHECK(encode(*tokenizer, text, BosPolicy::kNone, SpecialPolicy::kUserDefined) ==
            entry.at("plain").get<Ids>());
      CHECK(encode(*tokenizer, text, BosPolicy::kNone, SpecialPolicy::kAll) ==
            entry.at("special").get<Ids>());
    }
  }
}

}  // namespace
}  // namespace engine
