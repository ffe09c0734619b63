// engine.h, sampling.
#include <utility>
#include <vector>

#include "lib/api/api_common.h"
#include "lib/api/sampler_handle.h"

using engine::Code;
using engine::api::guard;

extern "C" {

int32_t engine_sampler_create(const engine_sampler_params* params, engine_sampler** sampler,
                              engine_error* error) {
  return guard(error, [&]() -> absl::Status {
    if (sampler == nullptr) return engine::error(Code::kArgument, "the handle pointer is NULL");
    *sampler = nullptr;
    engine_sampler_params p = ENGINE_SAMPLER_PARAMS_INIT;
    if (params != nullptr) {
      ENGINE_RETURN_IF_ERROR(engine::api::read_struct(params, sizeof(engine_sampler_params), &p));
    }
    engine::SamplerParams options;
    options.temperature = p.temperature;
    options.top_k = p.top_k;
    options.top_p = p.top_p;
    options.min_p = p.min_p;
    options.repeat_penalty = p.repeat_penalty;
    options.frequency_penalty = p.frequency_penalty;
    options.presence_penalty = p.presence_penalty;
    options.penalty_last_n = p.penalty_last_n;
    options.seed = p.seed;
    if (p.has_seed == 0) {
      ENGINE_ASSIGN_OR_RETURN(options.seed, engine::random_seed());
    }
    ENGINE_ASSIGN_OR_RETURN(engine::Sampler made, engine::Sampler::create(options));
    *sampler = std::make_unique<engine_sampler>(engine_sampler{std::move(made)}).release();
    return absl::OkStatus();
  });
}

void engine_sampler_destroy(engine_sampler* sampler) { delete sampler; }

uint64_t engine_sampler_seed(const engine_sampler* sampler) {
  return sampler == nullptr ? 0 : sampler->sampler.seed();
}

int32_t engine_sampler_accept(engine_sampler* sampler, int32_t id) {
  return guard(nullptr, [&]() -> absl::Status {
    if (sampler == nullptr) return engine::error(Code::kArgument, "the sampler is NULL");
    if (id < 0) return engine::error(Code::kArgument, "the id is negative");
    sampler->sampler.accept(id);
    return absl::OkStatus();
  });
}

int32_t engine_sampler_sample(engine_sampler* sampler, const float* logits, uint64_t n_vocab,
                              int32_t* id, engine_error* error) {
  return guard(error, [&]() -> absl::Status {
    if (sampler == nullptr || logits == nullptr || id == nullptr) {
      return engine::error(Code::kArgument, "a pointer is NULL");
    }
    if (n_vocab == 0 || n_vocab > static_cast<uint64_t>(INT32_MAX)) {
      return engine::error(Code::kArgument, "n_vocab is out of range");
    }
    ENGINE_ASSIGN_OR_RETURN(*id, sampler->sampler.sample({logits, n_vocab}));
    return absl::OkStatus();
  });
}

int32_t engine_sampler_save(const engine_sampler* sampler, void* data, uint64_t capacity,
                            uint64_t* n_bytes, engine_error* error) {
  return guard(error, [&]() -> absl::Status {
    if (sampler == nullptr) return engine::error(Code::kArgument, "the sampler is NULL");
    const std::vector<uint8_t> bytes = sampler->sampler.save();
    return engine::api::copy_out(bytes.data(), bytes.size(), static_cast<uint8_t*>(data), capacity,
                                 n_bytes);
  });
}

int32_t engine_sampler_restore(engine_sampler* sampler, const void* data, uint64_t n_bytes,
                               engine_error* error) {
  return guard(error, [&]() -> absl::Status {
    if (sampler == nullptr || data == nullptr) {
      return engine::error(Code::kArgument, "a pointer is NULL");
    }
    ENGINE_ASSIGN_OR_RETURN(engine::Sampler restored,
                            engine::Sampler::restore({static_cast<const uint8_t*>(data), n_bytes}));
    sampler->sampler = std::move(restored);
    return absl::OkStatus();
  });
}

}  // extern "C"
