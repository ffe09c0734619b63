// Streaming UTF-8 against the whole text at once, for every cut.
#include "lib/text/utf8_stream.h"

#include <random>

#include "catch2/catch_test_macros.hpp"

namespace engine {
namespace {

constexpr const char* kBad = "\uFFFD";

std::string all_at_once(std::string_view bytes) {
  Utf8Stream stream;
  std::string out;
  stream.push(bytes, &out);
  return out + (stream.flush().empty() ? "" : kBad);
}

TEST_CASE("ill-formed bytes become one replacement for each maximal subpart", "[text]") {
  CHECK(all_at_once("\xE5\x8F\x41") == std::string(kBad) + "A");
  CHECK(all_at_once("\xFF\xFE") == std::string(kBad) + kBad);
  CHECK(all_at_once("\xED\xA0\x80") == std::string(kBad) + kBad + kBad);
  CHECK(all_at_once("\xC0\x80") == std::string(kBad) + kBad);
  CHECK(all_at_once("\xF4\x90\x80\x80") == std::string(kBad) + kBad + kBad + kBad);
  CHECK(all_at_once("\x80") == kBad);
  CHECK(all_at_once(std::string_view("a\0b", 3)) == std::string("a\0b", 3));
  CHECK(all_at_once("\u20AC\U0001F600\U0010FFFF\uD7FF\uE000") ==
        "\u20AC\U0001F600\U0010FFFF\uD7FF\uE000");
}

TEST_CASE("an emoji byte by byte comes out whole, or its bytes by flush", "[text]") {
  const std::string emoji = "\U0001F600";
  Utf8Stream stream;
  std::string out;
  for (int i = 0; i < 3; ++i) stream.push(emoji.substr(i, 1), &out);
  CHECK(out.empty());
  CHECK(stream.flush() == emoji.substr(0, 3));
  CHECK(stream.flush().empty());
  for (int i = 0; i < 4; ++i) stream.push(emoji.substr(i, 1), &out);
  CHECK(out == emoji);
  CHECK(stream.flush().empty());
}

TEST_CASE("any cut of any bytes gives the same text", "[text]") {
  std::mt19937 random(7);
  const std::string bytes_used =
      "\x41\x80\xBF\xC0\xC3\xE0\xA0\xE6\xAD\xED\x9F\xF0\x90\x9F\xF4\x8F\xFF";
  for (int n = 0; n < 3000; ++n) {
    std::string text;
    for (int i = 0; i < 12; ++i) text.push_back(bytes_used[random() % bytes_used.size()]);
    Utf8Stream stream;
    std::string out;
    for (size_t at = 0; at < text.size();) {
      const size_t size = random() % 4;
      stream.push(std::string_view(text).substr(at, size), &out);
      at += size;
    }
    const std::string left = stream.flush();
    REQUIRE(left.size() <= 3);
    REQUIRE(out + (left.empty() ? "" : kBad) == all_at_once(text));
  }
}

}  // namespace
}  // namespace engine
