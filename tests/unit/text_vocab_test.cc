// Cases 10 and 26 of the case log: broken vocabularies, wrong or missing pre-tokenizers.
#include <limits>

#include "tests/unit/text_toy_vocab.h"

namespace engine {
namespace {

TEST_CASE("case 10: arrays of other lengths are refused", "[text]") {
  ToyVocab toy = small_spm();
  toy.scores.pop_back();
  check_refused(std::move(toy), "llama", "tokenizer.ggml.scores");
  toy = small_spm();
  toy.types.resize(10);
  check_refused(std::move(toy), "llama", "tokenizer.ggml.token_type");
  toy = small_bpe();
  toy.types.push_back(1);
  check_refused(std::move(toy), "gpt2", "tokenizer.ggml.token_type");
  toy = small_bpe();
  toy.file.array("tokenizer.ggml.scores", std::vector<float>{1, 2});
  check_refused(std::move(toy), "gpt2", "tokenizer.ggml.scores");
  toy = small_spm();
  toy.scores[3] = std::numeric_limits<float>::quiet_NaN();
  check_refused(std::move(toy), "llama", "tokenizer.ggml.scores");
}

TEST_CASE("case 10: special ids outside the vocabulary are refused", "[text]") {
  for (const char* name : {"bos", "eos", "eot", "eom", "unknown", "padding", "fim_pad", "mask"}) {
    const std::string key = "tokenizer.ggml." + std::string(name) + "_token_id";
    ToyVocab toy = small_bpe();
    toy.file.scalar(key, std::numeric_limits<uint32_t>::max());
    check_refused(std::move(toy), "gpt2", key);
    toy = small_bpe();
    toy.file.scalar(key, static_cast<uint32_t>(toy.pieces.size()));
    check_refused(std::move(toy), "gpt2", key);
    toy = small_bpe();
    toy.file.scalar(key, int32_t{-1});
    check_refused(std::move(toy), "gpt2", key);
    toy = small_bpe();
    toy.file.scalar(key, static_cast<uint32_t>(toy.pieces.size() - 1));
    CHECK(tokenizer_of(toy.build("gpt2")).ok());
  }
}

TEST_CASE("case 10: types of another width, unknown types, empty and equal pieces", "[text]") {
  ToyVocab toy = small_spm();
  const int32_t empty = toy.add("", TokenType::kNormal, 0);
  const int32_t again = toy.add("ab", TokenType::kNormal, 5);
  const int32_t odd = toy.add("odd", static_cast<TokenType>(77), 0);
  toy.file.string("tokenizer.ggml.model", "llama");
  toy.file.strings("tokenizer.ggml.tokens", toy.pieces);
  toy.file.array("tokenizer.ggml.token_type",
                 std::vector<uint32_t>(toy.types.begin(), toy.types.end()));
  toy.file.array("tokenizer.ggml.scores", toy.scores);
  toy.file.scalar("tokenizer.ggml.add_space_prefix", false);
  const auto made = tokenizer_of(toy.file.build());
  REQUIRE(made.ok());
  const Tokenizer& tokenizer = **made;
  const int32_t first = *tokenizer.find("ab");
  CHECK(first < again);
  CHECK(encode(tokenizer, "ab") == Ids{first});
  CHECK(tokenizer.token_bytes(again, false) == "ab");
  CHECK(tokenizer.token_bytes(empty, true).empty());
  CHECK(tokenizer.type(odd) == TokenType::kUndefined);
  CHECK(!tokenizer.find("").has_value());
  for (int32_t id : {-1, tokenizer.vocab_size(), std::numeric_limits<int32_t>::max()}) {
    CHECK(tokenizer.token_bytes(id, true).empty());
    CHECK(tokenizer.piece(id).empty());
  }
}

TEST_CASE("case 10: bad merges are refused when strict, else counted", "[text]") {
  for (const char* bad : {"nospace", "a zzz", "zzz a", "q z", "", " ", "a "}) {
    INFO(bad);
    ToyVocab toy = small_bpe();
    toy.merges.insert(toy.merges.begin(), bad);
    TokenizerOptions strict;
    strict.strict = true;
    check_refused(std::move(toy), "gpt2", "tokenizer.ggml.merges", strict);
    toy = small_bpe();
    toy.merges.insert(toy.merges.begin(), bad);
    const auto tokenizer = toy.make("gpt2");
    CHECK(tokenizer->skipped_merges() == 1);
    CHECK(encode(*tokenizer, " the") == Ids{*tokenizer->find(byte_text(" the"))});
  }
}

TEST_CASE("case 10: a missing or foreign vocabulary is refused", "[text]") {
  GgufBuilder none;
  none.string("general.architecture", "llama");
  CHECK(where_of(tokenizer_of(none.build()).status()).name == "tokenizer.ggml.model");
  check_refused(small_bpe(), "plamo2", "tokenizer.ggml.model");
  ToyVocab toy;
  check_refused(std::move(toy), "llama", "tokenizer.ggml.tokens");
  GgufBuilder no_merges;
  no_merges.string("tokenizer.ggml.model", "gpt2").strings("tokenizer.ggml.tokens", {"a"});
  CHECK(where_of(tokenizer_of(no_merges.build()).status()).name == "tokenizer.ggml.merges");
  GgufBuilder no_scores;
  no_scores.string("tokenizer.ggml.model", "llama").strings("tokenizer.ggml.tokens", {"a"});
  CHECK(where_of(tokenizer_of(no_scores.build()).status()).name == "tokenizer.ggml.scores");
  ToyVocab byte = small_spm();
  byte.add("<0xZZ>", TokenType::kByte, 0);
  check_refused(std::move(byte), "llama", "tokenizer.ggml.token_type");
}

TEST_CASE("case 26: an absent or unknown pre-tokenizer needs an explicit wish", "[text]") {
  for (const char* pre : {"", "nonsense"}) {
    check_refused(small_bpe(pre), "gpt2", "tokenizer.ggml.pre", {}, *pre != 0);
    ToyVocab toy = small_bpe(pre);
    TokenizerOptions options;
    options.allow_pretokenizer_fallback = true;
    const auto tokenizer = toy.make("gpt2", options);
    CHECK(tokenizer->pretokenizer_fallback());
    CHECK(tokenizer->pre_name() == "default");
  }
  for (const char* pre : {"qwen2", "llama-bpe", "gpt-2"}) {
    ToyVocab toy = small_bpe(pre);
    const auto tokenizer = toy.make("gpt2");
    CHECK(!tokenizer->pretokenizer_fallback());
    CHECK(tokenizer->pre_name() == pre);
  }
}

TEST_CASE("case 26: the expression decides which merges can happen", "[text]") {
  const auto make = [](const char* pre) {
    ToyVocab toy = toy_bpe();
    toy.merge("-", ">");
    toy.merge("1", "2");
    toy.merge("12", "3");
    toy.merge("3", "4");
    toy.merge(")", ":");
    toy.merge("):", "\n");
    toy.merge("'", "M");
    toy.file.string("tokenizer.ggml.pre", pre);
    return toy.make("gpt2");
  };
  const auto pieces = [](const Tokenizer& tokenizer, std::string_view text) {
    std::string joined;
    for (int32_t id : encode(tokenizer, text)) joined += tokenizer.token_bytes(id, true) + "|";
    return joined;
  };
  const auto gpt2 = make("gpt-2");
  const auto llama = make("llama-bpe");
  const auto qwen = make("qwen2");
  CHECK(pieces(*gpt2, "1234") == "123|4|");
  CHECK(pieces(*llama, "1234") == "123|4|");
  CHECK(pieces(*llama, "0034") == "0|0|3|4|");  // 003|4
  CHECK(pieces(*gpt2, "0034") == "0|0|34|");
  CHECK(pieces(*qwen, "1234") == "1|2|3|4|");
  CHECK(pieces(*gpt2, "):\n") == "):|\n|");
  CHECK(pieces(*qwen, "):\n") == "):\n|");
  CHECK(pieces(*gpt2, "I'M") == "I|'|M|");
  CHECK(pieces(*qwen, "I'M") == "I|'M|");
  CHECK(pieces(*gpt2, "a->b") == "a|->|b|");
}

TEST_CASE("a word that is a piece is taken whole only where the rule says so", "[text]") {
  for (const bool ignores : {true, false}) {
    ToyVocab toy = toy_bpe();
    toy.merge("a", "b");
    const int32_t whole = toy.add("xyz");  // no merge makes it
    toy.file.string("tokenizer.ggml.pre", ignores ? "llama-bpe" : "gpt-2");
    const auto tokenizer = toy.make("gpt2");
    CHECK((encode(*tokenizer, "xyz") == Ids{whole}) == ignores);
  }
}

}  // namespace
}  // namespace engine
