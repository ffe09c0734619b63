// What a sequence holds: its token ids, and under which set of writing hooks each of them was computed.
#ifndef ENGINE_LIB_SESSION_TOKEN_HISTORY_H_
#define ENGINE_LIB_SESSION_TOKEN_HISTORY_H_

#include <cstdint>
#include <span>
#include <vector>

namespace engine {

// A hash over the registration of all hooks that could write, in their order.
using WriterSet = uint64_t;
inline constexpr WriterSet kNoWriters = 0;
// What they write is not a matter of their registration alone: equal to no other set, not even to itself.
inline constexpr WriterSet kOpaqueWriters = UINT64_MAX;

class TokenHistory {
 public:
  // Positions from `begin` to the next run's.
  struct Run {
    int64_t begin;
    WriterSet writers;
    friend bool operator==(const Run&, const Run&) = default;
  };

  int64_t size() const { return static_cast<int64_t>(ids_.size()); }
  std::span<const int32_t> ids() const { return ids_; }
  std::span<const Run> runs() const { return runs_; }
  WriterSet writers_at(int64_t position) const;

  // Room for n ids and one more run, so that append() allocates nothing. May throw std::bad_alloc, then nothing
  // has changed.
  void reserve(int64_t n);
  void append(std::span<const int32_t> ids, WriterSet writers);
  void truncate(int64_t n);

 private:
  std::vector<int32_t> ids_;
  std::vector<Run> runs_;  // ascending, neighbours differ
};

}  // namespace engine

#endif  // ENGINE_LIB_SESSION_TOKEN_HISTORY_H_
