// Lossless speculation: decodes guessed tokens together with a chosen one, and keeps those that turn out right.
#ifndef ENGINE_LIB_SESSION_SPECULATION_H_
#define ENGINE_LIB_SESSION_SPECULATION_H_

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "lib/base/host_memory.h"
#include "lib/base/status.h"
#include "lib/session/draft_source.h"
#include "lib/session/session.h"

namespace engine {

struct SpeculationOptions {
  int64_t most = 16;     // guessed ids in a call
  int64_t shortest = 3;  // ids of a match, see lookup_draft
  int64_t longest = 8;
  Session* drafter = nullptr;  // of the same vocabulary: guesses where nothing matches
};

struct SpeculationStats {
  uint64_t calls = 0, guessed = 0, right = 0;
};

// Chooses the next token from logits [n_vocab], as for a plain decode; on failure nothing has changed.
using ChooseFn = std::function<absl::StatusOr<int32_t>(std::span<const float> logits)>;

// Luck, counters and scratch memory of one session.
class Speculation {
 public:
  // Appends `id` and as many guessed ids as `choose` would have chosen anyway. next: what was chosen, in order, at
  // most `capacity`; all but the last of them are appended. logits: nullptr, or [capacity][n_vocab]: of the id and
  // those that were appended. Logits, choices and the session are those of plain decodes, bit for bit; a session
  // with hooks is decoded plainly. Returns how many were chosen, at least 1. Errors as Session::decode and of the
  // first choice; the session is as before then.
  absl::StatusOr<int64_t> decode(Session* session, int32_t id, const SpeculationOptions& options,
                                 const ChooseFn& choose, int32_t* next, int64_t capacity,
                                 float* logits);
  const SpeculationStats& stats() const { return stats_; }

 private:
  int64_t room_for_guesses(const Session& session, const SpeculationOptions& options,
                           int64_t capacity) const;
  void guess(const Session& session, int32_t id, const SpeculationOptions& options, int64_t n_most);
  void guess_with(Session* drafter, int64_t n_most);
  absl::StatusOr<float*> scratch(int64_t n_rows, int64_t n_vocab);

  DraftLength length_;
  SpeculationStats stats_;
  std::vector<int32_t> context_;  // what the session holds, and the id
  std::vector<int32_t> ids_;      // of the call: the id, then guesses
  AlignedBuffer logits_;
  std::vector<float> drafter_logits_;
};

}  // namespace engine

#endif  // ENGINE_LIB_SESSION_SPECULATION_H_
