// The tokenizer models that no test model has: ids recorded from other implementations by
// tests/parity/record_tokenizer_models.py, and what the recordings do not show.
#include <cstring>

#include "lib/text/pretokenize_rules.h"
#include "nlohmann/json.hpp"
#include "tests/unit/text_toy_vocab.h"

namespace engine {
namespace {

std::unique_ptr<Tokenizer> recorded_tokenizer(const nlohmann::json& model) {
  ToyVocab toy;
  for (size_t i = 0; i < model.at("pieces").size(); ++i) {
    toy.add(model["pieces"][i].get<std::string>(),
            static_cast<TokenType>(model.at("types")[i].get<int32_t>()),
            model.contains("scores") ? model["scores"][i].get<float>() : 0);
  }
  if (model.contains("merges")) toy.merges = model["merges"].get<std::vector<std::string>>();
  for (const auto& [key, id] : model.at("ids").items()) {
    toy.file.scalar("tokenizer.ggml." + key, id.get<uint32_t>());
  }
  for (const char* flag : {"remove_extra_whitespaces", "add_space_prefix"}) {
    if (model.contains(flag)) {
      toy.file.scalar("tokenizer.ggml." + std::string(flag), model[flag].get<bool>());
    }
  }
  if (model.contains("lowercase")) {
    toy.file.scalar("tokenizer.ggml.normalizer.lowercase", model["lowercase"].get<bool>());
  }
  if (model.contains("charsmap")) {
    toy.file.array("tokenizer.ggml.precompiled_charsmap",
                   model["charsmap"].get<std::vector<uint8_t>>());
  }
  return toy.make(model.at("model").get<std::string>());
}

TEST_CASE("recorded ids: WordPiece, unigram, Gemma 4's BPE", "[text]") {
  const auto models =
      nlohmann::json::parse(file_text(source_path("tests/golden/tokens_models.json")));
  size_t n_checked = 0;
  for (const nlohmann::json& model : models) {
    const std::string name = model.at("model").get<std::string>();
    const auto tokenizer = recorded_tokenizer(model);
    CHECK(tokenizer->model_name() == name);
    CHECK(tokenizer->skipped_merges() == 0);
    for (const nlohmann::json& entry : model.at("cases")) {
      const std::string text = entry[0].get<std::string>();
      INFO(name << ": " << entry.dump());
      const bool has_escape = text.find("\xE2\x96\x81") != std::string::npos;
      // U+2581 is how this vocabulary writes the start of a word.
      if (name == "bert" && has_escape) continue;
      CHECK(encode(*tokenizer, text, BosPolicy::kNone, SpecialPolicy::kUserDefined) ==
            entry[1].get<Ids>());
      if (name == "gemma4" && !has_escape) {
        CHECK(tokenizer->decode(encode(*tokenizer, text), true) == text);
      }
      ++n_checked;
    }
  }
  CHECK(n_checked >= 500);
}

TEST_CASE("WordPiece: CLS and SEP around a text, words back with spaces", "[text]") {
  ToyVocab toy;
  for (const char* text : {"[UNK]", "[CLS]", "[SEP]"}) {
    toy.add(text, text[1] == 'U' ? TokenType::kUnknown : TokenType::kControl);
  }
  toy.add("\u2581un");
  toy.add("able");
  toy.add("\u2581.");
  toy.file.scalar<uint32_t>("tokenizer.ggml.cls_token_id", 1);
  toy.file.scalar<uint32_t>("tokenizer.ggml.seperator_token_id", 2);
  toy.file.scalar<uint32_t>("tokenizer.ggml.unknown_token_id", 0);
  const auto tokenizer = toy.make("bert");
  CHECK(encode(*tokenizer, "Unable.", BosPolicy::kModelDefault) == Ids{1, 3, 4, 5, 2});
  CHECK(encode(*tokenizer, "unabl un[SEP]") == Ids{0, 3, 0, 0, 0});
  CHECK(encode(*tokenizer, "un[SEP]", BosPolicy::kNone, SpecialPolicy::kAll) == Ids{3, 2});
  CHECK(tokenizer->decode(Ids{1, 3, 4, 5, 2}, false) == "unable .");
}

TEST_CASE("unigram: a table of any bytes is read safely", "[text]") {
  std::vector<uint8_t> map;
  uint32_t state = 1;
  for (int trial = 0; trial < 300; ++trial) {
    const size_t n_units = 1 + static_cast<size_t>(trial) % 40;
    map.assign(4 + n_units * 4 + 8, 0);
    for (uint8_t& byte : map)
      byte = static_cast<uint8_t>((state = state * 1664525 + 1013904223) >> 24);
    const uint32_t n_bytes = static_cast<uint32_t>(n_units * 4);
    std::memcpy(map.data(), &n_bytes, 4);
    ToyVocab toy;
    toy.add("<unk>", TokenType::kUnknown);
    toy.add("a", TokenType::kNormal, -1);
    toy.file.scalar<uint32_t>("tokenizer.ggml.unknown_token_id", 0);
    toy.file.array("tokenizer.ggml.precompiled_charsmap", map);
    const auto tokenizer = toy.make("t5");
    encode(*tokenizer, "a\x80\xFFzz\xE2\x96\x81 abc");
  }
  ToyVocab toy;
  toy.add("<unk>", TokenType::kUnknown);
  toy.file.array("tokenizer.ggml.precompiled_charsmap", std::vector<uint8_t>{9, 0, 0, 0, 1});
  check_refused(toy, "t5", "tokenizer.ggml.precompiled_charsmap");
}

TEST_CASE("RWKV: escaped literals, the longest piece at each place", "[text]") {
  ToyVocab toy;
  toy.add("<s>", TokenType::kControl);
  for (const char* text : {"a", "ab", "abc", "b", "\\n", "\\xe4\\xbd", "\\xa0", "\\'", "\\\\"}) {
    toy.add(text);
  }
  const auto tokenizer = toy.make("rwkv");
  CHECK(encode(*tokenizer, "abab\nabca") == Ids{2, 2, 5, 3, 1});
  CHECK(encode(*tokenizer, "\u4F60'\\") == Ids{6, 7, 8, 9});
  CHECK(tokenizer->decode(Ids{0, 2, 5, 6, 7, 8, 9}, false) == "ab\n\u4F60'\\");
  const auto missing = tokenizer->encode("x", BosPolicy::kNone, SpecialPolicy::kPlain);
  CHECK(code_of(missing.status()) == Code::kTokenizer);
}

TEST_CASE("a foreign tokenizer model or an unsupported pre-tokenizer is refused by name",
          "[text]") {
  check_refused(small_bpe(), "plamo2", "tokenizer.ggml.model");
  for (const UnsupportedPretokenizer& known : unsupported_pretokenizers()) {
    CHECK(find_pretokenize_rule(known.name) == nullptr);
    check_refused(small_bpe(known.name), "gpt2", "tokenizer.ggml.pre");
    const auto made = tokenizer_of(small_bpe(known.name).build("gpt2"));
    CHECK(std::string(made.status().message()).find(known.why) != std::string::npos);
    TokenizerOptions options;
    options.allow_pretokenizer_fallback = true;
    const auto tokenizer = small_bpe(known.name).make("gpt2", options);
    CHECK(tokenizer->pretokenizer_fallback());
    CHECK(tokenizer->pre_name() == "default");
  }
}

TEST_CASE("mmBERT: a word begins at every escaped space, and the text with one", "[text]") {
  ToyVocab toy;
  toy.add("<unk>", TokenType::kUnknown);
  for (const char* text : {"\u2581", "a", "b", "\u2581a", "ab", "\u2581ab"}) toy.add(text);
  toy.merges = {"\u2581 a", "a b", "\u2581 ab", "\u2581a b"};
  toy.file.string("tokenizer.ggml.pre", "mmbert");
  const auto tokenizer = toy.make("gpt2");
  CHECK(encode(*tokenizer, "ab  a") == Ids{6, 1, 4});
  CHECK(tokenizer->decode(Ids{6, 1, 4}, false) == "ab  a");
}

TEST_CASE("Phi-3's tokens take the white space after them", "[text]") {
  for (const bool phi3 : {false, true}) {
    ToyVocab toy = small_spm();
    const int32_t user = toy.add("<|user|>", TokenType::kControl);
    const int32_t end = toy.add("<|end|>", TokenType::kControl);
    toy.add("<|assistant|>", TokenType::kControl);
    if (phi3) toy.add("<|placeholder1|>", TokenType::kControl);
    const auto tokenizer = toy.make("llama");
    const int32_t ab = *tokenizer->find("\u2581ab");
    const Ids stripped{user, ab, end};
    const std::string text = "<|user|>\n \u00A0ab<|end|>\n";
    CHECK((encode(*tokenizer, text, BosPolicy::kNone, SpecialPolicy::kAll) == stripped) == phi3);
    // Also where the white space is of the next part, which matches no token.
    const TextPart parts[] = {{"<|user|>", SpecialPolicy::kAll},
                              {"\n", SpecialPolicy::kAll},
                              {" ab", SpecialPolicy::kPlain},
                              {"<|end|>", SpecialPolicy::kAll}};
    Ids ids;
    REQUIRE(tokenizer->encode_parts(parts, true, &ids).ok());
    CHECK((ids == stripped) == phi3);
    CHECK(encode(*tokenizer, "<s>\nab", BosPolicy::kNone, SpecialPolicy::kAll).size() > 2);
  }
}

// Llama 3's vocabulary under the name `smaug-bpe`: its published tokenizer takes whole words.
TEST_CASE("smaug-bpe takes whole words where the vocabulary is Llama 3's", "[text]") {
  for (const bool llama3 : {false, true}) {
    ToyVocab toy = toy_bpe();
    const int32_t whole = toy.add("xyz");
    while (toy.pieces.size() < 128000) toy.add("p" + std::to_string(toy.pieces.size()));
    toy.add(llama3 ? "<|begin_of_text|>" : "<|other|>", TokenType::kControl);
    toy.merges = {"a b"};
    toy.file.string("tokenizer.ggml.pre", "smaug-bpe");
    const auto tokenizer = toy.make("gpt2");
    CHECK(encode(*tokenizer, "xyz") == (llama3 ? Ids{whole} : Ids{'x', 'y', 'z'}));
  }
}

}  // namespace
}  // namespace engine
