// Splits text at added tokens and hands what is between them to the tokenizer proper.
#include "lib/text/vocab_tokenizer.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/match.h"
#include "lib/text/escaped_spaces.h"
#include "lib/text/utf8_scan.h"
#include "lib/text/white_space.h"

namespace engine {

namespace {

// All added tokens' text together; the largest real vocabulary has 80 KB. Keeps the automaton
// small.
constexpr size_t kMaxAddedBytes = size_t{1} << 20;
constexpr size_t kMaxTextBytes = std::numeric_limits<int32_t>::max();

bool is_ascii_punctuation(char c) {
  return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
         (c >= '{' && c <= '~');
}

// Of comparable text, in which a space may be escaped.
size_t leading_space_bytes(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const std::string_view rest = text.substr(at);
    const Utf8Step step = utf8_step(rest);
    if (!(step.valid && is_white_space(step.scalar)) && !absl::StartsWith(rest, kEscapedSpace))
      break;
    at += step.n_bytes;
  }
  return at;
}

}  // namespace

VocabTokenizer::VocabTokenizer(Vocab vocab, bool adds_bos, bool adds_eos)
    : vocab_(std::move(vocab)),
      adds_bos_(vocab_.bos.has_value() && vocab_.add_bos.value_or(adds_bos)),
      adds_eos_(vocab_.eos.has_value() && vocab_.add_eos.value_or(adds_eos)) {}

bool VocabTokenizer::is_plain_added(int32_t id) const {
  const std::string_view text = vocab_.piece(id);
  return vocab_.type(id) == TokenType::kUserDefined &&
         std::none_of(text.begin(), text.end(), is_ascii_punctuation);
}

absl::Status VocabTokenizer::index_special() {
  std::vector<SpecialSplit::Pattern> patterns;
  std::vector<std::string> texts;
  size_t n_bytes = 0;
  for (int32_t id = 0; id < vocab_.size(); ++id) {
    const TokenType type = vocab_.type(id);
    const bool user_defined = type == TokenType::kUserDefined;
    if (!user_defined && type != TokenType::kControl && type != TokenType::kUnknown) continue;
    if (vocab_.piece(id).empty()) continue;
    const SpecialPolicy level = is_plain_added(id) ? SpecialPolicy::kPlain
                                : user_defined     ? SpecialPolicy::kUserDefined
                                                   : SpecialPolicy::kAll;
    texts.push_back(comparable(vocab_.piece(id)));
    n_bytes += texts.back().size();
    patterns.push_back({"", id, level});
  }
  if (n_bytes > kMaxAddedBytes) {
    return error_at(
        Code::kTokenizer, "tokenizer.ggml.token_type", kNoOffset,
        "tokenizer.ggml.token_type: the added tokens are longer than any vocabulary needs");
  }
  for (size_t i = 0; i < texts.size(); ++i) patterns[i].text = texts[i];
  special_ = std::make_unique<const SpecialSplit>(patterns);
  return absl::OkStatus();
}

absl::Status VocabTokenizer::encode_all(std::span<const TextPart> parts, bool at_start,
                                        bool* begins_special, std::vector<int32_t>* ids) const {
  *begins_special = false;
  const size_t n_before = ids->size();
  std::string pending;           // ordinary text that may go on in the next part
  bool wants_prefix = at_start;  // before the next thing that is no markup
  const auto flush = [&]() -> absl::Status {
    if (pending.empty()) return absl::OkStatus();
    absl::Status status = encode_ordinary(pending, ids);
    pending.clear();
    return status;
  };
  const auto begin_text = [&] {
    if (wants_prefix) pending.append(prefix());
    wants_prefix = false;
  };
  bool drops_space = false;  // until something else follows
  const auto add_text = [&](std::string_view text) {
    if (drops_space) text.remove_prefix(leading_space_bytes(text));
    if (text.empty()) return;
    drops_space = false;
    begin_text();
    pending.append(text);
  };
  size_t n_text_bytes = 0;
  for (const TextPart& part : parts) {
    n_text_bytes += part.text.size();
    if (part.text.size() > kMaxTextBytes || n_text_bytes > kMaxTextBytes) {
      return error(Code::kArgument, "the text is longer than 2 GiB");
    }
    const std::string text = comparable(part.text);
    size_t at = 0;
    for (const SpecialSplit::Hit& hit : special_->find(text, part.special)) {
      const bool plain = is_plain_added(hit.id);
      add_text(std::string_view(text).substr(at, hit.begin - at));
      if (plain) begin_text();
      ENGINE_RETURN_IF_ERROR(flush());
      if (!plain && ids->size() == n_before) *begins_special = true;
      ids->push_back(hit.id);
      if (!plain) wants_prefix = at_start;
      drops_space = takes_space_after(hit.id);
      at = hit.begin + hit.n_bytes;
    }
    add_text(std::string_view(text).substr(at));
  }
  return flush();
}

absl::StatusOr<TokenizeResult> VocabTokenizer::encode(std::string_view text, BosPolicy bos_policy,
                                                      SpecialPolicy special) const {
  if (bos_policy == BosPolicy::kForce && !vocab_.bos.has_value()) {
    return error(Code::kArgument, "the vocabulary has no begin-of-sequence token to force");
  }
  TokenizeResult result;
  const TextPart part = {text, special};
  bool begins_special = false;
  ENGINE_RETURN_IF_ERROR(encode_all({&part, 1}, true, &begins_special, &result.ids));
  result.text_had_bos =
      begins_special && vocab_.bos.has_value() && result.ids.front() == *vocab_.bos;
  result.bos_added = bos_policy == BosPolicy::kForce ||
                     (bos_policy == BosPolicy::kModelDefault && adds_bos_ && !result.text_had_bos);
  if (result.bos_added) result.ids.insert(result.ids.begin(), *vocab_.bos);
  result.eos_added = bos_policy != BosPolicy::kNone && adds_eos_;
  if (result.eos_added) result.ids.push_back(*vocab_.eos);
  return result;
}

absl::Status VocabTokenizer::encode_append(std::string_view text, SpecialPolicy special,
                                           bool at_start, std::vector<int32_t>* ids) const {
  const TextPart part = {text, special};
  return encode_parts({&part, 1}, at_start, ids);
}

absl::Status VocabTokenizer::encode_parts(std::span<const TextPart> parts, bool at_start,
                                          std::vector<int32_t>* ids) const {
  bool begins_special = false;
  return encode_all(parts, at_start, &begins_special, ids);
}

std::string VocabTokenizer::decode(std::span<const int32_t> ids, bool with_special) const {
  std::string text;
  for (int32_t id : ids) text += token_bytes(id, with_special);
  if (strips_leading_space() && !text.empty() && text[0] == ' ') text.erase(0, 1);
  return text;
}

TokenType VocabTokenizer::type(int32_t id) const {
  return vocab_.has(id) ? vocab_.type(id) : TokenType::kUndefined;
}

std::string_view VocabTokenizer::piece(int32_t id) const {
  return vocab_.has(id) ? vocab_.piece(id) : std::string_view();
}

std::optional<int32_t> VocabTokenizer::find(std::string_view piece) const {
  const int32_t id = vocab_.find(piece);
  return id < 0 ? std::nullopt : std::optional<int32_t>(id);
}

}  // namespace engine
