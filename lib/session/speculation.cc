// Guess, decode together, compare with what is chosen, forget what was wrong.
#include "lib/session/speculation.h"

#include <algorithm>

#include "lib/sample/sampler.h"

namespace engine {

int64_t Speculation::room_for_guesses(const Session& session, const SpeculationOptions& options,
                                      int64_t capacity) const {
  const TokenKind kind = session.token_kind();
  const bool is_generating = kind == TokenKind::kAuto || kind == TokenKind::kGenerated;
  // A hook would see wrong guesses; the first token of a session is a prompt.
  if (!session.hooks().empty() || !is_generating || session.position() == 0) return 0;
  const PlanKey& key = session.plan().key;
  return std::max<int64_t>(0, std::min({options.most, capacity - 1, key.prefill_chunk - 1,
                                        key.n_ctx - session.position() - 1}));
}

// Appends to ids_ what may follow it.
void Speculation::guess(const Session& session, int32_t id, const SpeculationOptions& options,
                        int64_t n_most) {
  const int64_t n = length_.next(n_most);
  if (n == 0) return;
  const auto held = session.history().ids();
  context_.assign(held.begin(), held.end());
  context_.push_back(id);
  const auto found = lookup_draft(context_, options.shortest, options.longest, n);
  if (!found.empty()) {
    ids_.insert(ids_.end(), found.begin(), found.end());
  } else if (options.drafter != nullptr) {
    guess_with(options.drafter, n);
  }
}

// What the drafter says after the context, as far as it gets: its failures cost guesses and nothing else.
void Speculation::guess_with(Session* drafter, int64_t n_most) {
  const auto held = drafter->history().ids();
  const auto [mine, theirs] =
      std::mismatch(context_.begin(), context_.end() - 1, held.begin(), held.end());
  const auto n_common = static_cast<int64_t>(mine - context_.begin());
  if (!drafter->truncate(n_common).ok()) return;
  drafter_logits_.resize(static_cast<size_t>(drafter->program().n_vocab));
  std::span<const int32_t> ids = std::span(context_).subspan(static_cast<size_t>(n_common));
  for (int64_t i = 0; i < n_most; ++i) {
    if (!drafter->decode(ids, drafter_logits_.data(), false).ok()) return;
    const int32_t best = argmax(drafter_logits_);
    if (best < 0) return;
    ids_.push_back(best);
    ids = std::span(ids_).last(1);
  }
}

absl::StatusOr<float*> Speculation::scratch(int64_t n_rows, int64_t n_vocab) {
  const auto n_bytes = static_cast<uint64_t>(n_rows * n_vocab) * sizeof(float);
  if (logits_.size() < n_bytes) {
    ENGINE_ASSIGN_OR_RETURN(logits_, AlignedBuffer::create(HostMemory(), n_bytes));
  }
  return logits_.as<float>();
}

absl::StatusOr<int64_t> Speculation::decode(Session* session, int32_t id,
                                            const SpeculationOptions& options,
                                            const ChooseFn& choose, int32_t* next, int64_t capacity,
                                            float* logits) {
  if (session->in_call()) return error(Code::kState, "the session is inside a call");
  const int64_t before = session->position(), n_vocab = session->program().n_vocab;
  const uint64_t begin_ns = session->now_ns();
  ids_.assign(1, id);
  guess(*session, id, options, room_for_guesses(*session, options, capacity));
  const auto n_ids = static_cast<int64_t>(ids_.size());
  if (logits == nullptr) {
    ENGINE_ASSIGN_OR_RETURN(logits, scratch(n_ids, n_vocab));
  }
  ENGINE_RETURN_IF_ERROR(n_ids == 1
                             ? session->decode(ids_, logits, false)
                             : session->decode_as(TokenKind::kGenerated, ids_, logits, true));
  const uint64_t time_ns = session->now_ns() - begin_ns;
  int64_t n = 0;
  while (n < n_ids) {
    const auto chosen = choose({logits + n * n_vocab, static_cast<size_t>(n_vocab)});
    if (!chosen.ok()) {
      if (n > 0) break;  // the next call begins there, and fails
      ENGINE_RETURN_IF_ERROR(session->truncate(before));
      return chosen.status();
    }
    next[n++] = *chosen;
    if (n < n_ids && *chosen != ids_[static_cast<size_t>(n)]) break;
  }
  ENGINE_RETURN_IF_ERROR(session->truncate(before + n));
  length_.learn(n_ids - 1, n - 1, time_ns);
  ++stats_.calls;
  stats_.guessed += static_cast<uint64_t>(n_ids - 1);
  stats_.right += static_cast<uint64_t>(n - 1);
  return n;
}

}  // namespace engine
