// engine.h, session: speculative decoding.
#include <algorithm>

#include "lib/api/sampler_handle.h"
#include "lib/api/session_handle.h"
#include "lib/sample/sampler.h"

using engine::Code;
using engine::api::guard;

namespace {

constexpr uint32_t kMostGuesses = 256;

// Whether both name the same tokens.
absl::Status check_drafter(const engine_session& session, const engine_session& drafter) {
  if (&session == &drafter) return engine::error(Code::kArgument, "the drafter is the session");
  const engine::Tokenizer* const a = session.model->model->tokenizer.get();
  const engine::Tokenizer* const b = drafter.model->model->tokenizer.get();
  if (session.model->program->n_vocab != drafter.model->program->n_vocab ||
      (session.model != drafter.model && (a == nullptr || b == nullptr ||
                                          engine::api::vocabulary_hash_of(*session.model) !=
                                              engine::api::vocabulary_hash_of(*drafter.model)))) {
    return engine::error(Code::kArgument, "the drafter has another vocabulary");
  }
  return absl::OkStatus();
}

absl::StatusOr<engine::SpeculationOptions> read_options(const engine_session& session,
                                                        const engine_speculation_params& p) {
  engine::SpeculationOptions options;
  if (p.max_draft > kMostGuesses) return engine::error(Code::kArgument, "max_draft is above 256");
  if (p.max_draft > 0) options.most = p.max_draft;
  if (p.shortest_match > 0) options.shortest = p.shortest_match;
  options.longest = std::max(options.longest, options.shortest);
  if (p.drafter != nullptr) {
    ENGINE_RETURN_IF_ERROR(check_drafter(session, *p.drafter));
    options.drafter = p.drafter->session.get();
  }
  return options;
}

}  // namespace

extern "C" {

int32_t engine_session_decode_speculative(engine_session* session, int32_t id,
                                          const engine_speculation_params* params, int32_t* next,
                                          uint64_t capacity, uint64_t* n_next, float* logits,
                                          engine_error* error) {
  return guard(error, [&]() -> absl::Status {
    ENGINE_ASSIGN_OR_RETURN(engine::Session* const s, engine::api::session_of(session));
    if (next == nullptr || n_next == nullptr) {
      return engine::error(Code::kArgument, "a pointer is NULL");
    }
    *n_next = 0;
    if (capacity == 0) return engine::error(Code::kArgument, "capacity is 0");
    engine_speculation_params p = ENGINE_SPECULATION_PARAMS_INIT;
    if (params != nullptr) {
      ENGINE_RETURN_IF_ERROR(
          engine::api::read_struct(params, sizeof(engine_speculation_params), &p));
    }
    ENGINE_ASSIGN_OR_RETURN(const engine::SpeculationOptions options, read_options(*session, p));
    const auto choose = [&](std::span<const float> row) -> absl::StatusOr<int32_t> {
      if (p.sampler != nullptr) return p.sampler->sampler.sample(row);
      return engine::argmax(row);  // the decode has checked that all are finite
    };
    ENGINE_ASSIGN_OR_RETURN(
        const int64_t n,
        session->speculation.decode(
            s, id, options, choose, next,
            static_cast<int64_t>(std::min<uint64_t>(capacity, kMostGuesses + 1)), logits));
    *n_next = static_cast<uint64_t>(n);
    return absl::OkStatus();
  });
}

int32_t engine_session_speculation_get(const engine_session* session,
                                       engine_speculation_stats* stats) {
  return guard(nullptr, [&]() -> absl::Status {
    if (session == nullptr) return engine::error(Code::kArgument, "the session is NULL");
    const engine::SpeculationStats& from = session->speculation.stats();
    engine_speculation_stats value = ENGINE_SPECULATION_STATS_INIT;
    value.calls = from.calls;
    value.guessed = from.guessed;
    value.right = from.right;
    return engine::api::write_struct(value, stats);
  });
}

}  // extern "C"
