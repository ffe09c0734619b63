// Cases 27 to 31 of the case log: BOS, control tokens in text, bytes,
// end tokens.
#include <algorithm>
#include <random>
#include <thread>

#include "lib/text/chat.h"
#include "lib/text/special_split.h"
#include "tests/unit/text_toy_vocab.h"

namespace engine {
namespace {

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

  // (c) add_bos false with an id; (d) absent: SentencePiece adds, byte-level does not, llama-bpe
  // does.
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
