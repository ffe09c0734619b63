// SentencePiece unigram (model `t5`): normalisation by the file's table, then the best path of pieces.
#include <algorithm>
#include <limits>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "lib/file/gguf_common.h"
#include "lib/text/charsmap.h"
#include "lib/text/escaped_spaces.h"
#include "lib/text/utf8_scan.h"
#include "lib/text/vocab_tokenizer.h"

namespace engine {

namespace {

// How much worse than the worst piece an unknown character is.
constexpr double kUnknownPenalty = 10.0;
constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

// The pieces by their bytes.
class ByteTrie {
 public:
  void add(std::string_view text, int32_t id) {
    uint32_t node = 0;
    for (char c : text) {
      const auto [edge, is_new] =
          next_.try_emplace(key(node, c), static_cast<uint32_t>(ids_.size()));
      if (is_new) ids_.push_back(-1);
      node = edge->second;
    }
    if (ids_[node] < 0) ids_[node] = id;
  }
  // Calls visit(n_bytes, id) for every piece that `text` begins with, shortest first.
  template <class Visit>
  void prefixes(std::string_view text, Visit visit) const {
    uint32_t node = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      const auto edge = next_.find(key(node, text[i]));
      if (edge == next_.end()) return;
      node = edge->second;
      if (ids_[node] >= 0) visit(i + 1, ids_[node]);
    }
  }

 private:
  static uint64_t key(uint32_t node, char c) {
    return uint64_t{node} << 8 | static_cast<uint8_t>(c);
  }

  absl::flat_hash_map<uint64_t, uint32_t> next_;
  std::vector<int32_t> ids_{-1};
};

struct Normaliser {
  Charsmap charsmap;
  bool adds_prefix = false;
  bool removes_extra_spaces = false;

  std::string operator()(std::string_view text) const {
    std::string out;
    bool after_space = removes_extra_spaces;  // spaces at the start go too
    const auto put = [&](std::string_view part) {
      for (char c : part) {
        if (c == ' ' && after_space && removes_extra_spaces) continue;
        after_space = c == ' ';
        out.push_back(c);
      }
    };
    while (!text.empty()) {
      const Charsmap::Match match = charsmap.longest(text);
      if (match.n_bytes > 0) {
        put(match.replacement);
        text.remove_prefix(match.n_bytes);
        continue;
      }
      const Utf8Step step = utf8_step(text);
      // SentencePiece replaces ill-formed text byte by byte.
      const size_t n_bytes = step.valid ? step.n_bytes : 1;
      put(step.valid ? text.substr(0, n_bytes) : kReplacement);
      text.remove_prefix(n_bytes);
    }
    if (removes_extra_spaces && !out.empty() && out.back() == ' ') out.pop_back();
    if (removes_extra_spaces && out.empty()) return out;
    return adds_prefix ? escape_spaces(absl::StrCat(" ", out)) : escape_spaces(out);
  }
};

class UnigramTokenizer final : public VocabTokenizer {
 public:
  UnigramTokenizer(Vocab vocab, Normaliser normaliser)
      : VocabTokenizer(std::move(vocab), false, true), normaliser_(std::move(normaliser)) {
    double lowest = std::numeric_limits<double>::infinity();
    for (int32_t id = 0; id < this->vocab().size(); ++id) {
      const TokenType type = this->vocab().type(id);
      if (type != TokenType::kNormal && type != TokenType::kUserDefined) continue;
      if (!this->vocab().piece(id).empty()) trie_.add(this->vocab().piece(id), id);
      if (type == TokenType::kNormal) lowest = std::min<double>(lowest, this->vocab().score(id));
    }
    unknown_score_ =
        (lowest < std::numeric_limits<double>::infinity() ? lowest : 0) - kUnknownPenalty;
  }

  using VocabTokenizer::index_special;
  bool strips_leading_space() const override { return normaliser_.adds_prefix; }

  std::string token_bytes(int32_t id, bool with_special) const override {
    if (!vocab().has(id)) return "";
    const std::string_view piece = vocab().piece(id);
    if (vocab().type(id) == TokenType::kNormal) return unescape_spaces(piece);
    if (vocab().type(id) == TokenType::kUserDefined || with_special) return std::string(piece);
    return "";
  }

 protected:
  absl::Status encode_ordinary(std::string_view raw, std::vector<int32_t>* ids) const override {
    const std::string text = normaliser_(raw);
    struct Node {
      double score = -std::numeric_limits<double>::infinity();
      uint32_t n_bytes = 0;  // of the best piece that ends here
      int32_t id = -1;       // -1: an unknown character
    };
    std::vector<Node> best(text.size() + 1);
    best[0].score = 0;
    for (size_t at = 0; at < text.size();) {
      const std::string_view rest = std::string_view(text).substr(at);
      const uint32_t n_char = utf8_step(rest).n_bytes;
      const double score = best[at].score;
      bool has_char = false;
      const auto offer = [&](size_t n_bytes, int32_t id, double piece_score) {
        Node& node = best[at + n_bytes];
        if (score + piece_score <= node.score && node.n_bytes > 0) return;
        node = {score + piece_score, static_cast<uint32_t>(n_bytes), id};
      };
      trie_.prefixes(rest, [&](size_t n_bytes, int32_t id) {
        if (n_bytes == n_char) has_char = true;
        offer(n_bytes, id,
              vocab().type(id) == TokenType::kUserDefined ? 0.0 : double{vocab().score(id)});
      });
      if (!has_char) offer(n_char, -1, unknown_score_);
      at += n_char;
    }
    std::vector<int32_t> path;
    for (size_t at = text.size(); at > 0; at -= best[at].n_bytes) path.push_back(best[at].id);
    std::reverse(path.begin(), path.end());
    for (size_t i = 0; i < path.size(); ++i) {
      if (path[i] >= 0) {
        ids->push_back(path[i]);
      } else if (!vocab().unknown.has_value()) {
        return error(Code::kTokenizer, "a character of the text has no token");
      } else if (i == 0 || path[i - 1] >= 0) {  // neighbours are one unknown token
        ids->push_back(*vocab().unknown);
      }
    }
    return absl::OkStatus();
  }

 private:
  Normaliser normaliser_;
  ByteTrie trie_;
  double unknown_score_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> make_unigram_tokenizer(const Gguf& file, Vocab vocab) {
  constexpr std::string_view kMap = "tokenizer.ggml.precompiled_charsmap";
  Normaliser normaliser;
  normaliser.adds_prefix = vocab.add_space_prefix.value_or(false);
  ENGINE_ASSIGN_OR_RETURN(const auto removes,
                          file.get_bool("tokenizer.ggml.remove_extra_whitespaces"));
  normaliser.removes_extra_spaces = removes.value_or(false);
  if (const GgufValue* map = file.find(kMap); map != nullptr) {
    const bool bytes = map->type == GgufType::kArray &&
                       (map->element_type == GgufType::kU8 || map->element_type == GgufType::kI8);
    auto read = bytes ? Charsmap::read({reinterpret_cast<const char*>(map->data), map->data_bytes})
                      : error(Code::kTokenizer, "is not an array of bytes");
    if (!read.ok()) {
      return gguf_error(Code::kTokenizer, kMap, map->offset, read.status().message());
    }
    normaliser.charsmap = std::move(*read);
  }
  auto tokenizer = std::make_unique<UnigramTokenizer>(std::move(vocab), std::move(normaliser));
  ENGINE_RETURN_IF_ERROR(tokenizer->index_special());
  return tokenizer;
}

}  // namespace engine
