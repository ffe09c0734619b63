// Cuts a decode into chunks and keeps the position honest: it moves only when the whole call succeeded.
#include "lib/session/session.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/float_state.h"

namespace engine {

Session::Session(const Program& program, std::unique_ptr<ThreadRunner> runner,
                 const SessionOptions& options)
    : program_(program),
      options_(options),
      runner_(std::move(runner)),
      kv_(program.kv, options.kv_type, options.n_ctx, options.memory),
      reference_(program, options.target, &kv_, runner_.get(), options.memory) {}

absl::Status Session::check_ids(std::span<const int32_t> ids) const {
  if (ids.empty()) return error(Code::kArgument, "no ids were given");
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= program_.n_vocab) {
      return error(Code::kArgument, absl::StrCat("ids[", i, "] = ", ids[i], " is outside 0 .. ",
                                                 program_.n_vocab - 1));
    }
  }
  const auto n = static_cast<int64_t>(ids.size());
  if (n > options_.n_ctx - position_) {
    return error(Code::kContextFull, absl::StrCat(n, " tokens do not fit: ", position_, " of ",
                                                  options_.n_ctx, " positions are taken"));
  }
  return absl::OkStatus();
}

absl::Status Session::decode(std::span<const int32_t> ids, float* logits, bool all_rows) {
  ENGINE_RETURN_IF_ERROR(check_ids(ids));
  const FloatStateGuard guard;
  run_state_.store(kRunning);
  absl::Status status = run(ids, logits, all_rows);
  run_state_.store(kIdle);
  if (!status.ok()) return status;
  position_ += static_cast<int64_t>(ids.size());
  decoded_tokens_ += ids.size();
  return status;
}

absl::Status Session::run(std::span<const int32_t> ids, float* logits, bool all_rows) {
  const auto n = static_cast<int64_t>(ids.size());
  ENGINE_RETURN_IF_ERROR(kv_.reserve(position_ + n));
  const auto should_stop = [](void* state) {
    return static_cast<std::atomic<int>*>(state)->load(std::memory_order_relaxed) == kCancelAsked;
  };
  for (int64_t done = 0; done < n;) {
    const int64_t chunk = std::min(options_.prefill_chunk, n - done);
    const auto part = ids.subspan(static_cast<size_t>(done), static_cast<size_t>(chunk));
    ENGINE_RETURN_IF_ERROR(reference_.run_layers(part, position_ + done, should_stop, &run_state_));
    done += chunk;
    if (logits != nullptr) {
      for (int64_t row = all_rows ? 0 : chunk - 1; row < chunk && (all_rows || done == n); ++row) {
        float* out = all_rows ? logits + (done - chunk + row) * program_.n_vocab : logits;
        ENGINE_RETURN_IF_ERROR(reference_.run_head(row, out));
      }
    }
    if (options_.progress != nullptr && n > options_.prefill_chunk) {
      options_.progress(options_.progress_user, static_cast<uint64_t>(done),
                        static_cast<uint64_t>(n));
    }
  }
  return absl::OkStatus();
}

absl::Status Session::truncate(int64_t n) {
  if (n < 0 || n > position_) {
    return error(Code::kArgument, absl::StrCat("cannot truncate to ", n, ": the session holds ",
                                               position_, " tokens"));
  }
  position_ = n;
  return absl::OkStatus();
}

void Session::cancel() {
  int running = kRunning;
  run_state_.compare_exchange_strong(running, kCancelAsked);
}

}  // namespace engine
