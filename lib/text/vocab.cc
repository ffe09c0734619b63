// Reads and checks tokenizer.ggml.*; every fault names the key and where its value lies in the
// file.
#include "lib/text/vocab.h"

#include <cmath>
#include <limits>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "lib/file/gguf_common.h"
#include "lib/text/byte_map.h"
#include "lib/text/end_tokens.h"
#include "lib/text/pretokenize_rules.h"

namespace engine {

namespace {

constexpr std::string_view kModel = "tokenizer.ggml.model";
constexpr std::string_view kPre = "tokenizer.ggml.pre";
constexpr std::string_view kTokens = "tokenizer.ggml.tokens";
constexpr std::string_view kTypes = "tokenizer.ggml.token_type";
constexpr std::string_view kScores = "tokenizer.ggml.scores";
constexpr std::string_view kMerges = "tokenizer.ggml.merges";

// What a tokenizer model reads from its file, and where the special tokens are whose keys may be
// missing.
struct VocabModel {
  std::string_view name;
  bool has_scores;
  bool has_merges;
  bool has_byte_pieces;
  int32_t bos_place;  // -1: nowhere
  std::string_view bos_text;
  int32_t eos_place;
  std::string_view eos_text;
  int32_t unknown_place;
  std::string_view unknown_text;
};
constexpr VocabModel kModels[] = {
    {"llama", true, false, true, 1, "<s>", 2, "</s>", 0, "<unk>"},
    {"gpt2", false, true, false, -1, "", -1, "", -1, ""},
    {"gemma4", false, true, true, -1, "", -1, "", -1, ""},
    {"bert", false, false, false, 101, "[CLS]", 102, "[SEP]", 100, "[UNK]"},
    {"t5", true, false, false, -1, "", 1, "</s>", 2, "<unk>"},
    {"rwkv", false, false, false, -1, "", -1, "", -1, ""},
};

const VocabModel* find_model(std::string_view name) {
  for (const VocabModel& model : kModels) {
    if (model.name == name) return &model;
  }
  return nullptr;
}

absl::Status key_error(const Gguf& file, std::string_view key, std::string_view message) {
  const GgufValue* value = file.find(key);
  if (value == nullptr) {
    return error_at(Code::kTokenizer, key, kNoOffset, absl::StrCat(key, ": ", message));
  }
  return gguf_error(Code::kTokenizer, key, value->offset, message);
}

absl::Status length_error(const Gguf& file, std::string_view key, size_t count, size_t n_tokens) {
  return key_error(file, key, absl::StrCat(count, " entries for ", n_tokens, " tokens"));
}

// A special token's id under `name` + "_token_id"; absent is none.
absl::StatusOr<std::optional<int32_t>> read_id(const Gguf& file, std::string_view name,
                                               int32_t n_vocab) {
  const std::string key = absl::StrCat("tokenizer.ggml.", name, "_token_id");
  ENGINE_ASSIGN_OR_RETURN(const std::optional<int64_t> id, file.get_int(key));
  if (!id.has_value()) return std::optional<int32_t>();
  if (*id < 0 || *id >= n_vocab) {
    return key_error(file, key,
                     absl::StrCat("id ", *id, " is outside the vocabulary of ", n_vocab));
  }
  return std::optional<int32_t>(static_cast<int32_t>(*id));
}

bool looks_special(std::string_view piece) {
  return piece.size() >= 3 && (piece[0] == '<' || piece[0] == '[');
}

}  // namespace

absl::StatusOr<Vocab> Vocab::read(const Gguf& file, const TokenizerOptions& options) {
  Vocab vocab;
  ENGINE_ASSIGN_OR_RETURN(const auto model, file.get_string(kModel));
  if (!model.has_value()) return key_error(file, kModel, "the file has no tokenizer");
  const VocabModel* kind = find_model(*model);
  if (kind == nullptr) {
    return key_error(
        file, kModel,
        absl::StrCat("tokenizer model '", *model,
                     "' is not supported; known are llama, gpt2, gemma4, bert, t5, rwkv"));
  }
  vocab.model = std::string(*model);
  ENGINE_ASSIGN_OR_RETURN(const auto pre, file.get_string(kPre));
  if (pre.has_value()) vocab.pre = std::string(*pre);
  ENGINE_ASSIGN_OR_RETURN(vocab.add_bos, file.get_bool("tokenizer.ggml.add_bos_token"));
  ENGINE_ASSIGN_OR_RETURN(vocab.add_eos, file.get_bool("tokenizer.ggml.add_eos_token"));
  ENGINE_ASSIGN_OR_RETURN(vocab.add_space_prefix, file.get_bool("tokenizer.ggml.add_space_prefix"));
  ENGINE_RETURN_IF_ERROR(vocab.read_pieces(file));
  if (kind->has_merges) {
    const PretokenizeRule* rule =
        vocab.pre.has_value() ? find_pretokenize_rule(*vocab.pre) : nullptr;
    vocab.escapes_spaces =
        *model == "gemma4" || (rule != nullptr && rule->alphabet == Alphabet::kEscapedSpaces);
    ENGINE_RETURN_IF_ERROR(vocab.read_merges(file, options.strict));
  }
  ENGINE_RETURN_IF_ERROR(vocab.read_special_ids(file));
  return vocab;
}

int32_t Vocab::find(std::string_view piece) const {
  const auto found = index_.find(piece);
  return found == index_.end() ? -1 : found->second;
}

int32_t Vocab::find_ordinary(std::string_view piece) const {
  int32_t id = find(piece);
  while (id >= 0 && !is_ordinary(id)) {
    const auto next = next_same_.find(id);
    id = next == next_same_.end() ? -1 : next->second;
  }
  return id;
}

int32_t Vocab::find_text(std::string_view piece) const {
  int32_t id = find(piece);
  while (id >= 0 && !is_ordinary(id) && types_[id] != TokenType::kUserDefined) {
    const auto next = next_same_.find(id);
    id = next == next_same_.end() ? -1 : next->second;
  }
  return id;
}

absl::Status Vocab::read_pieces(const Gguf& file) {
  ENGINE_ASSIGN_OR_RETURN(const auto tokens, file.get_strings(kTokens));
  if (!tokens.has_value()) return key_error(file, kTokens, "the vocabulary is missing");
  const size_t n_vocab = tokens->size();
  if (n_vocab == 0) return key_error(file, kTokens, "the vocabulary is empty");
  if (n_vocab > static_cast<size_t>(std::numeric_limits<int32_t>::max()) - 1) {
    return key_error(file, kTokens, "too many tokens");
  }
  size_t n_bytes = 0;
  for (std::string_view token : *tokens) n_bytes += token.size();
  text_.reserve(n_bytes);
  begins_.reserve(n_vocab + 1);
  for (std::string_view token : *tokens) {
    begins_.push_back(text_.size());
    text_.insert(text_.end(), token.begin(), token.end());
  }
  begins_.push_back(text_.size());

  types_.assign(n_vocab, TokenType::kNormal);
  ENGINE_ASSIGN_OR_RETURN(const auto types, file.get_ints(kTypes));
  if (types.has_value()) {
    if (types->size() != n_vocab) return length_error(file, kTypes, types->size(), n_vocab);
    for (size_t i = 0; i < n_vocab; ++i) {
      const int64_t type = (*types)[i];
      types_[i] = type >= 0 && type <= 6 ? static_cast<TokenType>(type) : TokenType::kUndefined;
    }
  } else if (find_model(model)->has_byte_pieces) {
    // Without types the byte pieces can only be told by their text.
    for (size_t i = 0; i < n_vocab; ++i) {
      if (byte_piece_value((*tokens)[i]) >= 0) types_[i] = TokenType::kByte;
    }
  }
  for (int32_t id = 0; id < size(); ++id) {
    if (find_model(model)->has_byte_pieces && types_[id] == TokenType::kByte &&
        byte_piece_value(piece(id)) < 0) {
      return key_error(file, kTypes,
                       absl::StrCat("token ", id,
                                    " is a byte piece but its text is not"
                                    " <0xXX>"));
    }
  }

  if (find_model(model)->has_scores) {
    const GgufValue* value = file.find(kScores);
    if (value == nullptr)
      return key_error(file, kScores, "a SentencePiece vocabulary needs scores");
    if (value->type == GgufType::kArray && value->element_type == GgufType::kI32) {
      ENGINE_ASSIGN_OR_RETURN(const auto scores, file.get_ints(kScores));
      if (scores.has_value()) scores_.assign(scores->begin(), scores->end());
    } else {
      ENGINE_ASSIGN_OR_RETURN(auto scores, file.get_floats(kScores));
      if (scores.has_value()) scores_ = std::move(*scores);
    }
    if (scores_.size() != n_vocab) return length_error(file, kScores, scores_.size(), n_vocab);
    for (size_t i = 0; i < n_vocab; ++i) {
      if (std::isnan(scores_[i])) {
        return key_error(file, kScores, absl::StrCat("the score of token ", i, " is not a number"));
      }
    }
  } else if (const GgufValue* value = file.find(kScores);
             value != nullptr && value->type == GgufType::kArray && value->count != n_vocab) {
    return length_error(file, kScores, value->count, n_vocab);
  }

  index_.reserve(n_vocab);
  absl::flat_hash_map<std::string_view, int32_t> last_same;
  for (int32_t id = 0; id < size(); ++id) {
    if (piece(id).empty()) continue;  // an empty piece decodes to nothing and is never found
    const auto [entry, is_new] = index_.try_emplace(piece(id), id);
    if (is_new) continue;
    const auto [last, is_second] = last_same.try_emplace(piece(id), entry->second);
    next_same_[last->second] = id;
    last->second = id;
  }
  return absl::OkStatus();
}

absl::Status Vocab::read_merges(const Gguf& file, bool strict) {
  ENGINE_ASSIGN_OR_RETURN(const auto entries, file.get_strings(kMerges));
  if (!entries.has_value()) return key_error(file, kMerges, "a byte pair vocabulary needs merges");
  merges_.reserve(entries->size());
  std::string joined;
  for (size_t rank = 0; rank < entries->size(); ++rank) {
    const std::string_view entry = (*entries)[rank];
    Merge merge = {-1, -1, -1};
    // A part may itself be a space, so the separator is not looked for at the first byte.
    const size_t space = entry.find(' ', 1);
    if (space != std::string_view::npos) {
      const std::string_view left = entry.substr(0, space);
      const std::string_view right = entry.substr(space + 1);
      joined.assign(left);
      joined.append(right);
      // Runs of white space are user-defined where spaces are escaped, and the merges make them.
      const auto find_part = [&](std::string_view part) {
        return escapes_spaces ? find_text(part) : find_ordinary(part);
      };
      merge = {find_part(left), find_part(right), find_part(joined)};
    }
    if (merge.left >= 0 && merge.right >= 0 && merge.result >= 0) {
      merges_.push_back(merge);
      continue;
    }
    if (strict) {
      return key_error(file, kMerges,
                       absl::StrCat("merge ", rank,
                                    space == std::string_view::npos
                                        ? " has no space between two pieces"
                                        : " names a piece that the vocabulary lacks"));
    }
    ++skipped_merges_;
  }
  return absl::OkStatus();
}

absl::Status Vocab::read_special_ids(const Gguf& file) {
  const auto id_of = [&](std::string_view name) { return read_id(file, name, size()); };
  ENGINE_ASSIGN_OR_RETURN(bos, id_of("bos"));
  ENGINE_ASSIGN_OR_RETURN(eos, id_of("eos"));
  ENGINE_ASSIGN_OR_RETURN(unknown, id_of("unknown"));
  if (model == "bert") {
    // What stands around a text: CLS, which newer files call BOS, and SEP.
    ENGINE_ASSIGN_OR_RETURN(const std::optional<int32_t> cls, id_of("cls"));
    if (!bos.has_value()) bos = cls;
    ENGINE_ASSIGN_OR_RETURN(const std::optional<int32_t> separator, id_of("seperator"));
    if (separator.has_value()) eos = separator;
  }
  // The published places, but only where the text there confirms them.
  const VocabModel& kind = *find_model(model);
  const auto place = [&](int32_t id, std::string_view text, std::optional<int32_t>* out) {
    if (!out->has_value() && id >= 0 && id < size() && piece(id) == text) *out = id;
  };
  place(kind.unknown_place, kind.unknown_text, &unknown);
  place(kind.bos_place, kind.bos_text, &bos);
  place(kind.eos_place, kind.eos_text, &eos);
  struct Keyed {
    const char* name;
    EndReason reason;
  };
  std::vector<EndToken> keyed;
  if (eos.has_value()) keyed.push_back({*eos, EndReason::kEos});
  for (const Keyed& key : {Keyed{"eot", EndReason::kEot}, Keyed{"eom", EndReason::kEom},
                           Keyed{"fim_pad", EndReason::kFim}, Keyed{"fim_rep", EndReason::kFim},
                           Keyed{"fim_sep", EndReason::kFim}}) {
    ENGINE_ASSIGN_OR_RETURN(const std::optional<int32_t> id, id_of(key.name));
    if (id.has_value()) keyed.push_back({*id, key.reason});
  }
  // Read for their range only: nothing here uses them.
  for (const char* name : {"padding", "seperator", "mask", "cls", "fim_pre", "fim_suf", "fim_mid",
                           "prefix", "suffix", "middle"}) {
    ENGINE_RETURN_IF_ERROR(id_of(name).status());
  }
  for (const auto& [flag, id, key] : {std::tuple(add_bos, bos, "tokenizer.ggml.add_bos_token"),
                                      std::tuple(add_eos, eos, "tokenizer.ggml.add_eos_token")}) {
    if (flag.value_or(false) && !id.has_value()) {
      return key_error(file, key, "asks for a token that the vocabulary does not have");
    }
  }

  // A piece that the merges can make is text, whatever it looks like.
  absl::flat_hash_set<int32_t> made;
  for (const Merge& merge : merges_) {
    if (looks_special(piece(merge.result))) made.insert(merge.result);
  }
  const auto is_text = [&](int32_t id) { return made.contains(id); };
  end_tokens = end_token_set(std::move(keyed), [&](std::string_view name) {
    const int32_t id = find(name);
    return id >= 0 && is_text(id) ? -1 : id;
  });
  // Old converters left such tokens NORMAL: control text, or it would be matched and printed as
  // text.
  const auto make_control = [&](int32_t id, bool keyed_id) {
    const TokenType type = types_[id];
    const bool weak = type == TokenType::kNormal || type == TokenType::kUndefined ||
                      (keyed_id && type == TokenType::kUserDefined);
    if (weak && looks_special(piece(id)) && !is_text(id)) types_[id] = TokenType::kControl;
  };
  for (const EndToken& token : end_tokens) {
    make_control(token.id, token.reason != EndReason::kName);
  }
  if (bos.has_value()) make_control(*bos, true);
  return absl::OkStatus();
}

}  // namespace engine
