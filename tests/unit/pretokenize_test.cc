// Words of the pre-tokenizers: recorded from the published expressions, and what must hold for any
// bytes.
#include "lib/text/pretokenize.h"

#include <random>
#include <sstream>

#include "tests/unit/text_toy_vocab.h"

namespace engine {
namespace {

Pretokenizer pretokenizer_named(std::string_view name) {
  const PretokenizeRule* rule = find_pretokenize_rule(name);
  INFO(name);
  REQUIRE(rule != nullptr);
  auto made = Pretokenizer::create(*rule);
  INFO(made.status().ToString());
  REQUIRE(made.ok());
  return std::move(made).value();
}

std::vector<std::string> words_of(const Pretokenizer& pretokenizer, std::string_view text) {
  std::vector<size_t> ends;
  const absl::Status status = pretokenizer.split(text, &ends);
  INFO(status.ToString());
  REQUIRE(status.ok());
  std::vector<std::string> words;
  size_t begin = 0;
  for (size_t end : ends) {
    REQUIRE(end > begin);
    words.emplace_back(text.substr(begin, end - begin));
    begin = end;
  }
  REQUIRE(begin == text.size());
  return words;
}

std::vector<std::string> recorded_words(const std::string& line) {
  std::vector<std::string> words(1);
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '|') {
      words.emplace_back();
    } else if (line[i] == '%') {
      words.back().push_back(static_cast<char>(std::stoi(line.substr(i + 1, 2), nullptr, 16)));
      i += 2;
    } else {
      words.back().push_back(line[i]);
    }
  }
  return words;
}

TEST_CASE("words equal those of the published expressions", "[text]") {
  std::istringstream in(file_text(source_path("tests/golden/tokens_words.txt")));
  std::unique_ptr<Pretokenizer> pretokenizer;
  std::string name;
  size_t n_checked = 0;
  for (std::string line; std::getline(in, line);) {
    if (line[0] == '#') continue;
    if (line.rfind("rule\t", 0) == 0) {
      name = line.substr(5);
      pretokenizer = std::make_unique<Pretokenizer>(pretokenizer_named(name));
      continue;
    }
    const std::vector<std::string> expected = recorded_words(line);
    std::string text;
    for (const std::string& word : expected) text += word;
    INFO(name << ": " << line);
    CHECK(words_of(*pretokenizer, text) == expected);
    ++n_checked;
  }
  CHECK(n_checked > 1500);
}

TEST_CASE("every rule compiles and loses no byte", "[text]") {
  std::mt19937 random(1);
  for (const PretokenizeRule& rule : pretokenize_rules()) {
    const Pretokenizer pretokenizer = pretokenizer_named(rule.name);
    for (int n = 0; n < 20; ++n) {
      std::string text;
      for (int i = 0; i < 40; ++i) text.push_back(static_cast<char>(random() & 0xFF));
      words_of(pretokenizer, text);  // checks that the words cover the text
    }
  }
  CHECK(find_pretokenize_rule("nonsense") == nullptr);
  CHECK(find_pretokenize_rule("") == nullptr);
}

TEST_CASE("bytes that are not UTF-8 are words by themselves", "[text]") {
  const Pretokenizer gpt2 = pretokenizer_named("gpt-2");
  using Words = std::vector<std::string>;
  CHECK(words_of(gpt2, "ab\xE6\xAD cd\xFF") == Words{"ab", "\xE6\xAD", " cd", "\xFF"});
  CHECK(words_of(gpt2, "\xC0\x80x") == Words{"\xC0\x80", "x"});
  CHECK(words_of(gpt2, std::string_view("a\0b", 3)) == Words{"a", std::string(1, '\0'), "b"});
}

TEST_CASE("digits in threes from the right, the deepseek-llm letters, odd white space", "[text]") {
  using Words = std::vector<std::string>;
  CHECK(words_of(pretokenizer_named("superbpe"), "x1234567 12") ==
        Words{"x", "1", "234", "567", " ", "12"});
  // U+01BB is not among the letters; U+212A is, but the stage for CJK cuts it off again.
  CHECK(words_of(pretokenizer_named("deepseek-llm"),
                 "Ab\u00C0 \u00C0\u03A3\u01BB 12\u03A3\u212A\n") ==
        Words{"Ab", "\u00C0", " \u00C0\u03A3", "\u01BB ", "12", "\u03A3", "\u212A", "\n"});
  // U+0085 and U+2028 are white space, U+180E is none.
  CHECK(words_of(pretokenizer_named("gpt-2"), "a\u0085\u2028b\u180Ec") ==
        Words{"a", "\u0085", "\u2028", "b", "\u180E", "c"});
}

// Rules with the same stages behave alike.
std::vector<PretokenizeRule> one_of_each_expression() {
  std::vector<PretokenizeRule> rules;
  for (const PretokenizeRule& rule : pretokenize_rules()) {
    const bool is_known = std::any_of(
        rules.begin(), rules.end(),
        [&](const PretokenizeRule& known) { return known.stages.data() == rule.stages.data(); });
    if (!is_known) rules.push_back(rule);
  }
  return rules;
}

TEST_CASE("one unbroken run of a megabyte is cut without an error", "[text]") {
  for (const PretokenizeRule& rule : one_of_each_expression()) {
    const Pretokenizer pretokenizer = pretokenizer_named(rule.name);
    for (const std::string unit :
         {"A", "a", " ", "\n", "7", "-", "\u4E2D", "\u0301", "a ", "\u2581"}) {
      std::string text;
      while (text.size() < (1U << 20)) text += unit;
      INFO(rule.name << " " << unit);
      CHECK(!words_of(pretokenizer, text).empty());
    }
  }
}

}  // namespace
}  // namespace engine
