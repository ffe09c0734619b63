// The names that mark an end in published vocabularies, and where such a name means something else.
#include "lib/text/end_tokens.h"

#include <algorithm>

namespace engine {

namespace {

constexpr std::string_view kEndNames[] = {
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|calls|>",
    "<|flush|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "<\xEF\xBD\x9C"
    "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>",
    "[e~[",
};

}  // namespace

std::vector<EndToken> end_token_set(std::vector<EndToken> keyed,
                                    absl::FunctionRef<int32_t(std::string_view)> find) {
  const auto have = [&](std::string_view name) { return find(name) >= 0; };
  // In harmony vocabularies <|end|> ends a message, not the turn.
  const bool harmony =
      (have("<|return|>") && have("<|call|>")) || (have("<|calls|>") && have("<|flush|>"));
  // In every Gemma vocabulary </s> closes struck-out HTML text.
  const bool gemma = have("<end_of_turn>") || have("<|tool_response>");
  for (std::string_view name : kEndNames) {
    if (harmony && name == "<|end|>") continue;
    if (gemma && name == "</s>") continue;
    const int32_t id = find(name);
    if (id >= 0) keyed.push_back({id, EndReason::kName});
  }
  std::stable_sort(keyed.begin(), keyed.end(),
                   [](const EndToken& a, const EndToken& b) { return a.id < b.id; });
  const auto same_id = [](const EndToken& a, const EndToken& b) { return a.id == b.id; };
  keyed.erase(std::unique(keyed.begin(), keyed.end(), same_id), keyed.end());
  return keyed;
}

}  // namespace engine
