// Metadata: values of every type, typed reads, and each refusal with its key and offset.
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "tests/unit/gguf_check.h"

namespace engine {
namespace {

// A value of `type` under key "k" whose encoding is `encoded`, refused at `at` bytes after the
// type.
void check_value_refused(uint32_t type, const std::vector<uint8_t>& encoded, int64_t at,
                         const std::string& message, Code code = Code::kFileFormat) {
  GgufBuilder builder;
  const auto file = builder.value("k", type, encoded).build();
  check_refused(file, code, "k", builder.value_offset["k"] + static_cast<uint64_t>(at),
                "k: " + message);
}

TEST_CASE("every value type is read back", "[gguf]") {
  GgufBuilder builder;
  builder.scalar<uint8_t>("u8", 200).scalar<int8_t>("i8", -100).scalar<uint16_t>("u16", 60000);
  builder.scalar<int16_t>("i16", -30000).scalar<uint32_t>("u32", 4000000000u);
  builder.scalar<int32_t>("i32", -2000000000).scalar<uint64_t>("u64", UINT64_MAX);
  builder.scalar<int64_t>("i64", INT64_MIN)
      .scalar<float>("f32", 0.25f)
      .scalar<double>("f64", 1e300);
  builder.scalar<bool>("yes", true).scalar<bool>("no", false).string("text", "a\0b\n");
  builder.string("empty", "").strings("texts", {"", "one", "two"}).strings("no texts", {});
  builder.array<uint8_t>("bytes", {0, 255}).array<int16_t>("shorts", {-1, 7});
  builder.array<uint64_t>("large", {1, UINT64_MAX}).array<bool>("bools", {true, false, true});
  builder.array<float>("floats", {1.5f, -2.0f}).array<double>("doubles", {0.5, 1e300, -1e300});
  const auto file = builder.build();
  const auto parsed = Gguf::parse(file, test_block_shape);
  REQUIRE(parsed.ok());
  const Gguf& gguf = *parsed;

  CHECK(**gguf.get_uint("u8") == 200);
  CHECK(**gguf.get_int("i8") == -100);
  CHECK(**gguf.get_uint("u16") == 60000);
  CHECK(**gguf.get_int("i16") == -30000);
  CHECK(**gguf.get_int("u32") == 4000000000);
  CHECK(**gguf.get_int("i32") == -2000000000);
  CHECK(**gguf.get_uint("u64") == UINT64_MAX);
  CHECK(**gguf.get_int("i64") == INT64_MIN);
  CHECK(**gguf.get_float("f32") == 0.25);
  CHECK(**gguf.get_float("f64") == 1e300);
  CHECK(**gguf.get_bool("yes"));
  CHECK_FALSE(**gguf.get_bool("no"));
  CHECK(**gguf.get_string("text") == std::string_view("a\0b\n"));
  CHECK((**gguf.get_string("empty")).empty());
  CHECK(**gguf.get_strings("texts") == std::vector<std::string_view>{"", "one", "two"});
  CHECK((**gguf.get_strings("no texts")).empty());
  CHECK(**gguf.get_ints("bytes") == std::vector<int64_t>{0, 255});
  CHECK(**gguf.get_ints("shorts") == std::vector<int64_t>{-1, 7});
  CHECK(**gguf.get_ints("bools") == std::vector<int64_t>{1, 0, 1});
  CHECK(**gguf.get_floats("floats") == std::vector<float>{1.5f, -2.0f});
  constexpr float kInf = std::numeric_limits<float>::infinity();
  CHECK(**gguf.get_floats("doubles") == std::vector<float>{0.5f, kInf, -kInf});

  const GgufValue* value = gguf.find("texts");
  REQUIRE(value != nullptr);
  CHECK(value->count == 3);
  CHECK(value->type == GgufType::kArray);
  CHECK(value->element_type == GgufType::kString);
  CHECK(value->offset == builder.value_offset["texts"]);
  CHECK(value->data_bytes == 3 * 8 + 6);
  CHECK(gguf.values().size() == 22);
  CHECK(gguf.values()[0].key == "u8");  // file order
  CHECK(gguf.find("absent") == nullptr);
}

TEST_CASE("typed reads of absent keys give nothing, of wrong types an error", "[gguf]") {
  GgufBuilder builder;
  builder.scalar<int32_t>("minus", -1).scalar<uint64_t>("huge", UINT64_MAX).string("s", "12");
  builder.scalar<float>("f", 1).array<uint64_t>("a", {5, UINT64_MAX}).scalar<uint32_t>("n", 1);
  builder.strings("t", {"x"});
  const auto file = builder.build();
  const auto parsed = Gguf::parse(file, test_block_shape);
  REQUIRE(parsed.ok());
  const Gguf& gguf = *parsed;

  CHECK_FALSE(gguf.get_uint("x")->has_value());
  CHECK_FALSE(gguf.get_int("x")->has_value());
  CHECK_FALSE(gguf.get_float("x")->has_value());
  CHECK_FALSE(gguf.get_bool("x")->has_value());
  CHECK_FALSE(gguf.get_string("x")->has_value());
  CHECK_FALSE(gguf.get_strings("x")->has_value());
  CHECK_FALSE(gguf.get_ints("x")->has_value());
  CHECK_FALSE(gguf.get_floats("x")->has_value());

  const auto refused = [&builder](const absl::Status& status, const std::string& key,
                                  const std::string& message) {
    check_error(status, Code::kModelKey, key, builder.value_offset[key], key + ": " + message);
  };
  refused(gguf.get_uint("minus").status(), "minus", "-1 must not be negative");
  refused(gguf.get_int("huge").status(), "huge", "18446744073709551615 is too large");
  refused(gguf.get_uint("f").status(), "f", "must be an integer, found f32");
  refused(gguf.get_int("s").status(), "s", "must be an integer, found string");
  refused(gguf.get_uint("a").status(), "a", "must be an integer, found array of u64");
  refused(gguf.get_float("n").status(), "n", "must be a float, found u32");
  refused(gguf.get_bool("n").status(), "n", "must be a bool, found u32");
  refused(gguf.get_string("n").status(), "n", "must be a string, found u32");
  refused(gguf.get_strings("a").status(), "a", "must be an array of strings, found array of u64");
  refused(gguf.get_strings("s").status(), "s", "must be an array of strings, found string");
  refused(gguf.get_ints("t").status(), "t", "must be an array of integers, found array of string");
  refused(gguf.get_ints("a").status(), "a", "element 1, 18446744073709551615, is too large");
  refused(gguf.get_floats("a").status(), "a", "must be an array of floats, found array of u64");
  refused(gguf.get_floats("f").status(), "f", "must be an array of floats, found f32");
}

TEST_CASE("lengths beyond the file are refused (case 4a)", "[gguf]") {
  const auto u64 = [](uint64_t length) { return ByteWriter().put(length).bytes; };
  GgufBuilder key;
  key.value_count = 1;
  auto file = key.build();
  for (uint64_t length : {UINT64_MAX, uint64_t{1} << 40, uint64_t{6}}) {
    auto with_key = file;
    const auto tail = ByteWriter().put(length).text("abcde").bytes;
    with_key.insert(with_key.end(), tail.begin(), tail.end());
    check_refused(
        with_key, Code::kFileFormat, "metadata entry 0", 24,
        "metadata entry 0: key length " + std::to_string(length) + " exceeds the 5 bytes left");
  }
  check_value_refused(8, u64(1ull << 40), 0,
                      "string length 1099511627776 exceeds the 0 bytes left");
  check_value_refused(9,
                      ByteWriter().put<uint32_t>(8).put<uint64_t>(1ull << 30).string("abc").bytes,
                      4, "array count 1073741824 does not fit: at least 8 bytes each, 11 left");
  check_value_refused(
      9, ByteWriter().put<uint32_t>(0).put<uint64_t>(1ull << 63).put(1).bytes, 4,
      "array count 9223372036854775808 does not fit: at least 1 bytes each, 4 left");
  check_value_refused(
      9, ByteWriter().put<uint32_t>(12).put<uint64_t>(1ull << 61).bytes, 4,
      "array count 2305843009213693952 does not fit: at least 8 bytes each, 0 left");
  // The count fits by the minimum size; the strings themselves do not.
  check_value_refused(9,
                      ByteWriter()
                          .put<uint32_t>(8)
                          .put<uint64_t>(2)
                          .string("abc")
                          .put<uint64_t>(9)
                          .text("12345678")
                          .bytes,
                      12 + 11, "string 1 length 9 exceeds the 8 bytes left");
  check_value_refused(
      9, ByteWriter().put<uint32_t>(8).put<uint64_t>(2).string("123456").text("1234567").bytes,
      12 + 14, "the file ends inside the string 1 length: 8 bytes needed, 7 left");
  check_value_refused(4, {1, 2}, 0, "the file ends inside the value: 4 bytes needed, 2 left");
  check_value_refused(9, {8, 0}, 0,
                      "the file ends inside the array element type: 4 bytes needed, 2 left");
}

TEST_CASE("empty, overlong and repeated keys are refused (cases 1, 8)", "[gguf]") {
  GgufBuilder empty;
  auto file = empty.string("a", "b").scalar<uint32_t>("", 1).build();
  check_refused(file, Code::kFileFormat, "metadata entry 1", empty.key_offset[""],
                "metadata entry 1: empty key");
  GgufBuilder overlong;
  file = overlong.scalar<uint32_t>(std::string(65536, 'k'), 1).build();
  check_refused(file, Code::kFileFormat, "metadata entry 0", 24,
                "metadata entry 0: key of 65536 bytes, at most 65535 are allowed");
  GgufBuilder longest;
  file = longest.scalar<uint32_t>(std::string(65535, 'k'), 1).build();
  CHECK(Gguf::parse(file, test_block_shape).ok());
  GgufBuilder twice;
  twice.scalar<uint32_t>("llama.block_count", 2).string("x", "y");
  file = twice.scalar<uint32_t>("llama.block_count", 3).build();
  check_refused(file, Code::kFileFormat, "llama.block_count", twice.key_offset["llama.block_count"],
                "llama.block_count: the key appears twice");
}

TEST_CASE("hostile names are shown printable and cut, but kept whole in the place", "[gguf]") {
  const std::string key = "\x1b[2J\n\"" + std::string(200, 'k');
  GgufBuilder builder;
  const auto file = builder.value(key, 13, {}).build();
  check_refused(file, Code::kFileFormat, key, builder.value_offset[key] - 4,
                "\\x1b[2J\\n\\\"" + std::string(74, 'k') + "...: value type 13 is unknown");
}

TEST_CASE("unknown value types, nested arrays and odd bools are refused (case 9)", "[gguf]") {
  for (uint32_t type : {13u, 256u, 0xFFFFFFFFu}) {
    check_value_refused(type, {0, 0, 0, 0}, -4,
                        "value type " + std::to_string(type) + " is unknown");
    check_value_refused(9, ByteWriter().put(type).put<uint64_t>(0).bytes, 0,
                        "array element type " + std::to_string(type) + " is unknown");
  }
  for (int depth : {1, 4, 100000}) {
    ByteWriter nested;
    for (int i = 0; i < depth; ++i) nested.put<uint32_t>(9).put<uint64_t>(1);
    nested.put<uint32_t>(0).put<uint64_t>(0);
    check_value_refused(9, nested.bytes, 0, "arrays inside arrays are not supported",
                        Code::kFileUnsupported);
  }
  check_value_refused(7, {2}, 0, "bool value 2 is neither 0 nor 1");
  check_value_refused(7, {255}, 0, "bool value 255 is neither 0 nor 1");
  check_value_refused(9, ByteWriter().put<uint32_t>(7).put<uint64_t>(3).raw({0, 1, 7}).bytes, 14,
                      "bool value 7 is neither 0 nor 1");
}

TEST_CASE("a present but bad alignment is refused (case 6)", "[gguf]") {
  const std::string key = "general.alignment";
  for (uint32_t alignment : {0u, 1u, 3u, 4u, 24u, 1u << 21, 1u << 30, 0xFFFFFFFFu}) {
    GgufBuilder builder;
    const auto file = builder.scalar<uint32_t>(key, alignment).build();
    check_refused(
        file, Code::kFileFormat, key, builder.value_offset[key],
        key + ": " + std::to_string(alignment) + " is not a power of two from 8 to 1048576");
  }
  for (uint32_t alignment : {8u, 16u, 1u << 20}) {
    GgufBuilder builder;
    const auto file = builder.scalar<uint32_t>(key, alignment).build();
    CHECK(Gguf::parse(file, test_block_shape)->alignment() == alignment);
  }
  const auto wrong_type = [&key](GgufBuilder* builder, const std::string& found) {
    const auto file = builder->build();
    check_refused(file, Code::kFileFormat, key, builder->value_offset[key],
                  key + ": must be a u32, found " + found);
  };
  GgufBuilder i32, u64, text, list, twice;
  wrong_type(&i32.scalar<int32_t>(key, 32), "i32");
  wrong_type(&u64.scalar<uint64_t>(key, 32), "u64");
  wrong_type(&text.string(key, "32"), "string");
  wrong_type(&list.array<uint32_t>(key, {32}), "array");
  const auto file = twice.scalar<uint32_t>(key, 32).scalar<uint32_t>(key, 32).build();
  check_refused(file, Code::kFileFormat, key, twice.key_offset[key],
                key + ": the key appears twice");
}

TEST_CASE("a vocabulary of 262,144 tokens and 500,000 merges is read whole (case 4b)", "[gguf]") {
  std::vector<std::string> tokens, merges;
  for (int i = 0; i < 262144; ++i) tokens.push_back("token" + std::to_string(i));
  for (int i = 0; i < 500000; ++i) merges.push_back("a" + std::to_string(i) + " b");
  GgufBuilder builder;
  builder.strings("tokens", tokens).strings("merges", merges);
  builder.array<float>("scores", std::vector<float>(262144, -1.5f));
  builder.array<int32_t>("types", std::vector<int32_t>(262144, 1));
  const auto file = builder.build();
  const auto parsed = Gguf::parse(file, test_block_shape);
  REQUIRE(parsed.ok());
  const auto read = parsed->get_strings("merges");
  REQUIRE(read.ok());
  REQUIRE((**read).size() == 500000);
  CHECK((**read)[499999] == "a499999 b");
  CHECK((**parsed->get_strings("tokens"))[262143] == "token262143");
  CHECK((**parsed->get_floats("scores")).back() == -1.5f);
  CHECK((**parsed->get_ints("types")).size() == 262144);
}

// Time is measured by perf/bench_files.py; here is why it is linear: each string is looked at once.
TEST_CASE("the work of parsing is linear in the vocabulary (case 4b)", "[gguf]") {
  uint64_t n_reads[3];
  for (size_t factor : {0, 1, 2}) {
    GgufBuilder builder;
    builder.strings("tokens", std::vector<std::string>(5000 * factor, "token"));
    builder.strings("merges", std::vector<std::string>(9000 * factor, "a b"));
    builder.array<float>("scores", std::vector<float>(5000 * factor, -1.5f));
    const auto file = builder.build();
    const auto parsed = Gguf::parse(file, test_block_shape);
    REQUIRE(parsed.ok());
    n_reads[factor] = parsed->n_reads();
  }
  CHECK(n_reads[1] == n_reads[0] + 14000);
  CHECK(n_reads[2] == n_reads[0] + 28000);
}

TEST_CASE("widening an array cannot claim many times the file size", "[gguf]") {
  GgufBuilder builder;
  builder.array<uint8_t>("bytes", std::vector<uint8_t>((2u << 20) + 1, 1));
  const auto file = builder.build();
  const auto parsed = Gguf::parse(file, test_block_shape);
  REQUIRE(parsed.ok());
  check_error(parsed->get_ints("bytes").status(), Code::kModelKey, "bytes",
              builder.value_offset["bytes"], "bytes: array of 2097153 elements is too long");
}

}  // namespace
}  // namespace engine
