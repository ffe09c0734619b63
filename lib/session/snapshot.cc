// Writes and reads saved sessions. Restoring fills pages of its own and swaps them in at the end.
#include "lib/session/snapshot.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/session/kv_rows.h"

namespace engine {
namespace {

constexpr std::string_view kMagic = "engine.s";
constexpr uint32_t kVersion = 1;
constexpr uint64_t kFixedBytes = 16 + 4 + 4 + 8 + 8 + 8 + 8;
constexpr uint64_t kRunBytes = 16;

struct Fields {
  Hash128 model;
  uint32_t kv_type = 0, token_kind = 0;
  uint64_t n = 0, n_runs = 0;
  int64_t prompt_end = 0;
  uint64_t rope_tables = 0;
};

uint64_t rope_tables_of(const Session& session) {
  return session.program().rope_tables(session.plan().key.n_ctx);
}

Fields read_fields(SealedReader* reader) {
  Fields f;
  f.model.low = reader->value<uint64_t>();
  f.model.high = reader->value<uint64_t>();
  f.kv_type = reader->value<uint32_t>();
  f.token_kind = reader->value<uint32_t>();
  f.n = reader->value<uint64_t>();
  f.n_runs = reader->value<uint64_t>();
  f.prompt_end = reader->value<int64_t>();
  f.rope_tables = reader->value<uint64_t>();
  return f;
}

absl::Status corrupt(std::string_view what) {
  return error(Code::kCorrupt, absl::StrCat("the saved state is damaged: ", what));
}

absl::Status check_fields(const Fields& f, const Session& session, const Hash128& model) {
  if (!(f.model == model)) {
    return error(Code::kModelMismatch, "the saved state belongs to another model");
  }
  if (f.kv_type != static_cast<uint32_t>(session.kv().type())) {
    return error(Code::kKvMismatch, absl::StrCat("the saved state has KV type ", f.kv_type,
                                                 ", the session ", session.kv().type()));
  }
  if (f.rope_tables != rope_tables_of(session)) {
    return error(Code::kKvMismatch,
                 "the saved state has keys rotated for another range of context lengths");
  }
  const int64_t n_ctx = session.plan().key.n_ctx;
  if (f.n > static_cast<uint64_t>(n_ctx)) {
    return error(Code::kContextFull, absl::StrCat("the saved state has ", f.n,
                                                  " tokens, the session room for ", n_ctx));
  }
  const bool good_kind = f.token_kind <= static_cast<uint32_t>(TokenKind::kGenerated);
  if (!good_kind || f.prompt_end < 0 || f.n_runs > f.n) return corrupt("a field is out of range");
  return absl::OkStatus();
}

absl::StatusOr<TokenHistory> read_history(SealedReader* reader, const Fields& f, int64_t n_vocab) {
  const auto n = static_cast<int64_t>(f.n);
  std::vector<int32_t> ids(f.n);
  reader->take(ids.data(), f.n * sizeof(int32_t));
  for (const int32_t id : ids) {
    if (id < 0 || id >= n_vocab) return corrupt("a token id is out of range");
  }
  TokenHistory history;
  history.reserve(n);
  int64_t begin = 0;
  WriterSet writers = kNoWriters;
  for (uint64_t run = 0; run <= f.n_runs; ++run) {
    const int64_t end = run < f.n_runs ? reader->value<int64_t>() : n;
    if ((run == 0 && f.n_runs > 0 && end != 0) || end < begin || end > n) {
      return corrupt("the writer runs are out of order");
    }
    if (end > begin) {
      history.append(
          std::span(ids).subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin)),
          writers);
    }
    begin = end;
    if (run < f.n_runs) writers = reader->value<uint64_t>();
  }
  return history;
}

}  // namespace

uint64_t snapshot_bytes(const Session& session) {
  const TokenHistory& history = session.history();
  return kSealedHeadBytes + kFixedBytes + static_cast<uint64_t>(history.size()) * sizeof(int32_t) +
         history.runs().size() * kRunBytes + kv_rows_bytes(session.kv(), history.size()) +
         kSealBytes;
}

absl::Status save_snapshot(const Session& session, const Hash128& model,
                           const SealedWriter::WriteFn& write) {
  if (session.in_call()) return error(Code::kState, "the session is inside a call");
  const TokenHistory& history = session.history();
  SealedWriter out(kMagic, kVersion, write);
  out.value(model.low);
  out.value(model.high);
  out.value(static_cast<uint32_t>(session.kv().type()));
  out.value(static_cast<uint32_t>(session.token_kind()));
  out.value(static_cast<uint64_t>(history.size()));
  out.value(static_cast<uint64_t>(history.runs().size()));
  out.value(session.hooks().prompt_end());
  out.value(rope_tables_of(session));
  out.put(history.ids().data(), history.ids().size_bytes());
  for (const TokenHistory::Run& run : history.runs()) {
    out.value(run.begin);
    out.value(run.writers);
  }
  std::vector<uint8_t> rows;
  (void)for_kv_heads(session.kv(),
                     [&](int32_t layer, KvPart part, int64_t head, int64_t row_bytes) {
                       rows.resize(static_cast<size_t>(history.size() * row_bytes));
                       read_kv_rows(session.kv(), layer, part, head, history.size(), rows.data());
                       out.put(rows.data(), rows.size());
                       return out.ok() ? absl::OkStatus() : absl::CancelledError();
                     });
  return out.seal();
}

absl::Status restore_snapshot(std::span<const uint8_t> bytes, const Hash128& model,
                              Session* session) {
  if (session->in_call()) return error(Code::kState, "the session is inside a call");
  ENGINE_ASSIGN_OR_RETURN(SealedReader reader, SealedReader::open(bytes, kMagic, kVersion));
  const Fields f = read_fields(&reader);
  if (!reader.ok()) return corrupt("it is too short");
  ENGINE_RETURN_IF_ERROR(check_fields(f, *session, model));
  const auto n = static_cast<int64_t>(f.n);
  const uint64_t n_expected =
      f.n * sizeof(int32_t) + f.n_runs * kRunBytes + kv_rows_bytes(session->kv(), n);
  if (reader.n_left() != n_expected) return corrupt("its length does not fit its contents");
  ENGINE_ASSIGN_OR_RETURN(TokenHistory history,
                          read_history(&reader, f, session->program().n_vocab));
  KvCache cache = session->empty_cache();
  ENGINE_RETURN_IF_ERROR(cache.reserve(0, n));
  (void)for_kv_heads(cache, [&](int32_t layer, KvPart part, int64_t head, int64_t row_bytes) {
    const uint8_t* const rows = reader.skip(static_cast<uint64_t>(n * row_bytes));
    write_kv_rows(cache, layer, part, head, n, rows);
    return absl::OkStatus();
  });
  session->replace(cache, std::move(history), f.prompt_end);
  session->tokens_are(static_cast<TokenKind>(f.token_kind));
  return absl::OkStatus();
}

}  // namespace engine
