// Ids of the reference strings that come with published vocabularies.
#include <sstream>

#include "tests/unit/text_toy_vocab.h"

namespace engine {
namespace {

std::vector<std::string> split_texts(const std::string& text) {
  constexpr std::string_view kSeparator = "\n__ggml_vocab_test__\n";
  std::vector<std::string> texts;
  size_t at = 0;
  while (at < text.size()) {
    const size_t end = std::min(text.find(kSeparator, at), text.size());
    texts.push_back(text.substr(at, end - at));
    at = end + kSeparator.size();
  }
  return texts;
}

// `vocabulary`: where it lies, if not beside the strings.
void check_reference(const std::string& name, const std::string& vocabulary = "") {
  const std::string path = source_path("../shared/data/vocab/ggml-vocab-" + name + ".gguf");
  const auto tokenizer = tokenizer_of_file(vocabulary.empty() ? path : vocabulary);
  if (tokenizer == nullptr) SKIP("no vocabulary file " << path << vocabulary);
  if (file_text(path + ".out").empty()) SKIP("no file " << path << ".out");
  const std::vector<std::string> texts = split_texts(file_text(path + ".inp"));
  std::istringstream lines(file_text(path + ".out"));
  std::string line;
  size_t n_checked = 0;
  while (std::getline(lines, line)) {
    REQUIRE(n_checked < texts.size());
    std::istringstream numbers(line);
    Ids expected;
    for (int32_t id = 0; numbers >> id;) expected.push_back(id);
    const std::string& text = texts[n_checked++];
    INFO(name << " string " << n_checked << ": " << text);
    const Ids ids = encode(*tokenizer, text, BosPolicy::kNone, SpecialPolicy::kUserDefined);
    CHECK(ids == expected);
    CHECK(tokenizer->decode(ids, true) == text);
    CHECK(tokenizer->decode(encode(*tokenizer, text), true) == text);
  }
  CHECK(n_checked == texts.size());
  CHECK(n_checked == 46);
  CHECK(tokenizer->skipped_merges() == 0);
}

TEST_CASE("reference ids: gpt-2", "[text]") { check_reference("gpt-2"); }
TEST_CASE("reference ids: falcon", "[text]") { check_reference("falcon"); }
TEST_CASE("reference ids: starcoder", "[text]") { check_reference("starcoder"); }
TEST_CASE("reference ids: deepseek-coder", "[text]") { check_reference("deepseek-coder"); }
TEST_CASE("reference ids: llama-spm", "[text]") { check_reference("llama-spm"); }
TEST_CASE("reference ids: phi-3", "[text]") { check_reference("phi-3"); }
// Strings and ids only; the vocabularies are made by tests/parity/make_vocabs.py.
TEST_CASE("reference ids: llama-bpe", "[text]") {
  check_reference("llama-bpe", model_path("vocab-llama3.gguf"));
}
TEST_CASE("reference ids: qwen2", "[text]") {
  check_reference("qwen2", model_path("vocab-qwen3.gguf"));
}

}  // namespace
}  // namespace engine
