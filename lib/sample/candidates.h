// The tokens still in the race, and the stages that cut them down and draw one.
#ifndef ENGINE_LIB_SAMPLE_CANDIDATES_H_
#define ENGINE_LIB_SAMPLE_CANDIDATES_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "lib/sample/token_window.h"

namespace engine {

struct Candidate {
  float logit;
  int32_t id;
};

struct Penalties {
  double repeat = 1;
  double frequency = 0;
  double presence = 0;
};

// The order of the stages' candidates is: logit descending, then id ascending. Only as many as a
// stage needs are brought into it. Sums are taken in double over the list as it stands: by id while
// no stage has sorted it, in sorted order afterwards; so they do not depend on the standard
// library.
class Candidates {
 public:
  Candidates() = default;
  // Scratch memory is not worth copying: a copy is empty.
  Candidates(const Candidates&) {}
  Candidates& operator=(const Candidates&) { return *this; }
  Candidates(Candidates&&) = default;
  Candidates& operator=(Candidates&&) = default;

  enum class Fill { kOk, kNonFinite, kNone };
  // All tokens that are not -inf, with penalties. kNonFinite: a NaN or +inf; kNone: none is left.
  Fill fill(std::span<const float> logits, const std::vector<TokenWindow::Count>& counts,
            const Penalties& penalties);

  // Each keeps at least one candidate. All need a successful fill() before.
  void keep_top_k(size_t k);
  void keep_top_p(double top_p);
  void keep_min_p(double min_p);
  int32_t greedy() const;
  // Draws with weights exp((z - z_max) / temperature); `unit` in [0, 1).
  int32_t draw(double temperature, double unit);

  // The kept candidates, in no stated order.
  std::span<const Candidate> kept() const { return list_; }

 private:
  // Brings the first n into order.
  void sort_prefix(size_t n);
  // Position i of the order, sorting further in growing steps.
  const Candidate& at_sorted(size_t i);

  std::vector<Candidate> list_;
  size_t n_sorted_ = 0;
  float max_ = 0;  // largest logit of list_
};

}  // namespace engine

#endif  // ENGINE_LIB_SAMPLE_CANDIDATES_H_
