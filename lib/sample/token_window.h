// The last accepted tokens and how often each of them occurs, for the penalties.
#ifndef ENGINE_LIB_SAMPLE_TOKEN_WINDOW_H_
#define ENGINE_LIB_SAMPLE_TOKEN_WINDOW_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace engine {

class TokenWindow {
 public:
  struct Count {
    int32_t id;
    uint32_t count;
  };

  // last_n: 0 holds nothing, -1 holds all.
  explicit TokenWindow(int32_t last_n) : last_n_(last_n) {}

  // Enters a token; the oldest leaves when the window is full. May throw std::bad_alloc, then
  // nothing has changed.
  void push(int32_t id);
  // Each distinct token of the window, ascending ids.
  const std::vector<Count>& counts() const { return counts_; }
  // The tokens of a bounded window, oldest first: pushed into a new one they give this one again.
  std::vector<int32_t> tokens() const;
  // Of an unbounded window, which has no order: ascending ids, counts above 0.
  void set_counts(std::vector<Count> counts) { counts_ = std::move(counts); }

 private:
  void add(int32_t id);
  void remove(int32_t id);

  int32_t last_n_;
  std::vector<int32_t> ring_;  // unused when last_n_ is -1: nothing ever leaves
  size_t oldest_ = 0;          // of ring_, once it is full
  std::vector<Count> counts_;
};

}  // namespace engine

#endif  // ENGINE_LIB_SAMPLE_TOKEN_WINDOW_H_
