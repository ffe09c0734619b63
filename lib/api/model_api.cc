// engine.h, model: open, close, info, metadata, tensors, targets.
#include <string>
#include <utility>
#include <vector>

#include "lib/api/api_common.h"
#include "lib/contract/kernel.h"
#include "lib/file/shards.h"
#include "lib/plan/lower.h"
#include "lib/quant/format.h"

using engine::Code;
using engine::api::copy_text;
using engine::api::guard;
using engine::api::read_struct;
using engine::api::write_struct;

namespace {

constexpr uint32_t kKnownFlags =
    ENGINE_OPEN_VOCAB_ONLY | ENGINE_OPEN_METADATA_ONLY | ENGINE_OPEN_PRETOKENIZER_FALLBACK;

// Calls the caller's release exactly once unless the mapping has taken it over.
class ReleaseOnFailure {
 public:
  explicit ReleaseOnFailure(const engine_model_params& params) : params_(params) {}
  ~ReleaseOnFailure() { now(); }
  // What was copied is released early.
  void now() {
    if (armed_ && params_.data != nullptr && params_.release_data != nullptr) {
      params_.release_data(params_.release_user, params_.data, params_.length);
    }
    disarm();
  }
  void disarm() { armed_ = false; }

 private:
  const engine_model_params& params_;
  bool armed_ = true;
};

constexpr uint64_t kInPlaceAlignment = 4;  // Gguf::parse

// Memory of the caller: used in place, or copied where it begins at an odd place.
absl::StatusOr<engine::MappedFile> take_memory(const engine_model_params& params,
                                               const engine::HostMemory& memory,
                                               ReleaseOnFailure* release) {
  const auto* data = static_cast<const uint8_t*>(params.data);
  if (reinterpret_cast<uintptr_t>(data) % kInPlaceAlignment == 0) {
    release->disarm();
    return engine::MappedFile::wrap({data, params.length}, params.release_data,
                                    params.release_user);
  }
  ENGINE_ASSIGN_OR_RETURN(
      engine::MappedFile copy,
      engine::MappedFile::copy(memory, params.length, [&](uint64_t at, std::span<uint8_t> out) {
        std::memcpy(out.data(), data + at, out.size());
        return absl::OkStatus();
      }));
  release->now();
  return copy;
}

absl::StatusOr<engine::MappedFile> map_paths(const engine_model_params& params) {
  std::vector<std::string> paths;
  if (params.path != nullptr) {
    ENGINE_ASSIGN_OR_RETURN(paths, engine::shard_paths(params.path));
    if (paths.size() == 1) return engine::MappedFile::open_path(params.path);
    return engine::MappedFile::open_set(paths);
  }
  for (uint64_t i = 0; i < params.n_paths; ++i) {
    if (params.paths[i] == nullptr) {
      return engine::error(Code::kArgument, absl::StrCat("paths[", i, "] is NULL"));
    }
    paths.emplace_back(params.paths[i]);
  }
  if (paths.empty()) return engine::error(Code::kArgument, "the list of paths is empty");
  if (paths.size() == 1) return engine::MappedFile::open_path(paths[0]);
  ENGINE_ASSIGN_OR_RETURN(paths, engine::sort_shards(std::move(paths)));
  return engine::MappedFile::open_set(paths);
}

absl::StatusOr<engine::MappedFile> map_source(const engine_model_params& params,
                                              const engine::HostMemory& memory,
                                              ReleaseOnFailure* release) {
  const int n_sources = (params.path != nullptr) + (params.fd >= 0) + (params.data != nullptr) +
                        (params.read != nullptr) + (params.paths != nullptr);
  if (n_sources != 1) {
    return engine::error(Code::kArgument,
                         "exactly one of path, fd, data, read and paths must be given");
  }
  if (params.path != nullptr || params.paths != nullptr) return map_paths(params);
  if (params.read != nullptr) {
    return engine::MappedFile::copy(
        memory, params.length, [&](uint64_t at, std::span<uint8_t> out) {
          if (params.read(params.read_user, at, out.data(), out.size()) == 0) {
            return absl::OkStatus();
          }
          return engine::error(Code::kFileOpen,
                               absl::StrCat("the read callback failed at byte ", at));
        });
  }
  if (params.fd >= 0) {
    return params.offset % kInPlaceAlignment == 0
               ? engine::MappedFile::open_descriptor(params.fd, params.offset, params.length)
               : engine::MappedFile::copy_descriptor(memory, params.fd, params.offset,
                                                     params.length);
  }
  return take_memory(params, memory, release);
}

absl::Status read_host(const engine_host* host, engine_model* model) {
  if (host == nullptr) return absl::OkStatus();
  ENGINE_RETURN_IF_ERROR(read_struct(host, sizeof(uint32_t), &model->host));
  const engine_host& h = model->host;
  if ((h.allocate == nullptr) != (h.release == nullptr)) {
    return engine::error(Code::kArgument, "allocate and release must be given together");
  }
  if (h.allocate != nullptr) model->memory = engine::HostMemory(h.user, h.allocate, h.release);
  if (h.log != nullptr) model->log = engine::LogSink(h.user, h.log);
  return absl::OkStatus();
}

void log_findings(const engine_model& model) {
  const engine::Model& m = *model.model;
  if (m.weights.n_unused_tensors > 0) {
    model.log.warning(absl::StrCat(m.weights.n_unused_tensors,
                                   " tensors of the file are not used by architecture ",
                                   m.config.architecture));
  }
  if (m.tokenizer != nullptr && m.tokenizer->pretokenizer_fallback()) {
    model.log.warning("the file's pre-tokenizer is unknown; `default` is used as asked");
  }
}

absl::Status open_model(const engine_model_params& params, ReleaseOnFailure* release,
                        engine_model** out) {
  if ((params.flags & ~kKnownFlags) != 0) {
    return engine::error(Code::kTooNew, "unknown flag bits are set");
  }
  auto model = std::make_unique<engine_model>();
  ENGINE_RETURN_IF_ERROR(read_host(params.host, model.get()));
  const auto progress = [&](uint64_t done) {
    if (model->host.progress) model->host.progress(model->host.user, ENGINE_PHASE_OPEN, done, 3);
  };
  progress(0);
  ENGINE_ASSIGN_OR_RETURN(model->file, map_source(params, model->memory, release));
  progress(1);
  engine::LoadOptions options;
  options.vocab_only = (params.flags & ENGINE_OPEN_VOCAB_ONLY) != 0;
  options.metadata_only = (params.flags & ENGINE_OPEN_METADATA_ONLY) != 0;
  options.allow_pretokenizer_fallback = (params.flags & ENGINE_OPEN_PRETOKENIZER_FALLBACK) != 0;
  options.readable_past_end = model->file.readable_past_end();
  options.before_tensors = [&file = model->file](uint64_t data_start) {
    // The norms lie all over a file of gigabytes: reading ahead at each would read most of it.
    file.advise(engine::Advice::kRandom, data_start, file.size_bytes() - data_start);
  };
  std::vector<engine::Gguf::Shard> shards;
  for (const std::span<const uint8_t>& shard : model->file.files()) {
    shards.push_back({absl::StrCat("shard ", shards.size() + 1), shard});
  }
  options.shards = shards;
  ENGINE_ASSIGN_OR_RETURN(model->model, engine::load_model(model->file.bytes(), options));
  progress(2);
  if (model->model->has_weights) {
    ENGINE_ASSIGN_OR_RETURN(model->program, engine::lower(*model->model));
  }
  log_findings(*model);
  progress(3);
  *out = model.release();
  return absl::OkStatus();
}

void fill_metadata(const engine::GgufValue& value, engine_metadata* entry) {
  entry->type = static_cast<int32_t>(value.type);
  entry->element_type = static_cast<int32_t>(
      value.type == engine::GgufType::kArray ? value.element_type : value.type);
  entry->key = value.key.data();
  entry->key_bytes = value.key.size();
  entry->count = value.count;
  entry->data = value.data;
  entry->data_bytes = value.data_bytes;
}

void fill_text_info(const engine::Model& m, engine_model_info* info) {
  info->bos_id = -1;
  info->eos_id = -1;
  if (m.tokenizer == nullptr) return;
  const engine::Tokenizer& t = *m.tokenizer;
  info->has_tokenizer = 1;
  info->n_tokens = t.vocab_size();
  if (info->n_vocab == 0) info->n_vocab = t.vocab_size();
  info->bos_id = t.bos().value_or(-1);
  info->eos_id = t.eos().value_or(-1);
  info->adds_bos = t.adds_bos() ? 1 : 0;
  info->pretokenizer_fallback = t.pretokenizer_fallback() ? 1 : 0;
  copy_text(t.model_name(), info->tokenizer, sizeof(info->tokenizer));
  copy_text(t.pre_name(), info->pretokenizer, sizeof(info->pretokenizer));
  if (m.chat.has_value()) {
    copy_text(engine::chat_family_name(m.chat_template), info->chat_family,
              sizeof(info->chat_family));
  }
}

void fill_weight_info(const engine_model& model, engine_model_info* info) {
  const engine::ModelConfig& c = model.model->config;
  info->n_vocab = static_cast<int32_t>(c.n_vocab);
  info->n_embd = static_cast<int32_t>(c.n_embd);
  info->n_layer = static_cast<int32_t>(c.n_layer);
  info->n_head = static_cast<int32_t>(c.n_head);
  info->head_dim_k = static_cast<int32_t>(c.head_dim_k);
  info->head_dim_v = static_cast<int32_t>(c.head_dim_v);
  info->n_ff = static_cast<int32_t>(c.layers[0].n_ff);
  info->n_ctx_train = static_cast<int32_t>(c.n_ctx_train);
  for (const engine::LayerConfig& layer : c.layers) {
    info->n_head_kv = std::max(info->n_head_kv, static_cast<int32_t>(layer.n_kv_heads));
    info->sliding_window = std::max(info->sliding_window, static_cast<int32_t>(layer.window));
  }
  info->head_is_tied = model.model->weights.head_is_tied ? 1 : 0;
  info->has_weights = 1;
  info->n_unused_tensors = model.model->weights.n_unused_tensors;
  info->bytes_per_token = model.program->bytes_per_token;
}

}  // namespace

extern "C" {

int32_t engine_model_open(const engine_model_params* params, engine_model** model,
                          engine_error* error) {
  return guard(error, [&]() -> absl::Status {
    if (model == nullptr) return engine::error(Code::kArgument, "the handle pointer is NULL");
    *model = nullptr;
    if (params == nullptr) return engine::error(Code::kArgument, "the parameters are NULL");
    engine_model_params p;
    // fd has no harmless zero, so the first release's fields up to it must be there.
    constexpr size_t kMinBytes = offsetof(engine_model_params, fd) + sizeof(p.fd);
    ENGINE_RETURN_IF_ERROR(read_struct(params, kMinBytes, &p));
    ReleaseOnFailure release(p);
    absl::Status status = open_model(p, &release, model);
    if (status.ok()) release.disarm();
    return status;
  });
}

void engine_model_close(engine_model* model) { delete model; }

int32_t engine_model_info_get(const engine_model* model, engine_model_info* info) {
  return guard(nullptr, [&]() -> absl::Status {
    if (model == nullptr) return engine::error(Code::kArgument, "the model is NULL");
    const engine::Model& m = *model->model;
    engine_model_info value = ENGINE_MODEL_INFO_INIT;
    if (m.has_weights) fill_weight_info(*model, &value);
    fill_text_info(m, &value);
    value.file_bytes = model->file.file_bytes();
    for (const engine::GgufTensor& t : m.file.tensors()) {
      value.n_params += t.dims[0] * t.dims[1] * t.dims[2] * t.dims[3];
    }
    const auto text = [&m](std::string_view key) {
      auto found = m.file.get_string(key);
      return found.ok() ? found->value_or("") : std::string_view();
    };
    copy_text(text("general.architecture"), value.architecture, sizeof(value.architecture));
    copy_text(text("general.name"), value.name, sizeof(value.name));
    return write_struct(value, info);
  });
}

uint64_t engine_model_metadata_count(const engine_model* model) {
  return model == nullptr ? 0 : model->model->file.values().size();
}

int32_t engine_model_metadata_at(const engine_model* model, uint64_t index,
                                 engine_metadata* entry) {
  return guard(nullptr, [&]() -> absl::Status {
    if (index >= engine_model_metadata_count(model)) {
      return engine::error(Code::kArgument, "the index is past the end");
    }
    engine_metadata value = ENGINE_METADATA_INIT;
    fill_metadata(model->model->file.values()[index], &value);
    return write_struct(value, entry);
  });
}

int32_t engine_model_metadata_find(const engine_model* model, const char* key,
                                   engine_metadata* entry) {
  return guard(nullptr, [&]() -> absl::Status {
    if (model == nullptr || key == nullptr)
      return engine::error(Code::kArgument, "a pointer is NULL");
    const engine::GgufValue* found = model->model->file.find(key);
    if (found == nullptr)
      return engine::error_at(Code::kArgument, key, engine::kNoOffset, "no such key");
    engine_metadata value = ENGINE_METADATA_INIT;
    fill_metadata(*found, &value);
    return write_struct(value, entry);
  });
}

int32_t engine_metadata_string(const engine_metadata* entry, uint64_t index, const char** text,
                               uint64_t* n_bytes) {
  return guard(nullptr, [&]() -> absl::Status {
    if (entry == nullptr || text == nullptr || n_bytes == nullptr) {
      return engine::error(Code::kArgument, "a pointer is NULL");
    }
    if (entry->type != ENGINE_VALUE_ARRAY || entry->element_type != ENGINE_VALUE_STRING ||
        index >= entry->count) {
      return engine::error(Code::kArgument,
                           "not an array of strings, or the index is past the end");
    }
    const auto* p = static_cast<const uint8_t*>(entry->data);
    const uint8_t* const end = p + entry->data_bytes;
    for (uint64_t i = 0;; ++i) {
      uint64_t length = 0;
      if (static_cast<uint64_t>(end - p) < sizeof(length)) break;
      std::memcpy(&length, p, sizeof(length));
      p += sizeof(length);
      if (static_cast<uint64_t>(end - p) < length) break;
      if (i == index) {
        *text = reinterpret_cast<const char*>(p);
        *n_bytes = length;
        return absl::OkStatus();
      }
      p += length;
    }
    return engine::error(Code::kArgument, "the entry was changed by the caller");
  });
}

uint64_t engine_model_tensor_count(const engine_model* model) {
  return model == nullptr ? 0 : model->model->file.tensors().size();
}

int32_t engine_model_tensor_at(const engine_model* model, uint64_t index,
                               engine_tensor_info* info) {
  return guard(nullptr, [&]() -> absl::Status {
    if (index >= engine_model_tensor_count(model)) {
      return engine::error(Code::kArgument, "the index is past the end");
    }
    const engine::Gguf& file = model->model->file;
    const engine::GgufTensor& tensor = file.tensors()[index];
    engine_tensor_info value = ENGINE_TENSOR_INFO_INIT;
    value.n_dims = tensor.n_dims;
    for (int i = 0; i < 4; ++i) value.dims[i] = tensor.dims[i];
    value.n_bytes = tensor.bytes;
    value.file_offset = file.data_start() + tensor.offset;
    value.name = tensor.name.data();
    value.name_bytes = tensor.name.size();
    value.type = tensor.type;
    const engine::FormatInfo* format = engine::format_info(tensor.type);
    if (format != nullptr) copy_text(format->name, value.format, sizeof(value.format));
    return write_struct(value, info);
  });
}

const char* engine_model_target_at(const engine_model* model, uint32_t index) {
  const auto targets = engine::cpu_targets();
  if (model == nullptr || index >= targets.size()) return nullptr;
  return engine::target_name(targets[index]).data();  // names are literals, NUL-terminated
}

}  // extern "C"
