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

// How many ids to guess. A guess that fails costs a part of a token's time, which is measured, one that holds saves a
// whole one: what was won and lost lately decides, and while it is a loss, a small guess now and then looks whether
// times changed.
class DraftLength {
 public:
  int64_t next(int64_t n_most);
  // time_ns: of the guesses and the pass over them; of a plain pass when nothing was guessed. 0: unknown.
  void learn(int64_t n_guessed, int64_t n_right, uint64_t time_ns);

 private:
  void learn_cost(int64_t n_guessed, uint64_t time_ns);

  static constexpr double kMost = 8;  // what is remembered of luck, either way
  static constexpr int kProbeEvery = 32;
  double credit_ = 2;
  double cost_ =
      0.25;  // of a guessed id, in plain tokens: where memory is the limit, until it is measured
  double plain_ns_ = 0;
  int64_t length_ = 4;
  int n_skipped_ = 0;
};

}  // namespace engine

#endif  // ENGINE_LIB_SESSION_DRAFT_SOURCE_H_
