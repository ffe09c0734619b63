// Temporary.
#ifndef ENGINE_LIB_BASE_STATE_CODES_H_
#define ENGINE_LIB_BASE_STATE_CODES_H_
#include "lib/base/status.h"
namespace engine {
inline constexpr Code kCodeCorrupt = static_cast<Code>(23);
inline constexpr Code kCodeModelMismatch = static_cast<Code>(35);
inline constexpr Code kCodeKvMismatch = static_cast<Code>(75);
}  // namespace engine
#endif  // ENGINE_LIB_BASE_STATE_CODES_H_
