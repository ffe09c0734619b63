// Cases 10 and 26 to 31 of the case log: broken vocabularies, BOS, control tokens in text, bytes, end tokens.
#include <algorithm>
#include <limits>
#include <random>
#include <thread>

#include "lib/text/chat.h"
#include "lib/text/special_split.h"
#include "tests/unit/text_toy_vocab.h"

namespace engine {
namespace {

ToyVocab small_bpe(std::string_view pre = "gpt-2") {
  ToyVocab toy = toy_bpe();
  toy.merge("t", "h");
  toy.merge("th", "e");
  toy.merge(" ", "the");
  if (!pre.empty()) toy.file.string("tokenizer.ggml.pre", pre);
  return toy;
}

ToyVocab small_spm() {
  ToyVocab toy = toy_spm();
  toy.add("\u2581", TokenType::kNormal, -9);
  toy.add("a", TokenType::kNormal, -1);
  toy.add("b", TokenType::kNormal, -2);
  toy.add("ab", TokenType::kNormal, -3);
  toy.add("\u2581ab", TokenType::kNormal, -4);
  return toy;
}

// The error names the key, and where its value lies.
void check_refused(ToyVocab toy, std::string_view model, std::string_view key,
                   TokenizerOptions options = {}, bool has_offset = true) {
  const auto bytes = toy.build(model);
  const auto made = tokenizer_of(bytes, options);
  INFO(key << ": " << made.status().ToString());
  REQUIRE(!made.ok());
  CHECK(where_of(made.status()).name == key);
  if (has_offset) CHECK(where_of(made.status()).offset == toy.file.value_offset[std::string(key)]);
  CHECK(std::string(made.status().message()).find(key) != std::string::npos);
}

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
  check_refused(small_bpe(), "bert", "tokenizer.ggml.model");
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

TEST_CASE("case 27: BOS and EOS by policy", "[text]") {
  // (a) The text has BOS already.
  ToyVocab toy = small_spm();
  toy.file.scalar("tokenizer.ggml.add_bos_token", true);
  toy.file.scalar("tokenizer.ggml.add_space_prefix", false);
  const auto spm = toy.make("llama");
  const int32_t ab = *spm->find("ab");
  auto result = spm->encode("<s>ab", BosPolicy::kModelDefault, SpecialPolicy::kAll);
  CHECK(result->ids == Ids{1, ab});
  CHECK((result->text_had_bos && !result->bos_added));
  result = spm->encode("ab", BosPolicy::kModelDefault, SpecialPolicy::kAll);
  CHECK(result->ids == Ids{1, ab});
  CHECK((!result->text_had_bos && result->bos_added));
  result = spm->encode("<s>ab", BosPolicy::kForce, SpecialPolicy::kAll);
  CHECK(result->ids == Ids{1, 1, ab});
  CHECK((result->text_had_bos && result->bos_added));
  CHECK(spm->encode("<s>ab", BosPolicy::kNone, SpecialPolicy::kAll)->ids == Ids{1, ab});
  CHECK(spm->encode("ab", BosPolicy::kNone, SpecialPolicy::kAll)->ids == Ids{ab});
  // As plain text, `<s>` is no BOS.
  result = spm->encode("<s>ab", BosPolicy::kModelDefault, SpecialPolicy::kPlain);
  CHECK((!result->text_had_bos && result->bos_added));
  CHECK(spm->decode(result->ids, false) == "<s>ab");
  CHECK(spm->encode("", BosPolicy::kModelDefault, SpecialPolicy::kPlain)->ids == Ids{1});

  // (b) No key: no token, not a default number.
  ToyVocab no_bos = small_bpe();
  const auto bpe = no_bos.make("gpt2");
  CHECK(!bpe->bos().has_value());
  CHECK(!bpe->eos().has_value());
  CHECK(code_of(bpe->encode("x", BosPolicy::kForce, SpecialPolicy::kAll).status()) ==
        Code::kArgument);
  CHECK(!bpe->encode("x", BosPolicy::kModelDefault, SpecialPolicy::kAll)->bos_added);
  ToyVocab wants_bos = small_bpe();
  wants_bos.file.scalar("tokenizer.ggml.add_bos_token", true);
  check_refused(std::move(wants_bos), "gpt2", "tokenizer.ggml.add_bos_token");

  // (c) add_bos false with an id; (d) absent: SentencePiece adds, byte-level does not, llama-bpe does.
  const auto with_bos = [](const char* pre, std::optional<bool> flag) {
    ToyVocab vocab = small_bpe(pre);
    const int32_t id = vocab.add("<|begin|>", TokenType::kControl);
    vocab.file.scalar("tokenizer.ggml.bos_token_id", static_cast<uint32_t>(id));
    if (flag.has_value()) vocab.file.scalar("tokenizer.ggml.add_bos_token", *flag);
    return vocab.make("gpt2")
        ->encode("x", BosPolicy::kModelDefault, SpecialPolicy::kAll)
        ->bos_added;
  };
  CHECK(!with_bos("gpt-2", false));
  CHECK(!with_bos("gpt-2", std::nullopt));
  CHECK(with_bos("gpt-2", true));
  CHECK(with_bos("llama-bpe", std::nullopt));
  CHECK(!with_bos("llama-bpe", false));
  ToyVocab absent = small_spm();
  CHECK(absent.make("llama")->adds_bos());

  // (e) EOS.
  ToyVocab eos = small_spm();
  eos.file.scalar("tokenizer.ggml.add_eos_token", true);
  eos.file.scalar("tokenizer.ggml.add_space_prefix", false);
  const auto with_eos = eos.make("llama");
  result = with_eos->encode("ab", BosPolicy::kModelDefault, SpecialPolicy::kAll);
  CHECK(result->ids == Ids{1, ab, 2});
  CHECK(result->eos_added);
  CHECK(with_eos->encode("ab", BosPolicy::kNone, SpecialPolicy::kAll)->ids == Ids{ab});
}

TEST_CASE("case 28: three levels of matching", "[text]") {
  ToyVocab toy = small_bpe();
  const int32_t im_end = toy.add("<|im_end|>", TokenType::kControl);
  const int32_t channel = toy.add("<|channel>", TokenType::kUserDefined);
  const auto tokenizer = toy.make("gpt2");
  const auto count = [](const Ids& ids, int32_t id) {
    return std::count(ids.begin(), ids.end(), id);
  };
  for (const std::string text :
       {"<|im_end|>a<|channel>", "<|im_end|><|im_end|>", "<|channel><|channel>",
        "<|im_end|> <|im_end|>", "wo<|im_end|>rd<|channel>s", "<|im_end|", "<|<|im_end|>|>"}) {
    INFO(text);
    const Ids plain = encode(*tokenizer, text);
    CHECK(count(plain, im_end) + count(plain, channel) == 0);
    CHECK(tokenizer->decode(plain, false) == text);
    const Ids user = encode(*tokenizer, text, BosPolicy::kNone, SpecialPolicy::kUserDefined);
    CHECK(count(user, im_end) == 0);
    CHECK(tokenizer->decode(user, false) == text);
    const Ids all = encode(*tokenizer, text, BosPolicy::kNone, SpecialPolicy::kAll);
    CHECK(tokenizer->decode(all, true) == text);
  }
  const auto all = [&](std::string_view text) {
    return encode(*tokenizer, text, BosPolicy::kNone, SpecialPolicy::kAll);
  };
  CHECK(all("<|im_end|><|channel><|im_end|>") == Ids{im_end, channel, im_end});
  CHECK(all("<|im_end|> <|im_end|>") == Ids{im_end, ' ', im_end});
  CHECK(tokenizer->decode(all("a<|im_end|>b"), false) == "ab");
}

TEST_CASE("case 28: a control piece is no result of merging either", "[text]") {
  ToyVocab bpe = toy_bpe();
  const int32_t control = bpe.add("xy", TokenType::kControl);
  bpe.merges.push_back("x y");
  bpe.file.string("tokenizer.ggml.pre", "gpt-2");
  CHECK(encode(*bpe.make("gpt2"), "xy") == Ids{'x', 'y'});
  ToyVocab spm = small_spm();
  spm.add("ba", TokenType::kControl, 9);
  spm.add("aa", TokenType::kUnknown, 9);
  spm.file.scalar("tokenizer.ggml.add_space_prefix", false);
  const auto tokenizer = spm.make("llama");
  const int32_t a = *tokenizer->find("a");
  CHECK(encode(*tokenizer, "aa") == Ids{a, a});
  CHECK(encode(*tokenizer, "ba") == Ids{*tokenizer->find("b"), a});
  CHECK(control > 0);
}

TEST_CASE("case 28: leftmost, then longest, as a plain search finds them", "[text]") {
  std::mt19937 random(3);
  for (int round = 0; round < 300; ++round) {
    std::vector<std::string> texts;
    for (int i = 0; i < 6; ++i) {
      std::string text;
      const size_t size = 1 + random() % 5;
      while (text.size() < size) text.push_back("ab"[random() % 2]);
      texts.push_back(text);
    }
    std::vector<SpecialSplit::Pattern> patterns;
    for (size_t i = 0; i < texts.size(); ++i) {
      patterns.push_back({texts[i], static_cast<int32_t>(i),
                          i % 2 == 0 ? SpecialPolicy::kUserDefined : SpecialPolicy::kAll});
    }
    const SpecialSplit split(patterns);
    std::string text;
    for (int i = 0; i < 30; ++i) text.push_back("abc"[random() % 3]);
    for (SpecialPolicy level :
         {SpecialPolicy::kPlain, SpecialPolicy::kUserDefined, SpecialPolicy::kAll}) {
      std::vector<std::pair<size_t, int32_t>> expected;
      for (size_t at = 0; at < text.size();) {
        int32_t best = -1;
        for (const auto& pattern : patterns) {
          if (pattern.level > level || text.compare(at, pattern.text.size(), pattern.text) != 0) {
            continue;
          }
          if (best < 0 || pattern.text.size() > texts[best].size()) best = pattern.id;
        }
        if (best >= 0) expected.emplace_back(at, best);
        at += best >= 0 ? texts[best].size() : 1;
      }
      std::vector<std::pair<size_t, int32_t>> found;
      for (const auto& hit : split.find(text, level)) found.emplace_back(hit.begin, hit.id);
      CHECK(found == expected);
    }
  }
}

TEST_CASE("case 29: any bytes come back", "[text]") {
  ToyVocab bpe_toy = small_bpe("llama-bpe");
  ToyVocab spm_toy = small_spm();
  const auto bpe = bpe_toy.make("gpt2");
  const auto spm = spm_toy.make("llama");
  std::vector<std::string> texts = {"\xE6\xAD", "\x80",           "\xF0\x9F",
                                    "\xC0\x80", "\xED\xA0\x80",   std::string("a\0b", 3),
                                    "",         "\xE6\xAD the a", "ab \xFF ab"};
  std::mt19937 random(5);
  for (int n = 0; n < 500; ++n) {
    std::string text;
    for (int i = 0; i < 30; ++i) text.push_back(static_cast<char>(random() & 0xFF));
    texts.push_back(text);
  }
  for (const std::string& text : texts) {
    if (text.find("\u2581") != std::string::npos) continue;  // a space to SentencePiece
    for (const Tokenizer* tokenizer : {bpe.get(), spm.get()}) {
      CHECK(tokenizer->decode(encode(*tokenizer, text), false) == text);
    }
    CHECK(bytes_of(*bpe, encode(*bpe, text)) == text);
    CHECK(bytes_of(*spm, encode(*spm, text)) == (text.empty() ? "" : " " + text));
  }
}

TEST_CASE("case 29: a byte without a token is an error, or the unknown token", "[text]") {
  ToyVocab toy;
  toy.add("a");
  toy.file.string("tokenizer.ggml.pre", "gpt-2");
  const auto bpe = toy.make("gpt2");
  CHECK(encode(*bpe, "aa") == Ids{0, 0});
  CHECK(code_of(bpe->encode("ab", BosPolicy::kNone, SpecialPolicy::kPlain).status()) ==
        Code::kTokenizer);
  ToyVocab spm_toy;
  spm_toy.add("<unk>", TokenType::kUnknown);
  spm_toy.add("a");
  spm_toy.file.scalar("tokenizer.ggml.add_space_prefix", false);
  const auto spm = spm_toy.make("llama");
  CHECK(encode(*spm, "abca") == Ids{1, 0, 1});
}

TEST_CASE("SentencePiece rules: scores, ties, prefix, unused and user-defined pieces", "[text]") {
  ToyVocab toy = small_spm();
  const int32_t x = toy.add("x", TokenType::kNormal, -1);
  const int32_t xx = toy.add("xx", TokenType::kNormal, -5);
  const int32_t dead = toy.add("bb", TokenType::kUnused, 5);
  const int32_t u = toy.add("\u00FC", TokenType::kUserDefined, -7);
  const int32_t runs = toy.add("  ", TokenType::kUserDefined, -7);
  const int32_t tag = toy.add("<b>", TokenType::kUserDefined, -7);
  const auto tokenizer = toy.make("llama");
  const auto id = [&](std::string_view piece) { return *tokenizer->find(piece); };
  const int32_t space = id("\u2581");
  // The prefix: once, at the start; none for empty text; again after a token in text.
  CHECK(encode(*tokenizer, "ab") == Ids{id("\u2581ab")});
  CHECK(encode(*tokenizer, "").empty());
  CHECK(encode(*tokenizer, "</s>ab", BosPolicy::kNone, SpecialPolicy::kAll) ==
        Ids{2, id("\u2581ab")});
  Ids ids;
  REQUIRE(tokenizer->encode_append("ab", SpecialPolicy::kPlain, false, &ids).ok());
  CHECK(ids == Ids{id("ab")});
  // Equal scores: the leftmost pair first.
  CHECK(encode(*tokenizer, "xxx") == Ids{space, xx, x});
  // An UNUSED piece is taken apart again.
  CHECK(encode(*tokenizer, "bb") == Ids{space, id("b"), id("b")});
  CHECK(tokenizer->token_bytes(dead, true).empty());
  // A letter or a run of spaces that is user-defined is ordinary text; markup is not.
  CHECK(encode(*tokenizer, "a\u00FCb") == Ids{space, id("a"), u, id("b")});
  CHECK(encode(*tokenizer, "x  x") == Ids{space, x, runs, x});
  CHECK(tokenizer->decode(encode(*tokenizer, "x  x"), false) == "x  x");
  CHECK(tokenizer->decode(encode(*tokenizer, "  x"), false) == "  x");
  const Ids plain = encode(*tokenizer, "<b>");
  CHECK(std::find(plain.begin(), plain.end(), tag) == plain.end());
  CHECK(encode(*tokenizer, "<b>", BosPolicy::kNone, SpecialPolicy::kUserDefined) == Ids{tag});
  CHECK(tokenizer->token_bytes(tag, false) == "<b>");
  CHECK(tokenizer->token_bytes(1, false).empty());
  CHECK(tokenizer->token_bytes(1, true) == "<s>");
}

TEST_CASE("case 30: no normalisation, and the bytes come back", "[text]") {
  ToyVocab bpe_toy = small_bpe("llama-bpe");
  ToyVocab spm_toy = small_spm();
  const auto bpe = bpe_toy.make("gpt2");
  const auto spm = spm_toy.make("llama");
  std::vector<std::string> texts = {"\u00BD",
                                    "Kant\u014D",
                                    "Kanto\u0304",
                                    "a\u2029b",
                                    "\u00A0\u00A0",
                                    "\u3000",
                                    "F\u00FChrer",
                                    "\u0939\u093F\u0928\u094D\u0926\u0940",
                                    "\U0001F468\u200D\U0001F469\u200D\U0001F467",
                                    "\uFEFF"};
  std::mt19937 random(11);
  for (int n = 0; n < 1000; ++n) {
    std::string text;
    for (int i = 0; i < 200; ++i) {
      uint32_t scalar = random() % 0x110000;
      if (scalar >= 0xD800 && scalar <= 0xDFFF) scalar = 'x';
      utf8_append(n % 2 == 0 ? scalar : scalar % 0x3000, &text);
    }
    texts.push_back(text);
  }
  for (const std::string& text : texts) {
    CHECK(bytes_of(*bpe, encode(*bpe, text)) == text);
    // SentencePiece text cannot tell U+2581 from a space.
    std::string spaced = text;
    for (size_t at; (at = spaced.find("\u2581")) != std::string::npos;) spaced.replace(at, 3, " ");
    CHECK(spm->decode(encode(*spm, text), false) == spaced);
  }
}

TEST_CASE("case 30: NFC where the published tokenizer has it", "[text]") {
  ToyVocab with = small_bpe("qwen2");
  ToyVocab without = small_bpe("llama-bpe");
  const auto qwen2 = with.make("gpt2");
  const auto llama = without.make("gpt2");
  const std::string composed = "Kant\u014D \uFA10 \uAC00";
  const std::string parted = "Kanto\u0304 \u585A \u1100\u1161";
  CHECK(bytes_of(*qwen2, encode(*qwen2, parted)) == "Kant\u014D \u585A \uAC00");
  CHECK(bytes_of(*qwen2, encode(*qwen2, composed)) == "Kant\u014D \u585A \uAC00");
  CHECK(bytes_of(*llama, encode(*llama, parted)) == parted);
  // Bytes that are not UTF-8 stay, and nothing combines across them.
  CHECK(bytes_of(*qwen2, encode(*qwen2, "o\xFF\u0304")) == "o\xFF\u0304");
  CHECK(bytes_of(*qwen2, encode(*qwen2, std::string("a\0\xC0", 3))) == std::string("a\0\xC0", 3));
}

TEST_CASE("case 31: every end token with its reason", "[text]") {
  ToyVocab toy = small_bpe("llama-bpe");
  const int32_t text_end = toy.add("<|end_of_text|>", TokenType::kControl);
  const int32_t eot = toy.add("<|eot_id|>", TokenType::kControl);
  const int32_t eom = toy.add("<|eom_id|>", TokenType::kControl);
  const int32_t guess = toy.add("<|im_end|>", TokenType::kNormal);
  const int32_t fim = toy.add("<fim>", TokenType::kControl);
  toy.add("<|other|>", TokenType::kControl);
  toy.file.scalar("tokenizer.ggml.eos_token_id", static_cast<uint32_t>(text_end));
  toy.file.scalar("tokenizer.ggml.eot_token_id", static_cast<uint32_t>(eot));
  toy.file.scalar("tokenizer.ggml.eom_token_id", static_cast<uint32_t>(eom));
  toy.file.scalar("tokenizer.ggml.fim_pad_token_id", static_cast<uint32_t>(fim));
  const auto tokenizer = toy.make("gpt2");
  const std::vector<std::pair<int32_t, EndReason>> expected = {{text_end, EndReason::kEos},
                                                               {eot, EndReason::kEot},
                                                               {eom, EndReason::kEom},
                                                               {guess, EndReason::kName},
                                                               {fim, EndReason::kFim}};
  std::vector<std::pair<int32_t, EndReason>> found;
  for (const EndToken& token : tokenizer->end_tokens()) found.emplace_back(token.id, token.reason);
  CHECK(found == expected);
  // Written as NORMAL in the file, but a control token.
  CHECK(tokenizer->type(guess) == TokenType::kControl);
  CHECK(tokenizer->token_bytes(guess, false).empty());
}

TEST_CASE("case 31: names that mean something else", "[text]") {
  const auto ends = [](std::vector<std::string> names) {
    ToyVocab toy = small_bpe();
    for (const std::string& name : names) toy.add(name, TokenType::kControl);
    const auto tokenizer = toy.make("gpt2");
    std::vector<std::string> found;
    for (const EndToken& token : tokenizer->end_tokens()) {
      found.emplace_back(tokenizer->piece(token.id));
    }
    return found;
  };
  using Names = std::vector<std::string>;
  CHECK(ends({"<|end|>"}) == Names{"<|end|>"});
  CHECK(ends({"<|end|>", "<|return|>", "<|call|>"}) == Names{"<|return|>", "<|call|>"});
  CHECK(ends({"</s>"}) == Names{"</s>"});
  CHECK(ends({"</s>", "<|tool_response>"}) == Names{"<|tool_response>"});
  CHECK(ends({"</s>", "<end_of_turn>"}) == Names{"<end_of_turn>"});
  // What merges can make is text.
  ToyVocab toy = small_bpe();
  toy.merge("<", "/");
  toy.merge("</", "s");
  toy.merge("</s", ">");
  CHECK(toy.make("gpt2")->end_tokens().empty());
}

TEST_CASE("many threads may use one tokenizer", "[text]") {
  ToyVocab toy = small_bpe("llama-bpe");
  const auto tokenizer = toy.make("gpt2");
  const std::string text = "the other theatre, the 1234 \u0939\u093F the";
  const Ids expected = encode(*tokenizer, text);
  std::vector<std::thread> threads;
  std::vector<int> n_equal(4);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) {
        const auto result = tokenizer->encode(text, BosPolicy::kNone, SpecialPolicy::kPlain);
        n_equal[t] += result.ok() && result->ids == expected;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(n_equal == std::vector<int>{200, 200, 200, 200});
}

TEST_CASE("parts are tokenized as one text, specials matched part by part", "[text]") {
  ToyVocab toy = small_bpe();
  const int32_t end = toy.add("<|x|>", TokenType::kControl);
  const auto tokenizer = toy.make("gpt2");
  const int32_t the = *tokenizer->find(byte_text(" the"));
  const auto ids_of = [&](std::vector<TextPart> parts) {
    Ids ids;
    REQUIRE(tokenizer->encode_parts(parts, true, &ids).ok());
    return ids;
  };
  CHECK(ids_of({{" t", SpecialPolicy::kAll}, {"he", SpecialPolicy::kPlain}}) == Ids{the});
  CHECK(ids_of({{"<|x|>", SpecialPolicy::kAll}, {"<|x|>", SpecialPolicy::kPlain}}) ==
        Ids{end, '<', '|', 'x', '|', '>'});
  // Not across parts.
  CHECK(ids_of({{"<|x", SpecialPolicy::kAll}, {"|>", SpecialPolicy::kAll}}) ==
        Ids{'<', '|', 'x', '|', '>'});
}

TEST_CASE("the longest unbroken run merges as its short pieces do", "[text]") {
  ToyVocab toy = toy_bpe();
  toy.merge("a", "a");
  toy.merge("aa", "aa");
  toy.file.string("tokenizer.ggml.pre", "gpt-2");
  const auto tokenizer = toy.make("gpt2");
  const Ids ids = encode(*tokenizer, std::string((1U << 20) + 3, 'a'));
  CHECK(ids.size() == (1U << 18) + 2);
  CHECK(ids[0] == *tokenizer->find("aaaa"));
  CHECK(ids.back() == 'a');
}

}  // namespace
}  // namespace engine
