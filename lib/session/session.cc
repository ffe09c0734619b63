// Cuts a decode into chunks, forks, rewinds, cancels, measures.
#include "lib/session/session.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/float_state.h"
#include "lib/session/session_call.h"

namespace engine {
namespace {

uint64_t monotonic_ns(void*) {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                   std::chrono::steady_clock::now().time_since_epoch())
                                   .count());
}

// Ends a call of an interpreter, also when an exception passes.
struct LeaveInterpreter {
  Interpreter& interpreter;
  ~LeaveInterpreter() { interpreter.leave(); }
};

}  // namespace

Session::Session(const Program& program, std::shared_ptr<ThreadRunner> runner,
                 std::shared_ptr<const Plan> plan, const SessionOptions& options)
    : program_(program),
      options_(options),
      runner_(std::move(runner)),
      plan_(std::move(plan)),
      kv_(program.kv, plan_->key.kv, plan_->key.n_ctx, options.memory),
      hooks_(program, plan_->key.n_ctx, plan_->key.prefill_chunk, options.sequence, options.memory),
      reference_(program, plan_->key.target, &kv_, runner_.get(), options.memory) {
  reference_.set_hooks(&hooks_);
  reference_.set_kernel_pattern(plan_->key.kernel_pattern);
  counters_.kernels.resize(kernel_rows().size());
  history_.reserve(plan_->key.n_ctx);
}

absl::StatusOr<std::unique_ptr<Session>> Session::create(const Program& program,
                                                         const PackedWeights& packed,
                                                         std::shared_ptr<ThreadRunner> runner,
                                                         std::shared_ptr<const Plan> plan,
                                                         const SessionOptions& options) {
  std::unique_ptr<Session> session(new Session(program, runner, plan, options));
  if (!session->is_reference()) {
    ENGINE_ASSIGN_OR_RETURN(
        session->interpreter_,
        Interpreter::create(std::move(plan), program, packed, std::move(runner), options.memory));
  }
  return session;
}

absl::StatusOr<std::unique_ptr<Session>> Session::make_fork(bool with_hooks) const {
  if (in_call()) return error(Code::kState, "the session is inside a call");
  std::unique_ptr<Session> made(new Session(program_, runner_, plan_, options_));
  made->kv_.share(kv_, position());
  ENGINE_RETURN_IF_ERROR(made->hooks_.copy(hooks_, with_hooks));
  made->interpreter_ = interpreter_;
  made->history_ = history_;
  made->published_ = published_;
  made->token_kind_ = token_kind_;
  return made;
}

absl::Status Session::bind(std::shared_ptr<const Plan> plan) {
  PlanKey key = plan->key;
  key.layer_sites = plan_->key.layer_sites;
  key.global_sites = plan_->key.global_sites;
  if (!(key == plan_->key)) {
    return error(Code::kPlan, "the plan does not fit: it was made for another session");
  }
  if (!is_reference()) {
    ENGINE_ASSIGN_OR_RETURN(interpreter_, interpreter_->with_plan(plan));
  }
  plan_ = std::move(plan);
  // Other steps: what was measured does not go on.
  if (measuring_) return start_profile();
  return absl::OkStatus();
}

Profile::ClockFn Session::clock() const {
  return options_.clock != nullptr ? options_.clock : monotonic_ns;
}

absl::Status Session::enter_interpreter() {
  if (interpreter_->try_enter()) return absl::OkStatus();
  ENGINE_ASSIGN_OR_RETURN(interpreter_, interpreter_->with_plan(plan_));
  interpreter_->try_enter();
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
  if (n > plan_->key.n_ctx - position()) {
    return error(Code::kContextFull, absl::StrCat(n, " tokens do not fit: ", position(), " of ",
                                                  plan_->key.n_ctx, " positions are taken"));
  }
  return absl::OkStatus();
}

absl::Status Session::decode(std::span<const int32_t> ids, float* logits, bool all_rows) {
  return decode_as(token_kind_, ids, logits, all_rows);
}

absl::Status Session::decode_as(TokenKind kind, std::span<const int32_t> ids, float* logits,
                                bool all_rows) {
  SessionCall call;
  ENGINE_RETURN_IF_ERROR(call.begin(this, ids, kind));
  const FloatStateGuard guard;
  ENGINE_RETURN_IF_ERROR(call.run({logits, all_rows, nullptr}));
  call.commit();
  return absl::OkStatus();
}

// Calls head(first_row, n_rows, out) for the rows of a chunk whose logits are wanted.
template <class F>
absl::Status Session::for_head_rows(SessionCall* call, int64_t first, int64_t chunk,
                                    F&& head) const {
  const int64_t group = (chunk == 1 ? plan_->decode : plan_->prefill).n_head_rows;
  const auto wants = [&](int64_t row) { return call->logits_.wants(first + row, call->n_ids()); };
  for (int64_t row = 0; row < chunk;) {
    int64_t n = 0;
    while (n < group && row + n < chunk && wants(row + n)) ++n;
    if (n > 0) {
      ENGINE_RETURN_IF_ERROR(head(row, n, call->out_));
      call->out_ += n * program_.n_vocab;
    }
    row += std::max<int64_t>(n, 1);
  }
  return absl::OkStatus();
}

absl::Status Session::run_planned(SessionCall* call, int64_t first, int64_t n) {
  ENGINE_RETURN_IF_ERROR(enter_interpreter());
  Interpreter& interpreter = *interpreter_;
  const LeaveInterpreter leave{interpreter};
  CallProgress* const progress = call->progress_ ? &*call->progress_ : nullptr;
  SequenceRows rows = call->rows(first, n, 0);
  rows.progress = progress;
  interpreter.run_layers({&rows, 1});
  ENGINE_RETURN_IF_ERROR(rows.status);
  return for_head_rows(call, first, n, [&](int64_t row, int64_t n_rows, float* to) {
    SequenceRows head = call->rows(first + row, n_rows, 0);
    head.progress = progress;
    interpreter.run_head({&head, 1}, row, to);
    return head.status;
  });
}

absl::Status Session::run_reference(SessionCall* call, int64_t first, int64_t n) {
  const auto should_stop = [](void* state) {
    return static_cast<std::atomic<int>*>(state)->load(std::memory_order_relaxed) == kCancelAsked;
  };
  const auto ids = call->ids().subspan(static_cast<size_t>(first), static_cast<size_t>(n));
  ENGINE_RETURN_IF_ERROR(reference_.run_layers(ids, position() + first, should_stop, &run_state_));
  return for_head_rows(call, first, n, [&](int64_t row, int64_t n_rows, float* to) {
    return reference_.run_head(row, n_rows, to);
  });
}

absl::Status Session::unembed(const float* rows, int64_t n_rows, float* logits) {
  if (in_call()) return error(Code::kState, "the session is inside a call");
  if (n_rows < 1) return error(Code::kArgument, "no rows were given");
  const FloatStateGuard guard;
  if (is_reference()) return reference_.unembed(rows, n_rows, logits);
  ENGINE_RETURN_IF_ERROR(enter_interpreter());
  const LeaveInterpreter leave{*interpreter_};
  return interpreter_->unembed(rows, n_rows, logits, &counters_);
}

absl::Status Session::truncate(int64_t n) {
  if (in_call()) return error(Code::kState, "the session is inside a call");
  if (n < 0 || n > position()) {
    return error(Code::kArgument, absl::StrCat("cannot truncate to ", n, ": the session holds ",
                                               position(), " tokens"));
  }
  history_.truncate(n);
  published_.resize(std::min(published_.size(), static_cast<size_t>(n / kKvPagePositions)));
  kv_.truncate(n);
  return absl::OkStatus();
}

// Pages that are full now. Where one of them cannot go in, those after it cannot either.
void Session::publish_pages() {
  if (options_.prefixes == nullptr || !options_.prefixes->is_on()) return;
  try {
    add_full_pages();
  } catch (const std::bad_alloc&) {  // the call has succeeded; a later one tries again
  }
}

void Session::add_full_pages() {
  const auto n_full = static_cast<size_t>(position() / kKvPagePositions);
  while (published_.size() < n_full) {
    const auto i = static_cast<int64_t>(published_.size());
    const int64_t first = i * kKvPagePositions;
    const WriterSet writers = history_.writers_at(first);
    for (const TokenHistory::Run& run : history_.runs()) {
      if (run.begin > first && run.begin < first + kKvPagePositions) return;
    }
    const PrefixStore::PageId id = options_.prefixes->add(
        published_.empty() ? PrefixStore::kRoot : published_.back(), page_kind(), writers,
        history_.ids().subspan(static_cast<size_t>(first), kKvPagePositions), kv_.page(i));
    if (id == PrefixStore::kRoot) return;
    published_.push_back(id);
  }
}

absl::StatusOr<int64_t> Session::take_prefix(std::span<const int32_t> ids) {
  if (in_call()) return error(Code::kState, "the session is inside a call");
  if (position() > 0) return error(Code::kState, "the session is not empty");
  ENGINE_RETURN_IF_ERROR(check_ids(ids));
  if (options_.prefixes == nullptr || !options_.prefixes->is_on()) return 0;
  const WriterSet writers = hooks_.writer_set(TokenKind::kPromptPart);
  auto found = options_.prefixes->find(page_kind(), writers, ids.first(ids.size() - 1));
  const auto n = static_cast<int64_t>(found.size()) * kKvPagePositions;
  if (n == 0) return 0;
  TokenHistory history;
  history.reserve(plan_->key.n_ctx);
  history.append(ids.first(static_cast<size_t>(n)), writers);
  std::vector<PrefixStore::PageId> published;
  std::vector<KvPageRef> pages;
  for (PrefixStore::Found& page : found) {
    published.push_back(page.id);
    pages.push_back(std::move(page.page));
  }
  kv_.share(std::move(pages));
  history_ = std::move(history);
  published_ = std::move(published);
  hooks_.set_prompt_end(n);
  return n;
}

void Session::replace(const KvCache& cache, TokenHistory history, int64_t prompt_end) {
  history.reserve(plan_->key.n_ctx);  // before anything changes
  kv_.share(cache, history.size());
  history_ = std::move(history);
  published_.clear();
  hooks_.set_prompt_end(prompt_end);
}

void Session::cancel() {
  int running = kRunning;
  run_state_.compare_exchange_strong(running, kCancelAsked);
}

absl::Status Session::start_profile() {
  if (in_call()) return error(Code::kState, "the session is inside a call");
  const bool reference = is_reference();
  profile_ = std::make_unique<Profile>(
      reference ? reference_.labels() : interpreter_->labels(false),
      reference ? reference_.labels() : interpreter_->labels(true),
      options_.clock != nullptr ? options_.clock : monotonic_ns, options_.clock_user);
  reference_.set_profile(profile_.get());
  measuring_ = true;
  return absl::OkStatus();
}

void Session::stop_profile() {
  reference_.set_profile(nullptr);
  measuring_ = false;
}

}  // namespace engine
