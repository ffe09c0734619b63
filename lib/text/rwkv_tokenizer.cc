// RWKV's vocabulary (model `rwkv`): the longest piece that begins at each place; pieces are written
// as Python writes bytes.
#include <utility>

#include "lib/text/vocab_tokenizer.h"

namespace engine {

namespace {

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// The bytes of an escaped literal; an escape that is none stands for itself.
std::string unescape_literal(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\' || i + 1 == text.size()) {
      out.push_back(text[i]);
      continue;
    }
    const char c = text[++i];
    if (c == 'x' && i + 2 < text.size() && hex_digit(text[i + 1]) >= 0 &&
        hex_digit(text[i + 2]) >= 0) {
      out.push_back(static_cast<char>(hex_digit(text[i + 1]) * 16 + hex_digit(text[i + 2])));
      i += 2;
    } else {
      out.push_back(c == 'n' ? '\n' : c == 't' ? '\t' : c == 'r' ? '\r' : c);
    }
  }
  return out;
}

class RwkvTokenizer final : public VocabTokenizer {
 public:
  explicit RwkvTokenizer(Vocab vocab) : VocabTokenizer(std::move(vocab), false) {
    std::vector<SpecialSplit::Pattern> patterns;
    for (int32_t id = 0; id < this->vocab().size(); ++id) {
      literals_.push_back(unescape_literal(this->vocab().piece(id)));
    }
    for (int32_t id = 0; id < this->vocab().size(); ++id) {
      if (this->vocab().is_ordinary(id) && !literals_[id].empty()) {
        patterns.push_back({literals_[id], id, SpecialPolicy::kPlain});
      }
    }
    pieces_ = std::make_unique<const SpecialSplit>(patterns);
  }

  using VocabTokenizer::index_special;
  bool strips_leading_space() const override { return false; }

  std::string token_bytes(int32_t id, bool with_special) const override {
    if (!vocab().has(id)) return "";
    const TokenType type = vocab().type(id);
    if (vocab().is_ordinary(id)) return literals_[id];
    if (type == TokenType::kUserDefined || with_special) return std::string(vocab().piece(id));
    return "";
  }

 protected:
  absl::Status encode_ordinary(std::string_view text, std::vector<int32_t>* ids) const override {
    size_t at = 0;
    const auto gap = [&](size_t end) -> absl::Status {
      if (at >= end) return absl::OkStatus();
      if (!vocab().unknown.has_value()) {
        return error(Code::kTokenizer, "a byte of the text has no token");
      }
      ids->push_back(*vocab().unknown);
      return absl::OkStatus();
    };
    for (const SpecialSplit::Hit& hit : pieces_->find(text, SpecialPolicy::kPlain)) {
      ENGINE_RETURN_IF_ERROR(gap(hit.begin));
      ids->push_back(hit.id);
      at = hit.begin + hit.n_bytes;
    }
    return gap(text.size());
  }

 private:
  std::vector<std::string> literals_;  // V: bytes of each piece
  std::unique_ptr<const SpecialSplit> pieces_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> make_rwkv_tokenizer(Vocab vocab) {
  auto tokenizer = std::make_unique<RwkvTokenizer>(std::move(vocab));
  ENGINE_RETURN_IF_ERROR(tokenizer->index_special());
  return tokenizer;
}

}  // namespace engine
