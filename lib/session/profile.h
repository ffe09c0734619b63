// Times of every operation of a session, kept while measuring is on.
#ifndef ENGINE_LIB_SESSION_PROFILE_H_
#define ENGINE_LIB_SESSION_PROFILE_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "lib/contract/step.h"

namespace engine {

// What a line of the profile is about; fixed when measuring starts.
struct ProfileLabel {
  int32_t layer = -1;
  uint32_t fusions = 0;
  int64_t weight_bytes = 0;      // read per call
  int64_t kv_bytes_per_key = 0;  // read per call and key that is seen; attention only
  int64_t window = 0;            // 0 = all keys
  std::string op, tensor, kernel;
};

// All but kernel and fusions, of one program step.
ProfileLabel step_label(const Program& program, const Step& step, KvType kv);

struct ProfileLine {
  const ProfileLabel* label = nullptr;
  bool prefill = false;
  uint64_t calls = 0, total_ns = 0, median_ns = 0, p95_ns = 0, bytes = 0;
};

class Profile {
 public:
  using ClockFn = uint64_t (*)(void* user);  // nanoseconds
  static constexpr size_t kSamples = 512;    // of which median and p95 are taken, the last ones

  // labels: of one form's steps, in their order; the whole call is one more. Both forms have the same
  // number of steps or their own.
  Profile(std::vector<ProfileLabel> decode, std::vector<ProfileLabel> prefill, ClockFn clock,
          void* clock_user);

  uint64_t now() const { return clock_(clock_user_); }
  // Step `index` of a form took until now since `start`; returns now. Allocates nothing.
  uint64_t record(bool prefill, size_t index, uint64_t start, int64_t first_position,
                  int64_t n_tokens);
  void record_call(bool prefill, uint64_t start);

  // Lines of steps that ran, decode first, each form ended by its whole call.
  size_t n_lines() const;
  ProfileLine line(size_t index) const;

 private:
  struct Series {
    ProfileLabel label;
    uint64_t calls = 0, total_ns = 0, bytes = 0;
    std::array<uint32_t, kSamples> samples_ns{};  // saturated
  };
  void add(Series* series, uint64_t ns);
  const Series* find(size_t index, bool* prefill) const;

  std::array<std::vector<Series>, 2> forms_;
  ClockFn clock_;
  void* clock_user_;
};

}  // namespace engine

#endif  // ENGINE_LIB_SESSION_PROFILE_H_
