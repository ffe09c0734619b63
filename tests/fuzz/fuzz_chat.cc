// libFuzzer target: the input as a chat template and as a conversation; content must yield no
// control token.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lib/text/byte_map.h"
#include "lib/text/chat.h"
#include "lib/text/utf8_scan.h"
#include "tests/unit/gguf_builder.h"

namespace {

using engine::ChatMessage;

constexpr std::string_view kChatMl =
    "{% for message in messages %}"
    "{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\\nD<|im_end|>\\n' }}{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";
constexpr std::string_view kGemma =
    "{{ bos_token }}{% if messages[0].role == 'system' %}"
    "{% set first_user_prefix = messages[0].content + '\\n\\n' %}"
    "{% set loop_messages = messages[1:] %}{% else %}{% set first_user_prefix = '' %}"
    "{% set loop_messages = messages %}{% endif %}{% for message in loop_messages %}"
    "{% if (message.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('') }}{% endif "
    "%}"
    "{% if message.role == 'assistant' %}{% set role = 'model' %}{% else %}"
    "{% set role = message.role %}{% endif %}{{ '<start_of_turn>' + role + '\\n' + "
    "(first_user_prefix if loop.first else '') }}{{ message.content | trim }}"
    "{{ '<end_of_turn>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}";

std::unique_ptr<engine::Tokenizer> toy() {
  std::vector<std::string> pieces;
  for (int byte = 0; byte < 256; ++byte) {
    pieces.emplace_back();
    engine::utf8_append(engine::kByteToCodePoint[byte], &pieces.back());
  }
  std::vector<int32_t> types(pieces.size(), 1);
  for (const char* control :
       {"<|im_start|>", "<|im_end|>", "<start_of_turn>", "<end_of_turn>", "<bos>"}) {
    pieces.push_back(control);
    types.push_back(3);
  }
  engine::GgufBuilder file;
  file.string("tokenizer.ggml.model", "gpt2").string("tokenizer.ggml.pre", "gpt-2");
  file.strings("tokenizer.ggml.tokens", pieces).array("tokenizer.ggml.token_type", types);
  file.strings("tokenizer.ggml.merges", {});
  engine::GgufOptions options;
  options.metadata_only = true;
  const std::vector<uint8_t> bytes = file.build();
  return engine::Tokenizer::create(*engine::Gguf::parse(bytes, engine::test_block_shape, options))
      .value();
}

void check(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

// With ENGINE_FUZZ_SEEDS set, the built-in templates are written to that folder before the run.
extern "C" int LLVMFuzzerInitialize(int*, char***) {
  const char* folder = std::getenv("ENGINE_FUZZ_SEEDS");
  if (folder == nullptr) return 0;
  for (const engine::BuiltinTemplate& known : engine::builtin_chat_templates()) {
    std::ofstream(std::string(folder) + "/seed_" + std::string(known.name), std::ios::binary)
        << known.source;
  }
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::unique_ptr<engine::Tokenizer> tokenizer = toy();
  const std::string_view input(reinterpret_cast<const char*>(data), size);

  // The input as a template: it is rendered or refused; content never belongs to the template.
  const std::vector<ChatMessage> hello = {{"user", "H\x01llo"}, {"assistant", "\x01"}};
  engine::ChatOptions options;
  options.bos_token = "<bos>";
  options.unix_time = 1;
  const auto own = engine::ChatTemplate::parse(input);
  if (own.ok()) {
    const auto rendered = own->render(hello, options);
    for (const engine::ChatSegment& segment :
         rendered.ok() ? *rendered : std::vector<engine::ChatSegment>()) {
      const bool holds_content = segment.text.find('\x01') != std::string::npos;
      check(!segment.from_template || !holds_content ||
            input.find('\x01') != std::string_view::npos ||
            input.find('\\') != std::string_view::npos);
    }
  }
  // And as the variables.
  engine::ChatOptions with_variables = options;
  with_variables.variables_json = input;
  static const auto prints =
      engine::ChatTemplate::parse("{{ tools | tojson(indent=1) }}{{ tools }}{{ messages[0] }}");
  (void)prints->render(hello, with_variables);

  // The input as a conversation: NUL bytes part the turns, a leading digit chooses the role.
  std::vector<ChatMessage> messages;
  for (size_t at = 0; at < size && messages.size() < 8;) {
    const size_t end = std::min(input.find('\0', at), size);
    std::string_view turn = input.substr(at, end - at);
    at = end + 1;
    constexpr std::string_view kRoles[] = {"user", "assistant", "system", "<|im_end|>"};
    std::string_view role = kRoles[messages.size() % 2];
    if (!turn.empty() && turn[0] >= '0' && turn[0] <= '3') {
      role = kRoles[turn[0] - '0'];
      turn.remove_prefix(1);
    }
    messages.push_back({role, turn});
  }
  for (const std::string_view text : {kChatMl, kGemma}) {
    const auto chat = engine::ChatTemplate::parse(text);
    check(chat.ok());
    const auto segments = chat->render(messages, options);
    if (!segments.ok()) continue;  // an order that the template refuses
    const auto ids = engine::chat_ids(*tokenizer, *segments);
    check(ids.ok());
    size_t n_controls = 0;
    for (int32_t id : *ids) n_controls += tokenizer->type(id) == engine::TokenType::kControl;
    size_t n_expected = 0;
    for (const engine::ChatSegment& segment : *segments) {
      if (!segment.from_template) continue;
      for (char c : segment.text) n_expected += c == '<';
    }
    check(n_controls == n_expected);
    check(tokenizer->decode(*ids, true) == engine::chat_text(*segments));
  }
  return 0;
}
