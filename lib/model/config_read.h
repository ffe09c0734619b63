// Reads and validates the hyper-parameters of a model file.
#ifndef ENGINE_LIB_MODEL_CONFIG_READ_H_
#define ENGINE_LIB_MODEL_CONFIG_READ_H_

#include "lib/base/status.h"
#include "lib/file/gguf.h"
#include "lib/model/arch.h"
#include "lib/model/config.h"

namespace engine {

// The family that general.architecture names; kModelArchitecture listing the known ones otherwise.
absl::StatusOr<const ArchSpec*> read_architecture(const Gguf& file);

// Every number is range-checked, so that later products cannot overflow. Errors name the key.
// `n_vocab` is left 0: the embedding's rows decide it.
absl::StatusOr<ModelConfig> read_config(const Gguf& file, const ArchSpec& arch);

}  // namespace engine

#endif  // ENGINE_LIB_MODEL_CONFIG_READ_H_
