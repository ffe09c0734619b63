// A decode call in progress on one session: what it appends, whose rows they are, how it ends.
#ifndef ENGINE_LIB_SESSION_SESSION_CALL_H_
#define ENGINE_LIB_SESSION_SESSION_CALL_H_

#include <cstdint>
#include <optional>
#include <span>

#include "lib/base/status.h"
#include "lib/session/call_progress.h"
#include "lib/session/sequence_rows.h"
#include "lib/session/session.h"

namespace engine {

// The rows of logits that a call shall give, densely, in the order of its tokens.
struct LogitRows {
  float* out = nullptr;  // [wanted][n_vocab]; nullptr: none is wanted
  bool all = false;      // else the last
  const uint8_t* mask =
      nullptr;  // [ids]; where given, those that are not 0, and neither of the two above
  bool wants(int64_t row, int64_t n_rows) const {
    if (out == nullptr) return false;
    return mask != nullptr ? mask[row] != 0 : all || row + 1 == n_rows;
  }
};

// Between begin() and the end of its life the session is in a call. Unless commit() was reached, all is undone.
class SessionCall {
 public:
  SessionCall() = default;
  ~SessionCall() { end(); }
  SessionCall(const SessionCall&) = delete;
  SessionCall& operator=(const SessionCall&) = delete;

  // kState inside another call, kArgument, kContextFull, kMemory; the session is as before. ids are borrowed. `kind`:
  // in place of what the session says of its next tokens.
  absl::Status begin(Session* session, std::span<const int32_t> ids);
  absl::Status begin(Session* session, std::span<const int32_t> ids, TokenKind kind);
  // ids[first .. first + n) of the call, as rows from `first_row` on of a run of several sequences.
  SequenceRows rows(int64_t first, int64_t n, int64_t first_row) const;
  // By itself, as the only sequence: what logits are wanted, then step() by step, a chunk of tokens each, until it
  // is through; or all at once. On success commit() is next.
  void want(const LogitRows& logits);
  absl::Status step();
  bool is_through() const { return n_done_ == n_ids(); }
  absl::Status run(const LogitRows& logits);
  // The tokens are the session's now.
  void commit();
  // The call is over: undone, if it was not committed.
  void end();

  Session& session() const { return *session_; }
  std::span<const int32_t> ids() const { return ids_; }
  int64_t n_ids() const { return static_cast<int64_t>(ids_.size()); }

 private:
  friend class Session;
  Session* session_ = nullptr;
  std::span<const int32_t> ids_;
  LogitRows logits_;
  float* out_ = nullptr;  // for the next wanted row
  int64_t n_done_ = 0;
  std::optional<CallProgress> progress_;
  uint64_t start_ns_ = 0;
};

}  // namespace engine

#endif  // ENGINE_LIB_SESSION_SESSION_CALL_H_
