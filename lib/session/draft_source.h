// Guesses what comes next from what a sequence has said before, and learns how far guessing pays.
#ifndef ENGINE_LIB_SESSION_DRAFT_SOURCE_H_
#define ENGINE_LIB_SESSION_DRAFT_SOURCE_H_

#include <cstdint>
#include <span>

namespace engine {

// The ids that followed the last place where `ids` ends as it ends now: the longest match of at most `longest` and
// at least `shortest` ids counts, of equal ones the latest. Points into ids; at most n_most, empty without a match.
std::span<const int32_t> lookup_draft(std::span<const int32_t> ids, int64_t shortest,
                                      int64_t longest, int64_t n_most);

// How many ids to guess. A guess that fails costs a part of a token's time, one that holds saves a whole one: what
// was won and lost lately decides, and while it is a loss, a small guess now and then looks whether times changed.
class DraftLength {
 public:
  int64_t next(int64_t n_most);
  void learn(int64_t n_guessed, int64_t n_right);

 private:
  static constexpr double kCost = 0.25;  // of a guessed id, in tokens
  static constexpr double kMost = 8;     // what is remembered of luck, either way
  static constexpr int kProbeEvery = 32;
  double credit_ = 2;
  int64_t length_ = 4;
  int n_skipped_ = 0;
};

}  // namespace engine

#endif  // ENGINE_LIB_SESSION_DRAFT_SOURCE_H_
