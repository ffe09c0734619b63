// What an engine_sampler is.
#ifndef ENGINE_LIB_API_SAMPLER_HANDLE_H_
#define ENGINE_LIB_API_SAMPLER_HANDLE_H_

#include "engine.h"
#include "lib/sample/sampler.h"

struct engine_sampler {
  engine::Sampler sampler;
};

#endif  // ENGINE_LIB_API_SAMPLER_HANDLE_H_
