// For tests of lib/text: vocabularies in memory, from files, and toy ones to build.
#ifndef ENGINE_TESTS_UNIT_TEXT_TOY_VOCAB_H_
#define ENGINE_TESTS_UNIT_TEXT_TOY_VOCAB_H_

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "catch2/catch_test_macros.hpp"
#include "lib/text/byte_map.h"
#include "lib/text/tokenizer.h"
#include "lib/text/utf8_scan.h"
#include "tests/unit/gguf_builder.h"

namespace engine {

using Ids = std::vector<int32_t>;

inline std::string file_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

inline std::string source_path(std::string_view relative) {
  return std::string(ENGINE_SOURCE_DIR) + "/" + std::string(relative);
}

// Where examples/fetch_model.sh puts a model.
inline std::string model_path(std::string_view file) {
  const char* dir = std::getenv("ENGINE_MODELS_DIR");
  if (dir != nullptr && *dir != 0) return std::string(dir) + "/" + std::string(file);
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  std::string base = cache != nullptr && *cache != 0 ? std::string(cache)
                                                     : std::string(home ? home : "") + "/.cache";
  return base + "/engine/models/" + std::string(file);
}

inline absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer_of(std::vector<uint8_t> bytes,
                                                               TokenizerOptions options = {}) {
  GgufOptions gguf_options;
  gguf_options.metadata_only = true;
  ENGINE_ASSIGN_OR_RETURN(const Gguf file, Gguf::parse(bytes, test_block_shape, gguf_options));
  return Tokenizer::create(file, options);
}

// nullptr when there is no such file.
inline std::unique_ptr<Tokenizer> tokenizer_of_file(const std::string& path) {
  const std::string text = file_text(path);
  if (text.empty()) return nullptr;
  auto made = tokenizer_of({text.begin(), text.end()});
  INFO(path << ": " << made.status().ToString());
  REQUIRE(made.ok());
  return std::move(made).value();
}

// The byte-level text of raw bytes.
inline std::string byte_text(std::string_view bytes) {
  std::string text;
  for (char c : bytes) utf8_append(kByteToCodePoint[static_cast<uint8_t>(c)], &text);
  return text;
}

// A vocabulary under construction: pieces with types, scores and merges, and further keys.
struct ToyVocab {
  std::vector<std::string> pieces;
  std::vector<int32_t> types;
  std::vector<float> scores;  // SentencePiece only
  std::vector<std::string> merges;
  GgufBuilder file;

  int32_t add(std::string piece, TokenType type = TokenType::kNormal, float score = 0) {
    pieces.push_back(std::move(piece));
    types.push_back(static_cast<int32_t>(type));
    scores.push_back(score);
    return static_cast<int32_t>(pieces.size()) - 1;
  }
  // A byte-level merge of two raw byte strings and, unless it is there, its result.
  void merge(std::string_view left, std::string_view right) {
    merges.push_back(byte_text(left) + " " + byte_text(right));
    const std::string result = byte_text(left) + byte_text(right);
    for (const std::string& piece : pieces) {
      if (piece == result) return;
    }
    add(result);
  }
  std::vector<uint8_t> build(std::string_view model) {
    file.string("tokenizer.ggml.model", model);
    file.strings("tokenizer.ggml.tokens", pieces);
    file.array("tokenizer.ggml.token_type", types);
    if (model == "llama" || model == "t5") file.array("tokenizer.ggml.scores", scores);
    if (model == "gpt2" || model == "gemma4") file.strings("tokenizer.ggml.merges", merges);
    return file.build();
  }
  std::unique_ptr<Tokenizer> make(std::string_view model, TokenizerOptions options = {}) {
    auto made = tokenizer_of(build(model), options);
    INFO(made.status().ToString());
    REQUIRE(made.ok());
    return std::move(made).value();
  }
};

// 256 byte symbols: the id of a byte is the byte.
inline ToyVocab toy_bpe() {
  ToyVocab toy;
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    toy.add(byte_text({&c, 1}));
  }
  return toy;
}

// <unk> <s> </s> and 256 byte pieces: the id of a byte is the byte + 3.
inline ToyVocab toy_spm() {
  ToyVocab toy;
  toy.add("<unk>", TokenType::kUnknown);
  toy.add("<s>", TokenType::kControl);
  toy.add("</s>", TokenType::kControl);
  for (int byte = 0; byte < 256; ++byte) {
    char text[8];
    std::snprintf(text, sizeof(text), "<0x%02X>", static_cast<unsigned>(byte));
    toy.add(text, TokenType::kByte);
  }
  return toy;
}

inline ToyVocab small_bpe(std::string_view pre = "gpt-2") {
  ToyVocab toy = toy_bpe();
  toy.merge("t", "h");
  toy.merge("th", "e");
  toy.merge(" ", "the");
  if (!pre.empty()) toy.file.string("tokenizer.ggml.pre", pre);
  return toy;
}

inline ToyVocab small_spm() {
  ToyVocab toy = toy_spm();
  toy.add("\u2581", TokenType::kNormal, -9);
  toy.add("a", TokenType::kNormal, -1);
  toy.add("b", TokenType::kNormal, -2);
  toy.add("ab", TokenType::kNormal, -3);
  toy.add("\u2581ab", TokenType::kNormal, -4);
  return toy;
}

// The error names the key, and where its value lies.
inline void check_refused(ToyVocab toy, std::string_view model, std::string_view key,
                          TokenizerOptions options = {}, bool has_offset = true) {
  const auto bytes = toy.build(model);
  const auto made = tokenizer_of(bytes, options);
  INFO(key << ": " << made.status().ToString());
  REQUIRE(!made.ok());
  CHECK(where_of(made.status()).name == key);
  if (has_offset) CHECK(where_of(made.status()).offset == toy.file.value_offset[std::string(key)]);
  CHECK(std::string(made.status().message()).find(key) != std::string::npos);
}

inline Ids encode(const Tokenizer& tokenizer, std::string_view text,
                  BosPolicy bos = BosPolicy::kNone, SpecialPolicy special = SpecialPolicy::kPlain) {
  auto result = tokenizer.encode(text, bos, special);
  INFO(result.status().ToString());
  REQUIRE(result.ok());
  return std::move(result)->ids;
}

inline std::string bytes_of(const Tokenizer& tokenizer, const Ids& ids, bool with_special = false) {
  std::string bytes;
  for (int32_t id : ids) bytes += tokenizer.token_bytes(id, with_special);
  return bytes;
}

}  // namespace engine

#endif  // ENGINE_TESTS_UNIT_TEXT_TOY_VOCAB_H_
