// The manifest, and the rows that it describes. Everything that is read is checked: the file may have been edited.
#include "lib/session/kv_export.h"

#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/session/kv_rows.h"
#include "nlohmann/json.hpp"

namespace engine {
namespace {

using Json = nlohmann::json;

constexpr char kMagic[12] = "engine.kv/1";
constexpr uint64_t kHeadBytes = 16;
constexpr uint64_t kAlignBytes = 64;

// Blocks are no business of the tools that read it: kQ8_0 is handed out as what attention reads.
KvType exported_type(KvType type) { return type == KvType::kQ8_0 ? KvType::kF32 : type; }
const char* dtype_name(KvType type) {
  return exported_type(type) == KvType::kF16 ? "float16" : "float32";
}
int64_t value_bytes(KvType type) { return kv_row_bytes(exported_type(type), 1); }

std::string hex(const Hash128& hash) {
  return absl::StrCat(absl::Hex(hash.high, absl::kZeroPad16),
                      absl::Hex(hash.low, absl::kZeroPad16));
}

absl::Status corrupt(std::string_view what) {
  return error(Code::kCorrupt, absl::StrCat("the KV snapshot is malformed: ", what));
}

// An unsigned number of the manifest, at most `most`.
absl::StatusOr<uint64_t> number(const Json& object, const char* key, uint64_t most) {
  const auto it = object.find(key);
  if (it == object.end() || !it->is_number_unsigned() || it->get<uint64_t>() > most) {
    return corrupt(absl::StrCat("\"", key, "\" is missing or out of range"));
  }
  return it->get<uint64_t>();
}

absl::StatusOr<std::string> text(const Json& object, const char* key) {
  const auto it = object.find(key);
  if (it == object.end() || !it->is_string()) return corrupt(absl::StrCat("no \"", key, "\""));
  return it->get<std::string>();
}

Json manifest_of(const Session& session, const Hash128& model) {
  const KvCache& kv = session.kv();
  const int64_t n = session.position();
  const std::span<const int32_t> ids = session.history().ids();
  Json layers = Json::array();
  int64_t offset = 0;
  for (const KvGeometry& g : kv.layers()) {
    const int64_t per_dim = g.n_kv_heads * n * value_bytes(kv.type());
    layers.push_back({{"n_kv_heads", g.n_kv_heads},
                      {"head_dim_k", g.head_dim_k},
                      {"head_dim_v", g.head_dim_v},
                      {"k_offset", offset},
                      {"v_offset", offset + per_dim * g.head_dim_k}});
    offset += per_dim * (g.head_dim_k + g.head_dim_v);
  }
  return {{"schema", "engine.kv/1"},
          {"model", hex(model)},
          {"kv_type", kv_type_name(kv.type())},
          {"dtype", dtype_name(kv.type())},
          {"n_positions", n},
          {"ids", std::vector<int32_t>(ids.begin(), ids.end())},
          {"prompt_end", session.hooks().prompt_end()},
          {"rope_tables", session.program().rope_tables(session.plan().key.n_ctx)},
          {"layers", std::move(layers)}};
}

struct Snapshot {
  Json manifest;
  std::span<const uint8_t> data;
};

absl::StatusOr<Snapshot> open(std::span<const uint8_t> bytes) {
  uint32_t n = 0;
  if (bytes.size() < kHeadBytes) return corrupt("it is too short");
  if (std::memcmp(bytes.data(), kMagic, sizeof(kMagic)) != 0) {
    if (std::memcmp(bytes.data(), kMagic, sizeof("engine.kv/") - 1) == 0) {
      return error(Code::kTooNew, "the KV snapshot has another schema than engine.kv/1");
    }
    return corrupt("it does not begin with engine.kv/1");
  }
  std::memcpy(&n, bytes.data() + sizeof(kMagic), sizeof(n));
  if (n > bytes.size() - kHeadBytes) return corrupt("the manifest is cut");
  const auto* first = reinterpret_cast<const char*>(bytes.data() + kHeadBytes);
  Snapshot s{Json::parse(first, first + n, nullptr, /*allow_exceptions=*/false),
             bytes.subspan(kHeadBytes + n)};
  if (!s.manifest.is_object()) return corrupt("the manifest is no JSON object");
  return s;
}

absl::StatusOr<TokenHistory> history_of(const Json& manifest, int64_t n, int64_t n_vocab) {
  const auto it = manifest.find("ids");
  if (it == manifest.end() || !it->is_array() || it->size() != static_cast<size_t>(n)) {
    return corrupt("\"ids\" are not n_positions numbers");
  }
  std::vector<int32_t> ids;
  for (const Json& id : *it) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() >= static_cast<uint64_t>(n_vocab)) {
      return corrupt("a token id is out of range");
    }
    ids.push_back(static_cast<int32_t>(id.get<uint64_t>()));
  }
  TokenHistory history;
  history.reserve(n);
  if (n > 0) history.append(ids, kOpaqueWriters);
  return history;
}

bool all_finite(const uint8_t* rows, uint64_t n_bytes, KvType type) {
  if (type == KvType::kF16) {
    for (uint64_t i = 0; i < n_bytes; i += 2) {
      if ((rows[i + 1] & 0x7c) == 0x7c) return false;
    }
    return true;
  }
  for (uint64_t i = 0; i < n_bytes; i += 4) {
    if ((rows[i + 3] & 0x7f) == 0x7f && (rows[i + 2] & 0x80) != 0) return false;
  }
  return true;
}

uint64_t rows_bytes(const KvCache& cache, int32_t layer, KvPart part, int64_t n) {
  return static_cast<uint64_t>(n * value_bytes(cache.type()) *
                               kv_head_dim(cache.geometry(layer), part));
}

// Returns their bytes.
uint64_t put_rows(const KvCache& cache, int32_t layer, KvPart part, int64_t head, int64_t n,
                  uint8_t* rows) {
  const uint64_t n_bytes = rows_bytes(cache, layer, part, n);
  if (cache.type() == KvType::kQ8_0) {
    std::vector<float> floats(n_bytes / sizeof(float));
    read_kv_floats(cache, layer, part, head, n, floats.data());
    if (n_bytes > 0) std::memcpy(rows, floats.data(), n_bytes);
  } else {
    read_kv_rows(cache, layer, part, head, n, rows);
  }
  return n_bytes;
}

// False when one of them is not finite.
bool take_rows(const KvCache& cache, int32_t layer, KvPart part, int64_t head, int64_t n,
               std::span<const uint8_t> rows) {
  if (!all_finite(rows.data(), rows.size(), exported_type(cache.type()))) return false;
  if (cache.type() == KvType::kQ8_0) {
    std::vector<float> floats(rows.size() / sizeof(float));  // rows may lie anywhere
    if (!rows.empty()) std::memcpy(floats.data(), rows.data(), rows.size());
    return write_kv_floats(cache, layer, part, head, n, floats.data());
  }
  write_kv_rows(cache, layer, part, head, n, rows.data());
  return true;
}

// Where the rows of each layer's keys and values begin in the data; checked.
absl::StatusOr<std::vector<std::pair<uint64_t, uint64_t>>> offsets_of(const Snapshot& s,
                                                                      const KvCache& kv,
                                                                      int64_t n) {
  const auto layers = s.manifest.find("layers");
  if (layers == s.manifest.end() || !layers->is_array() || layers->size() != kv.layers().size()) {
    return corrupt("another number of layers");
  }
  std::vector<std::pair<uint64_t, uint64_t>> offsets;
  for (size_t l = 0; l < layers->size(); ++l) {
    const Json& layer = (*layers)[l];
    const KvGeometry& g = kv.layers()[l];
    if (!layer.is_object()) return corrupt("a layer is no object");
    const std::pair<const char*, int64_t> dims[] = {
        {"n_kv_heads", g.n_kv_heads}, {"head_dim_k", g.head_dim_k}, {"head_dim_v", g.head_dim_v}};
    for (const auto& [key, expected] : dims) {
      ENGINE_ASSIGN_OR_RETURN(const uint64_t found, number(layer, key, UINT32_MAX));
      if (found != static_cast<uint64_t>(expected)) {
        return corrupt(absl::StrCat("layer ", l, " has ", key, " ", found, ", not ", expected));
      }
    }
    const auto per_dim = static_cast<uint64_t>(g.n_kv_heads * n * value_bytes(kv.type()));
    const auto offset = [&](const char* key, int64_t head_dim) -> absl::StatusOr<uint64_t> {
      const uint64_t needed = per_dim * static_cast<uint64_t>(head_dim);
      if (needed > s.data.size()) return corrupt("the data are cut");
      return number(layer, key, s.data.size() - needed);
    };
    ENGINE_ASSIGN_OR_RETURN(const uint64_t k, offset("k_offset", g.head_dim_k));
    ENGINE_ASSIGN_OR_RETURN(const uint64_t v, offset("v_offset", g.head_dim_v));
    offsets.emplace_back(k, v);
  }
  return offsets;
}

}  // namespace

absl::StatusOr<std::vector<uint8_t>> export_kv(const Session& session, const Hash128& model) {
  if (session.in_call()) return error(Code::kState, "the session is inside a call");
  const int64_t n = session.position();
  std::string manifest = manifest_of(session, model).dump();
  manifest.resize(
      (kHeadBytes + manifest.size() + kAlignBytes - 1) / kAlignBytes * kAlignBytes - kHeadBytes,
      ' ');
  const uint64_t before = kHeadBytes + manifest.size();
  uint64_t n_values = 0;
  for (const KvGeometry& g : session.kv().layers()) {
    n_values += static_cast<uint64_t>(g.n_kv_heads * n * (g.head_dim_k + g.head_dim_v));
  }
  const KvType type = session.kv().type();
  std::vector<uint8_t> bytes(before + n_values * static_cast<uint64_t>(value_bytes(type)));
  const auto manifest_bytes = static_cast<uint32_t>(manifest.size());
  std::memcpy(bytes.data(), kMagic, sizeof(kMagic));
  std::memcpy(bytes.data() + sizeof(kMagic), &manifest_bytes, sizeof(manifest_bytes));
  std::memcpy(bytes.data() + kHeadBytes, manifest.data(), manifest.size());
  uint8_t* rows = bytes.data() + before;
  (void)for_kv_heads(session.kv(), [&](int32_t layer, KvPart part, int64_t head, int64_t) {
    rows += put_rows(session.kv(), layer, part, head, n, rows);
    return absl::OkStatus();
  });
  return bytes;
}

absl::Status import_kv(std::span<const uint8_t> bytes, const Hash128& model, Session* session) {
  if (session->in_call()) return error(Code::kState, "the session is inside a call");
  ENGINE_ASSIGN_OR_RETURN(const Snapshot s, open(bytes));
  ENGINE_ASSIGN_OR_RETURN(const std::string schema, text(s.manifest, "schema"));
  if (schema != "engine.kv/1") return error(Code::kTooNew, "another schema than engine.kv/1");
  ENGINE_ASSIGN_OR_RETURN(const std::string owner, text(s.manifest, "model"));
  if (owner != hex(model)) {
    return error(Code::kModelMismatch, "the KV snapshot belongs to another model");
  }
  const KvType type = session->kv().type();
  ENGINE_ASSIGN_OR_RETURN(const std::string kv_type, text(s.manifest, "kv_type"));
  if (kv_type != kv_type_name(type)) {
    return error(Code::kKvMismatch, absl::StrCat("the KV snapshot has KV type ", kv_type,
                                                 ", the session ", kv_type_name(type)));
  }
  ENGINE_ASSIGN_OR_RETURN(const std::string dtype, text(s.manifest, "dtype"));
  if (dtype != dtype_name(type)) return corrupt(absl::StrCat("dtype ", dtype, " of that KV type"));
  ENGINE_ASSIGN_OR_RETURN(const uint64_t tables, number(s.manifest, "rope_tables", UINT32_MAX));
  if (tables != session->program().rope_tables(session->plan().key.n_ctx)) {
    return error(Code::kKvMismatch,
                 "the KV snapshot has keys rotated for another range of context lengths");
  }
  constexpr auto kMost = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  ENGINE_ASSIGN_OR_RETURN(const uint64_t n_found, number(s.manifest, "n_positions", kMost));
  const int64_t n_ctx = session->plan().key.n_ctx;
  if (n_found > static_cast<uint64_t>(n_ctx)) {
    return error(Code::kContextFull, absl::StrCat("the KV snapshot has ", n_found,
                                                  " tokens, the session room for ", n_ctx));
  }
  const auto n = static_cast<int64_t>(n_found);
  ENGINE_ASSIGN_OR_RETURN(const uint64_t prompt_end, number(s.manifest, "prompt_end", kMost));
  ENGINE_ASSIGN_OR_RETURN(TokenHistory history,
                          history_of(s.manifest, n, session->program().n_vocab));
  KvCache cache = session->empty_cache();
  ENGINE_ASSIGN_OR_RETURN(const auto offsets, offsets_of(s, cache, n));
  ENGINE_RETURN_IF_ERROR(cache.reserve(0, n));
  ENGINE_RETURN_IF_ERROR(
      for_kv_heads(cache, [&](int32_t layer, KvPart part, int64_t head, int64_t) -> absl::Status {
        const auto& [k, v] = offsets[static_cast<size_t>(layer)];
        const uint64_t head_bytes = rows_bytes(cache, layer, part, n);
        const uint8_t* const rows = s.data.data() + (part == KvPart::kKeys ? k : v) +
                                    static_cast<uint64_t>(head) * head_bytes;
        if (!take_rows(cache, layer, part, head, n, {rows, head_bytes})) {
          return error(Code::kNonFinite, absl::StrCat("the KV snapshot has a NaN or an infinity in "
                                                      "layer ",
                                                      layer));
        }
        return absl::OkStatus();
      }));
  session->replace(cache, std::move(history), static_cast<int64_t>(prompt_end));
  return absl::OkStatus();
}

}  // namespace engine
