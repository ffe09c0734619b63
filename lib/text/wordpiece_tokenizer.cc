// WordPiece (model `bert`): BERT's normaliser and word splitter, then the longest pieces of each word.
#include <utf8proc.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/text/escaped_spaces.h"
#include "lib/text/normalise.h"
#include "lib/text/utf8_scan.h"
#include "lib/text/vocab_tokenizer.h"
#include "lib/text/white_space.h"

namespace engine {

namespace {

// A longer word is unknown as a whole, as in the published tokenizer.
constexpr size_t kMaxWordChars = 100;

bool in(uint32_t scalar, uint32_t first, uint32_t last) {
  return scalar >= first && scalar <= last;
}

bool is_ideograph(uint32_t c) {
  return in(c, 0x4E00, 0x9FFF) || in(c, 0x3400, 0x4DBF) || in(c, 0x20000, 0x2A6DF) ||
         in(c, 0x2A700, 0x2B73F) || in(c, 0x2B740, 0x2B81F) || in(c, 0x2B920, 0x2CEAF) ||
         in(c, 0xF900, 0xFAFF) || in(c, 0x2F800, 0x2FA1F);
}

utf8proc_category_t category(uint32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

// Control, format, surrogate, private and unassigned characters are dropped.
bool is_dropped(uint32_t c) {
  switch (category(c)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO: return true;
    default: return c == 0xFFFD;
  }
}

bool is_punctuation(uint32_t c) {
  if (in(c, '!', '/') || in(c, ':', '@') || in(c, '[', '`') || in(c, '{', '~')) return true;
  switch (category(c)) {
    case UTF8PROC_CATEGORY_PC:
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO: return true;
    default: return false;
  }
}

struct Flags {
  bool lowercase = true;
  bool strip_accents = true;
};

class WordpieceTokenizer final : public VocabTokenizer {
 public:
  WordpieceTokenizer(Vocab vocab, Flags flags)
      : VocabTokenizer(std::move(vocab), true, true), flags_(flags) {
    for (int32_t id = 0; id < this->vocab().size(); ++id) {
      max_piece_bytes_ = std::max(max_piece_bytes_, this->vocab().piece(id).size());
    }
  }

  using VocabTokenizer::index_special;
  bool strips_leading_space() const override { return true; }

  std::string token_bytes(int32_t id, bool with_special) const override {
    if (!vocab().has(id)) return "";
    const std::string_view piece = vocab().piece(id);
    if (vocab().is_ordinary(id)) return unescape_spaces(piece);
    if (vocab().type(id) == TokenType::kUserDefined || with_special) return std::string(piece);
    return "";
  }

 protected:
  absl::Status encode_ordinary(std::string_view text, std::vector<int32_t>* ids) const override {
    std::string word;
    size_t n_chars = 0;
    const auto end_word = [&]() -> absl::Status {
      if (word.empty()) return absl::OkStatus();
      absl::Status status = put_word(word, n_chars, ids);
      word.clear();
      n_chars = 0;
      return status;
    };
    ENGINE_ASSIGN_OR_RETURN(const std::string clean, normalised(text));
    std::string_view rest = clean;
    while (!rest.empty()) {
      const Utf8Step step = utf8_step(rest);
      const std::string_view character = rest.substr(0, step.n_bytes);
      rest.remove_prefix(step.n_bytes);
      const bool alone = is_ideograph(step.scalar) || is_punctuation(step.scalar);
      if (is_white_space(step.scalar) || alone) ENGINE_RETURN_IF_ERROR(end_word());
      if (is_white_space(step.scalar)) continue;
      word.append(character);
      ++n_chars;
      if (alone) ENGINE_RETURN_IF_ERROR(end_word());
    }
    return end_word();
  }

 private:
  // Without dropped characters, accents and capitals, as the flags say; white space stays.
  absl::StatusOr<std::string> normalised(std::string_view text) const {
    std::string kept;
    while (!text.empty()) {
      const Utf8Step step = utf8_step(text);
      if (step.valid && (is_white_space(step.scalar) || !is_dropped(step.scalar))) {
        kept.append(text.substr(0, step.n_bytes));
      }
      text.remove_prefix(step.n_bytes);
    }
    if (flags_.strip_accents) {
      ENGINE_ASSIGN_OR_RETURN(kept, to_nfd(kept));
    }
    std::string out;
    std::string_view rest = kept;
    while (!rest.empty()) {
      const Utf8Step step = utf8_step(rest);
      rest.remove_prefix(step.n_bytes);
      if (flags_.strip_accents && category(step.scalar) == UTF8PROC_CATEGORY_MN) continue;
      if (flags_.lowercase && step.scalar == 0x130) {  // the only one with two characters
        out.append("i\xCC\x87");
        continue;
      }
      utf8_append(
          flags_.lowercase
              ? static_cast<uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(step.scalar)))
              : step.scalar,
          &out);
    }
    return out;
  }

  absl::Status put_word(std::string_view word, size_t n_chars, std::vector<int32_t>* ids) const {
    const size_t n_before = ids->size();
    const std::string marked = absl::StrCat(kEscapedSpace, word);
    std::string_view rest = marked;
    while (n_chars <= kMaxWordChars && !rest.empty()) {
      size_t n_bytes = std::min(rest.size(), max_piece_bytes_);
      int32_t id = -1;
      while (n_bytes > 0 && (id = vocab().find_ordinary(rest.substr(0, n_bytes))) < 0) --n_bytes;
      if (id < 0) break;
      ids->push_back(id);
      rest.remove_prefix(n_bytes);
    }
    if (n_chars <= kMaxWordChars && rest.empty()) return absl::OkStatus();
    ids->resize(n_before);
    if (!vocab().unknown.has_value()) {
      return error(Code::kTokenizer, "a word of the text has no token");
    }
    ids->push_back(*vocab().unknown);
    return absl::OkStatus();
  }

  Flags flags_;
  size_t max_piece_bytes_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> make_wordpiece_tokenizer(const Gguf& file, Vocab vocab) {
  Flags flags;
  ENGINE_ASSIGN_OR_RETURN(const auto lowercase,
                          file.get_bool("tokenizer.ggml.normalizer.lowercase"));
  flags.lowercase = lowercase.value_or(true);
  ENGINE_ASSIGN_OR_RETURN(const auto strip_accents,
                          file.get_bool("tokenizer.ggml.normalizer.strip_accents"));
  flags.strip_accents = strip_accents.value_or(flags.lowercase);
  auto tokenizer = std::make_unique<WordpieceTokenizer>(std::move(vocab), flags);
  ENGINE_RETURN_IF_ERROR(tokenizer->index_special());
  return tokenizer;
}

}  // namespace engine
