// libFuzzer target: the input as a GGUF file's vocabulary, and as text for toy vocabularies that
// must round-trip.
//
//   ENGINE_FUZZ_SEEDS=corpus ./fuzz_tokenizer -runs=0 && ./fuzz_tokenizer -max_total_time=120 corpus
//
// With ENGINE_FUZZ_SEEDS set, the toy vocabularies are written to that folder before the run.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lib/text/byte_map.h"
#include "lib/text/tokenizer.h"
#include "lib/text/utf8_scan.h"
#include "lib/text/utf8_stream.h"
#include "tests/unit/gguf_builder.h"

namespace {

using engine::BosPolicy;
using engine::GgufBuilder;
using engine::SpecialPolicy;
using engine::Tokenizer;

std::unique_ptr<Tokenizer> tokenizer_of(const std::vector<uint8_t>& bytes) {
  engine::GgufOptions gguf_options;
  gguf_options.metadata_only = true;
  const auto file = engine::Gguf::parse(bytes, engine::test_block_shape, gguf_options);
  if (!file.ok()) return nullptr;
  engine::TokenizerOptions options;
  options.allow_pretokenizer_fallback = true;
  auto made = Tokenizer::create(*file, options);
  return made.ok() ? std::move(made).value() : nullptr;
}

std::string byte_text(std::string_view bytes) {
  std::string text;
  for (char c : bytes) {
    engine::utf8_append(engine::kByteToCodePoint[static_cast<uint8_t>(c)], &text);
  }
  return text;
}

std::vector<uint8_t> toy_bpe(std::string_view pre) {
  std::vector<std::string> pieces;
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    pieces.push_back(byte_text({&c, 1}));
  }
  std::vector<std::string> merges;
  for (const auto& [left, right] : {std::pair{"a", "a"},
                                    {"aa", "a"},
                                    {" ", "a"},
                                    {"a", "b"},
                                    {"\xE6", "\xAD"},
                                    {"\xE6\xAD", "\xA3"},
                                    {"1", "2"}}) {
    merges.push_back(byte_text(left) + " " + byte_text(right));
    pieces.push_back(byte_text(left) + byte_text(right));
  }
  std::vector<int32_t> types(pieces.size(), 1);
  for (const char* added : {"<|x|>", "<|x", "|>"}) {
    pieces.push_back(added);
    types.push_back(added[2] == 'x' ? 3 : 4);
  }
  GgufBuilder file;
  file.string("tokenizer.ggml.model", "gpt2").string("tokenizer.ggml.pre", pre);
  file.strings("tokenizer.ggml.tokens", pieces).array("tokenizer.ggml.token_type", types);
  file.strings("tokenizer.ggml.merges", merges);
  return file.build();
}

std::vector<uint8_t> toy_spm() {
  std::vector<std::string> pieces = {"<unk>", "<s>", "</s>"};
  std::vector<int32_t> types = {2, 3, 3};
  for (int byte = 0; byte < 256; ++byte) {
    const char* digits = "0123456789ABCDEF";
    pieces.push_back(std::string("<0x") + digits[byte / 16] + digits[byte % 16] + ">");
    types.push_back(6);
  }
  for (const char* piece : {"\xE2\x96\x81", "a", "aa", "aaa",
                            "\xE2\x96\x81"
                            "a",
                            "b", "ab", "ba", "\xE6\xAD\xA3"}) {
    pieces.push_back(piece);
    types.push_back(std::string_view(piece) == "ba" ? 5 : 1);
  }
  pieces.insert(pieces.end(), {"  ", "<b>"});
  types.insert(types.end(), {4, 4});
  std::vector<float> scores;
  for (size_t i = 0; i < pieces.size(); ++i) scores.push_back(-static_cast<float>(i % 7));
  GgufBuilder file;
  file.string("tokenizer.ggml.model", "llama").strings("tokenizer.ggml.tokens", pieces);
  file.array("tokenizer.ggml.token_type", types).array("tokenizer.ggml.scores", scores);
  return file.build();
}

void check(bool holds) {
  if (!holds) std::abort();
}

std::vector<std::vector<uint8_t>> toy_files() {
  std::vector<std::vector<uint8_t>> files = {toy_spm()};
  for (const char* pre : {"gpt-2", "llama-bpe", "gpt-4o", "deepseek-v3", "superbpe", "tiny_aya",
                          "afmoe", "jais-2", "exaone-moe", "kimi-k2"}) {
    files.push_back(toy_bpe(pre));
  }
  return files;
}

// Small vocabularies of the models that do not give every text back: for seeds only.
std::vector<std::vector<uint8_t>> other_files() {
  std::vector<std::vector<uint8_t>> files;
  for (const char* model : {"bert", "t5", "gemma4", "rwkv"}) {
    const std::vector<std::string> pieces = {"<unk>",
                                             "</s>",
                                             "\xE2\x96\x81",
                                             "a",
                                             "ab",
                                             "\xE2\x96\x81"
                                             "ab",
                                             "\n\n",
                                             "<0x41>"};
    GgufBuilder file;
    file.string("tokenizer.ggml.model", model).strings("tokenizer.ggml.tokens", pieces);
    file.array<int32_t>("tokenizer.ggml.token_type", {2, 3, 1, 1, 1, 1, 4, 6});
    file.array<float>("tokenizer.ggml.scores", {0, 0, -1, -2, -3, -2, 0, 0});
    file.strings("tokenizer.ggml.merges", {"a b", "\xE2\x96\x81 a"});
    // One entry: 'A' becomes "b".
    std::vector<uint8_t> map(4 + 4 * 256 + 2, 0);
    map[1] = 4;
    map[4 + 1] = 4;
    map.back() = 0;
    file.array("tokenizer.ggml.precompiled_charsmap", map);
    file.scalar<uint32_t>("tokenizer.ggml.unknown_token_id", 0);
    files.push_back(file.build());
  }
  return files;
}

std::vector<std::unique_ptr<Tokenizer>> make_toys() {
  std::vector<std::unique_ptr<Tokenizer>> toys;
  for (const std::vector<uint8_t>& file : toy_files()) {
    toys.push_back(tokenizer_of(file));
    check(toys.back() != nullptr);
  }
  return toys;
}

// Any text is taken at every level; plain text comes back and holds no added token.
void round_trip(const Tokenizer& tokenizer, std::string_view text) {
  for (SpecialPolicy level :
       {SpecialPolicy::kPlain, SpecialPolicy::kUserDefined, SpecialPolicy::kAll}) {
    const auto result = tokenizer.encode(text, BosPolicy::kNone, level);
    check(result.ok());
    for (int32_t id : result->ids) check(id >= 0 && id < tokenizer.vocab_size());
    if (level != SpecialPolicy::kPlain) continue;
    // U+2581 in the text, whole or made by escaping, is a space to SentencePiece.
    const bool exact =
        tokenizer.model_name() == "gpt2" || text.find("\xE2\x96\x81") == std::string_view::npos;
    for (int32_t id : result->ids) check(tokenizer.type(id) != engine::TokenType::kControl);
    if (exact) check(tokenizer.decode(result->ids, false) == text);
  }
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  const char* folder = std::getenv("ENGINE_FUZZ_SEEDS");
  if (folder == nullptr) return 0;
  int n = 0;
  std::vector<std::vector<uint8_t>> files = toy_files();
  for (std::vector<uint8_t>& file : other_files()) files.push_back(std::move(file));
  for (const std::vector<uint8_t>& file : files) {
    std::ofstream(std::string(folder) + "/seed_vocab_" + std::to_string(n++), std::ios::binary)
        .write(reinterpret_cast<const char*>(file.data()),
               static_cast<std::streamsize>(file.size()));
  }
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::vector<std::unique_ptr<Tokenizer>> toys = make_toys();
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const auto& toy : toys) round_trip(*toy, text);

  engine::Utf8Stream stream;
  std::string streamed;
  for (char c : text) stream.push({&c, 1}, &streamed);
  engine::Utf8Stream at_once;
  std::string whole;
  at_once.push(text, &whole);
  check(streamed == whole && stream.flush() == at_once.flush());

  if (const auto tokenizer = tokenizer_of({data, data + size})) {
    std::vector<int32_t> ids;
    for (int32_t id = 0; id < tokenizer->vocab_size(); ++id) {
      ids.push_back(id);
      tokenizer->token_bytes(id, true);
    }
    const std::string all = tokenizer->decode(ids, true);
    for (std::string_view sample :
         {std::string_view(all), std::string_view("Hello  world 123\n")}) {
      // Bytes without a token are refused; ids are in range in any case.
      const auto result = tokenizer->encode(sample, BosPolicy::kModelDefault, SpecialPolicy::kAll);
      if (!result.ok()) continue;
      for (int32_t id : result->ids) check(id >= 0 && id < tokenizer->vocab_size());
    }
  }
  return 0;
}
