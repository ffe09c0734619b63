// Reads the rotation rules of a model file.
#ifndef ENGINE_LIB_MODEL_ROPE_READ_H_
#define ENGINE_LIB_MODEL_ROPE_READ_H_

#include "lib/base/status.h"
#include "lib/model/arch.h"
#include "lib/model/config.h"
#include "lib/model/key_reader.h"

namespace engine {

// Fills config->ropes: rule 0 of all layers or of the global ones, rule 1 of the sliding layers where the
// family has one of its own. Needs config->n_ctx_train. Errors (kModelKey) name the key.
absl::Status read_ropes(const KeyReader& keys, const ArchSpec& arch, ModelConfig* config);

}  // namespace engine

#endif  // ENGINE_LIB_MODEL_ROPE_READ_H_
