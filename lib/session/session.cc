// Cuts a decode into chunks and keeps the position honest: it moves only when the whole call succeeded.
#include "lib/session/session.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/float_state.h"

namespace engine {
namespace {

uint64_t monotonic_ns(void*) {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                   std::chrono::steady_clock::now().time_since_epoch())
                                   .count());
}

}  // namespace

Session::Session(const Program& program, PackedWeights packed, std::unique_ptr<ThreadRunner> runner,
                 std::shared_ptr<const Plan> plan, const SessionOptions& options)
    : program_(program),
      options_(options),
      runner_(std::move(runner)),
      plan_(std::move(plan)),
      kv_(program.kv, plan_->key.kv, plan_->key.n_ctx, options.memory),
      hooks_(program, plan_->key.n_ctx, plan_->key.prefill_chunk, options.sequence, options.memory),
      reference_(program, plan_->key.target, &kv_, runner_.get(), options.memory),
      interpreter_(program, std::move(packed), &kv_, runner_.get(), &hooks_, options.memory) {
  reference_.set_hooks(&hooks_);
  reference_.set_kernel_pattern(plan_->key.kernel_pattern);
}

absl::StatusOr<std::unique_ptr<Session>> Session::create(const Program& program,
                                                         PackedWeights packed,
                                                         std::unique_ptr<ThreadRunner> runner,
                                                         std::shared_ptr<const Plan> plan,
                                                         const SessionOptions& options) {
  std::unique_ptr<Session> session(
      new Session(program, std::move(packed), std::move(runner), plan, options));
  ENGINE_RETURN_IF_ERROR(session->bind(std::move(plan)));
  return session;
}

absl::Status Session::bind(std::shared_ptr<const Plan> plan) {
  if (plan->key.mode != plan_->key.mode || plan->key.target != plan_->key.target ||
      plan->key.n_ctx != plan_->key.n_ctx || plan->key.prefill_chunk != plan_->key.prefill_chunk) {
    return error(Code::kPlan, "the plan does not fit: it was made for another session");
  }
  if (!is_reference()) ENGINE_RETURN_IF_ERROR(interpreter_.bind(plan));
  plan_ = std::move(plan);
  // Other steps: what was measured does not go on.
  if (measuring_) return start_profile();
  return absl::OkStatus();
}

absl::Status Session::check_ids(std::span<const int32_t> ids) const {
  if (ids.empty()) return error(Code::kArgument, "no ids were given");
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= program_.n_vocab) {
      return error(Code::kArgument, absl::StrCat("ids[", i, "] = ", ids[i], " is outside 0 .. ",
                                                 program_.n_vocab - 1));
    }
  }
  const auto n = static_cast<int64_t>(ids.size());
  if (n > plan_->key.n_ctx - position_) {
    return error(Code::kContextFull, absl::StrCat(n, " tokens do not fit: ", position_, " of ",
                                                  plan_->key.n_ctx, " positions are taken"));
  }
  return absl::OkStatus();
}

absl::Status Session::decode(std::span<const int32_t> ids, float* logits, bool all_rows) {
  if (in_call()) return error(Code::kState, "the session is inside a call");
  ENGINE_RETURN_IF_ERROR(check_ids(ids));
  const FloatStateGuard guard;
  run_state_.store(kRunning);
  hooks_.begin_call(token_kind_, position_, static_cast<int64_t>(ids.size()));
  absl::Status status = run(ids, logits, all_rows);
  run_state_.store(kIdle);
  if (!status.ok()) {
    hooks_.roll_back();
    return status;
  }
  hooks_.commit();
  position_ += static_cast<int64_t>(ids.size());
  decoded_tokens_ += ids.size();
  return status;
}

absl::Status Session::run_chunk(std::span<const int32_t> ids, int64_t first_position) {
  const auto should_stop = [](void* state) {
    return static_cast<std::atomic<int>*>(state)->load(std::memory_order_relaxed) == kCancelAsked;
  };
  return is_reference() ? reference_.run_layers(ids, first_position, should_stop, &run_state_)
                        : interpreter_.run_layers(ids, first_position, should_stop, &run_state_);
}

absl::Status Session::run_head(int64_t chunk, int64_t first_row, int64_t n_rows, float* logits) {
  const int64_t group = (chunk == 1 ? plan_->decode : plan_->prefill).n_head_rows;
  for (int64_t row = 0; row < n_rows; row += group) {
    const int64_t n = std::min(group, n_rows - row);
    float* out = logits + row * program_.n_vocab;
    ENGINE_RETURN_IF_ERROR(is_reference() ? reference_.run_head(first_row + row, n, out)
                                          : interpreter_.run_head(first_row + row, n, out));
  }
  return absl::OkStatus();
}

absl::Status Session::run(std::span<const int32_t> ids, float* logits, bool all_rows) {
  const auto n = static_cast<int64_t>(ids.size());
  const uint64_t start = measuring_ ? profile_->now() : 0;
  ENGINE_RETURN_IF_ERROR(kv_.reserve(position_ + n));
  for (int64_t done = 0; done < n;) {
    const int64_t chunk = std::min(plan_->key.prefill_chunk, n - done);
    ENGINE_RETURN_IF_ERROR(run_chunk(
        ids.subspan(static_cast<size_t>(done), static_cast<size_t>(chunk)), position_ + done));
    done += chunk;
    if (logits != nullptr && all_rows) {
      ENGINE_RETURN_IF_ERROR(run_head(chunk, 0, chunk, logits + (done - chunk) * program_.n_vocab));
    } else if (logits != nullptr && done == n) {
      ENGINE_RETURN_IF_ERROR(run_head(chunk, chunk - 1, 1, logits));
    }
    if (options_.progress != nullptr && n > plan_->key.prefill_chunk) {
      options_.progress(options_.progress_user, static_cast<uint64_t>(done),
                        static_cast<uint64_t>(n));
    }
  }
  if (measuring_) profile_->record_call(n > 1, start);
  return absl::OkStatus();
}

absl::Status Session::unembed(const float* rows, int64_t n_rows, float* logits) {
  if (in_call()) return error(Code::kState, "the session is inside a call");
  if (n_rows < 1) return error(Code::kArgument, "no rows were given");
  const FloatStateGuard guard;
  return is_reference() ? reference_.unembed(rows, n_rows, logits)
                        : interpreter_.unembed(rows, n_rows, logits);
}

absl::Status Session::truncate(int64_t n) {
  if (in_call()) return error(Code::kState, "the session is inside a call");
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

absl::Status Session::start_profile() {
  if (in_call()) return error(Code::kState, "the session is inside a call");
  const bool reference = is_reference();
  profile_ = std::make_unique<Profile>(reference ? reference_.labels() : interpreter_.labels(false),
                                       reference ? reference_.labels() : interpreter_.labels(true),
                                       options_.clock != nullptr ? options_.clock : monotonic_ns,
                                       options_.clock_user);
  reference_.set_profile(profile_.get());
  interpreter_.set_profile(profile_.get());
  measuring_ = true;
  return absl::OkStatus();
}

void Session::stop_profile() {
  reference_.set_profile(nullptr);
  interpreter_.set_profile(nullptr);
  measuring_ = false;
}

}  // namespace engine
