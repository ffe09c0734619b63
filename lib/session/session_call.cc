// Begins and ends the calls of a session; the position moves only when the whole call succeeded.
#include "lib/session/session_call.h"

#include <algorithm>

namespace engine {

absl::Status SessionCall::begin(Session* session, std::span<const int32_t> ids) {
  return begin(session, ids, session->token_kind_);
}

absl::Status SessionCall::begin(Session* session, std::span<const int32_t> ids, TokenKind kind) {
  Session& s = *session;
  if (s.in_call()) return error(Code::kState, "the session is inside a call");
  ENGINE_RETURN_IF_ERROR(s.check_ids(ids));
  const auto n = static_cast<int64_t>(ids.size());
  ENGINE_RETURN_IF_ERROR(s.kv_.reserve(s.position(), n));
  s.history_.reserve(s.plan_->key.n_ctx);
  s.run_state_.store(Session::kRunning);
  s.hooks_.begin_call(kind, s.position(), n);
  session_ = session;
  ids_ = ids;
  return absl::OkStatus();
}

SequenceRows SessionCall::rows(int64_t first, int64_t n, int64_t first_row) const {
  Session& s = *session_;
  SequenceRows rows;
  rows.ids = ids_.data() + first;
  rows.n_rows = n;
  rows.first_position = s.position() + first;
  rows.n_ctx = s.plan().key.n_ctx;
  rows.first_row = first_row;
  rows.n_before = first;
  rows.pages = s.kv_.pages();
  rows.hooks = &s.hooks_;
  rows.counters = &s.counters_;
  rows.profile = s.measuring_ ? s.profile_.get() : nullptr;
  rows.should_stop = [](const void* state) {
    return static_cast<const std::atomic<int>*>(state)->load(std::memory_order_relaxed) ==
           Session::kCancelAsked;
  };
  rows.stop_state = &s.run_state_;
  return rows;
}

void SessionCall::want(const LogitRows& logits) {
  Session& s = *session_;
  logits_ = logits;
  out_ = logits.out;
  n_done_ = 0;
  start_ns_ = s.measuring_ ? s.profile_->now() : 0;
  if (s.options_.progress == nullptr || n_ids() == 1) return;
  progress_.emplace(s.options_.progress, s.options_.progress_user, s.clock(), s.options_.clock_user,
                    static_cast<uint64_t>(n_ids()));
}

absl::Status SessionCall::step() {
  Session& s = *session_;
  const int64_t n = std::min(s.plan_->key.prefill_chunk, n_ids() - n_done_);
  ENGINE_RETURN_IF_ERROR(s.is_reference() ? s.run_reference(this, n_done_, n)
                                          : s.run_planned(this, n_done_, n));
  n_done_ += n;
  if (progress_) progress_->arrive(static_cast<uint64_t>(n_done_));
  if (is_through() && s.measuring_) s.profile_->record_call(n_ids() > 1, start_ns_);
  return absl::OkStatus();
}

absl::Status SessionCall::run(const LogitRows& logits) {
  want(logits);
  while (!is_through()) ENGINE_RETURN_IF_ERROR(step());
  return absl::OkStatus();
}

void SessionCall::commit() {
  session_->history_.append(ids_, session_->hooks_.writer_set());
  session_->hooks_.commit();
  session_->decoded_tokens_ += ids_.size();
  session_->run_state_.store(Session::kIdle);
  session_->publish_pages();
  session_ = nullptr;
}

void SessionCall::end() {
  if (session_ == nullptr) return;
  session_->hooks_.roll_back();
  session_->run_state_.store(Session::kIdle);
  session_ = nullptr;
}

}  // namespace engine
