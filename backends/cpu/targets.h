// CPU targets that are compiled in and that this machine runs.
#ifndef ENGINE_BACKENDS_CPU_TARGETS_H_
#define ENGINE_BACKENDS_CPU_TARGETS_H_

#include "lib/contract/kernel.h"

namespace engine {

// True when kernels of the target are compiled in and this machine runs them; always for kScalar.
bool cpu_runs(Target target);

}  // namespace engine

#endif  // ENGINE_BACKENDS_CPU_TARGETS_H_
