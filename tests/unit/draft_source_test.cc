// Guessing: which earlier place counts, and when guessing stops to pay.
#include "lib/session/draft_source.h"

#include <vector>

#include "catch2/catch_test_macros.hpp"

namespace engine {
namespace {

std::vector<int32_t> looked_up(const std::vector<int32_t>& ids, int64_t shortest, int64_t longest,
                               int64_t n_most) {
  const auto found = lookup_draft(ids, shortest, longest, n_most);
  return {found.begin(), found.end()};
}

TEST_CASE("the longest match counts, of equal ones the latest, and what followed it is the guess") {
  CHECK(looked_up({1, 2, 3, 9, 8, 1, 2, 3}, 2, 4, 2) == std::vector<int32_t>{9, 8});
  CHECK(looked_up({1, 2, 3, 9, 8, 1, 2, 3}, 2, 4, 9) == std::vector<int32_t>{9, 8, 1, 2, 3});
  CHECK(looked_up({7, 2, 3, 4, 1, 2, 3, 5, 0, 2, 3, 6, 1, 2, 3}, 2, 4, 1) ==
        std::vector<int32_t>{5});
  CHECK(looked_up({7, 2, 3, 4, 1, 2, 3, 5, 0, 2, 3, 6, 1, 2, 3}, 2, 2, 1) ==
        std::vector<int32_t>{6});
  CHECK(looked_up({1, 2, 3, 9, 8, 1, 2, 3}, 4, 8, 2).empty());
  CHECK(looked_up({5, 5, 5, 5}, 2, 8, 4) == std::vector<int32_t>{5});
  CHECK(looked_up({5, 5}, 1, 8, 4) == std::vector<int32_t>{5});
  CHECK(looked_up({5}, 1, 8, 4).empty());
  CHECK(looked_up({}, 1, 8, 4).empty());
  CHECK(looked_up({1, 2, 1, 2}, 2, 8, 0).empty());
}

TEST_CASE("while guesses hold they grow; while they fail they are few") {
  DraftLength length;
  CHECK(length.next(16) == 4);
  length.learn(4, 4, 0);
  CHECK(length.next(16) == 8);
  length.learn(8, 8, 0);
  CHECK(length.next(16) == 16);
  CHECK(length.next(5) == 5);
  length.learn(16, 3, 0);
  CHECK(length.next(16) == 4);
  int n_guessed = 0;
  for (int i = 0; i < 1000; ++i) {
    const int64_t n = length.next(16);
    length.learn(n, 0, 0);
    n_guessed += static_cast<int>(n);
  }
  CHECK(n_guessed < 150);
  for (int i = 0; i < 500; ++i) length.learn(length.next(16), 16, 0);
  CHECK(length.next(16) == 16);
}

// Of 1,000 calls on a machine where n guesses make a pass 1 + n * cost times as long, and two of three hold.
int n_guessed_at(double cost) {
  DraftLength length;
  int n_guessed = 0;
  for (int i = 0; i < 1000; ++i) {
    const int64_t n = i == 0 ? 0 : length.next(3);
    length.learn(n, n * 2 / 3, static_cast<uint64_t>(1e6 * (1 + static_cast<double>(n) * cost)));
    n_guessed += static_cast<int>(n);
  }
  return n_guessed;
}

TEST_CASE("whether guesses pay depends on what they cost on this machine") {
  CHECK(n_guessed_at(0.1) > 2500);
  CHECK(n_guessed_at(0.5) > 2500);
  CHECK(n_guessed_at(0.9) < 150);
}

}  // namespace
}  // namespace engine
