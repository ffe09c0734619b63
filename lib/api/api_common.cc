// Status codes, names and errors at the edge.
#include "lib/api/api_common.h"

#include "lib/plan/plan_facts.h"

namespace engine::api {

// One list, two spellings: the numbers of engine.h and of base/status.h must never part.
#define ENGINE_SAME_CODE(c_name, cc_name) \
  static_assert(static_cast<int32_t>(c_name) == static_cast<int32_t>(Code::cc_name))
ENGINE_SAME_CODE(ENGINE_OK, kOk);
ENGINE_SAME_CODE(ENGINE_ARGUMENT, kArgument);
ENGINE_SAME_CODE(ENGINE_TOO_NEW, kTooNew);
ENGINE_SAME_CODE(ENGINE_BUFFER_TOO_SMALL, kBufferTooSmall);
ENGINE_SAME_CODE(ENGINE_FILE_OPEN, kFileOpen);
ENGINE_SAME_CODE(ENGINE_FILE_FORMAT, kFileFormat);
ENGINE_SAME_CODE(ENGINE_FILE_UNSUPPORTED, kFileUnsupported);
ENGINE_SAME_CODE(ENGINE_CORRUPT, kCorrupt);
ENGINE_SAME_CODE(ENGINE_MODEL_ARCHITECTURE, kModelArchitecture);
ENGINE_SAME_CODE(ENGINE_MODEL_KEY, kModelKey);
ENGINE_SAME_CODE(ENGINE_MODEL_TENSOR, kModelTensor);
ENGINE_SAME_CODE(ENGINE_TOKENIZER, kTokenizer);
ENGINE_SAME_CODE(ENGINE_CHAT_TEMPLATE, kChatTemplate);
ENGINE_SAME_CODE(ENGINE_MODEL_MISMATCH, kModelMismatch);
ENGINE_SAME_CODE(ENGINE_PLAN, kPlan);
ENGINE_SAME_CODE(ENGINE_MEMORY, kMemory);
ENGINE_SAME_CODE(ENGINE_DEVICE, kDevice);
ENGINE_SAME_CODE(ENGINE_DEVICE_LOST, kDeviceLost);
ENGINE_SAME_CODE(ENGINE_STATE, kState);
ENGINE_SAME_CODE(ENGINE_CONTEXT_FULL, kContextFull);
ENGINE_SAME_CODE(ENGINE_NONFINITE, kNonFinite);
ENGINE_SAME_CODE(ENGINE_CANCELLED, kCancelled);
ENGINE_SAME_CODE(ENGINE_CANNOT_REWIND, kCannotRewind);
ENGINE_SAME_CODE(ENGINE_KV_MISMATCH, kKvMismatch);
ENGINE_SAME_CODE(ENGINE_HOOK_FAILED, kHookFailed);
ENGINE_SAME_CODE(ENGINE_INTERNAL, kInternal);
#undef ENGINE_SAME_CODE

void copy_text(std::string_view text, char* to, size_t capacity) {
  size_t n = std::min(text.size(), capacity - 1);
  if (n < text.size()) {
    while (n > 0 && (static_cast<unsigned char>(text[n]) & 0xC0) == 0x80) --n;
  }
  std::memcpy(to, text.data(), n);
  std::memset(to + n, 0, capacity - n);
}

int32_t report(const absl::Status& status, engine_error* error) {
  const Code code = code_of(status);
  if (error != nullptr && error->struct_size >= sizeof(uint32_t)) {
    engine_error full = ENGINE_ERROR_INIT;
    full.code = static_cast<int32_t>(code);
    if (!status.ok()) {
      const ErrorWhere where = where_of(status);
      full.offset = where.offset;
      copy_text(where.name, full.name, sizeof(full.name));
      copy_text(status.message(), full.message, sizeof(full.message));
    }
    (void)write_struct(full, error);
  }
  return static_cast<int32_t>(code);
}

const Hash128& fingerprint_of(const engine_model& model) {
  std::call_once(model.fingerprint_once,
                 [&] { model.fingerprint = model_fingerprint(*model.model, model.file.bytes()); });
  return model.fingerprint;
}

const std::string& vocabulary_hash_of(const engine_model& model) {
  std::call_once(model.vocabulary_once, [&] { model.vocabulary = vocabulary_hash(*model.model); });
  return model.vocabulary;
}

absl::StatusOr<const Tokenizer*> tokenizer_of(const engine_model* model) {
  if (model == nullptr) return error(Code::kArgument, "the model is NULL");
  if (model->model->tokenizer == nullptr) {
    return error(Code::kState, "the model was opened without a vocabulary, or its file has none");
  }
  return model->model->tokenizer.get();
}

}  // namespace engine::api

extern "C" {

uint32_t engine_api_version(void) { return ENGINE_API_VERSION; }

const char* engine_version_string(void) { return "engine 0.1.0"; }

const char* engine_status_name(int32_t status) {
  switch (status) {
    case ENGINE_OK: return "OK";
    case ENGINE_ARGUMENT: return "ARGUMENT";
    case ENGINE_TOO_NEW: return "TOO_NEW";
    case ENGINE_BUFFER_TOO_SMALL: return "BUFFER_TOO_SMALL";
    case ENGINE_FILE_OPEN: return "FILE_OPEN";
    case ENGINE_FILE_FORMAT: return "FILE_FORMAT";
    case ENGINE_FILE_UNSUPPORTED: return "FILE_UNSUPPORTED";
    case ENGINE_CORRUPT: return "CORRUPT";
    case ENGINE_MODEL_ARCHITECTURE: return "MODEL_ARCHITECTURE";
    case ENGINE_MODEL_KEY: return "MODEL_KEY";
    case ENGINE_MODEL_TENSOR: return "MODEL_TENSOR";
    case ENGINE_TOKENIZER: return "TOKENIZER";
    case ENGINE_CHAT_TEMPLATE: return "CHAT_TEMPLATE";
    case ENGINE_MODEL_MISMATCH: return "MODEL_MISMATCH";
    case ENGINE_PLAN: return "PLAN";
    case ENGINE_MEMORY: return "MEMORY";
    case ENGINE_DEVICE: return "DEVICE";
    case ENGINE_DEVICE_LOST: return "DEVICE_LOST";
    case ENGINE_STATE: return "STATE";
    case ENGINE_CONTEXT_FULL: return "CONTEXT_FULL";
    case ENGINE_NONFINITE: return "NONFINITE";
    case ENGINE_CANCELLED: return "CANCELLED";
    case ENGINE_CANNOT_REWIND: return "CANNOT_REWIND";
    case ENGINE_KV_MISMATCH: return "KV_MISMATCH";
    case ENGINE_HOOK_FAILED: return "HOOK_FAILED";
    case ENGINE_INTERNAL: return "INTERNAL";
    default: return "UNKNOWN";
  }
}

}  // extern "C"
