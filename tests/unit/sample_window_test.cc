// TokenWindow: what it holds after every push, against a plain list.
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <map>
#include <vector>

#include "lib/sample/rng.h"
#include "lib/sample/token_window.h"

namespace engine {
namespace {

std::map<int32_t, uint32_t> counted(const std::vector<int32_t>& all, int32_t last_n) {
  std::map<int32_t, uint32_t> counts;
  const size_t n = last_n < 0 ? all.size() : std::min(all.size(), static_cast<size_t>(last_n));
  for (size_t i = all.size() - n; i < all.size(); ++i) ++counts[all[i]];
  return counts;
}

std::map<int32_t, uint32_t> held(const TokenWindow& window) {
  std::map<int32_t, uint32_t> counts;
  int64_t previous = -1;
  for (const TokenWindow::Count& c : window.counts()) {
    CHECK(c.id > previous);  // ascending and distinct
    CHECK(c.count > 0);
    previous = c.id;
    counts[c.id] = c.count;
  }
  return counts;
}

}  // namespace

TEST_CASE("sample_window: counts are those of the last n tokens after every push") {
  for (const int32_t last_n : {-1, 0, 1, 2, 3, 7, 64, 65, 130, 2147483647}) {
    TokenWindow window(last_n);
    std::vector<int32_t> all;
    Rng rng(static_cast<uint64_t>(last_n) + 2);
    for (int i = 0; i < 400; ++i) {
      // Few distinct ids, so that tokens repeat inside the window; sometimes the largest id.
      const auto id = static_cast<int32_t>(rng.next() % 12);
      all.push_back(id == 11 ? 2147483647 : id);
      window.push(all.back());
      INFO("last_n " << last_n << " after " << all.size());
      REQUIRE(held(window) == counted(all, last_n));
    }
  }
}

TEST_CASE("sample_window: a copy goes its own way") {
  TokenWindow window(2);
  window.push(5);
  window.push(5);
  TokenWindow copy = window;
  copy.push(6);
  CHECK(held(window) == std::map<int32_t, uint32_t>{{5, 2}});
  CHECK(held(copy) == std::map<int32_t, uint32_t>{{5, 1}, {6, 1}});
}

}  // namespace engine
