/* The header is C99 and self-contained: it comes first, and every initialiser is used. */
#include "abi_check.h"
#include "engine.h"

int main(void) {
  const engine_error error = ENGINE_ERROR_INIT;
  const engine_host host = ENGINE_HOST_INIT;
  const engine_model_params model = ENGINE_MODEL_PARAMS_INIT;
  const engine_model_info info = ENGINE_MODEL_INFO_INIT;
  const engine_metadata metadata = ENGINE_METADATA_INIT;
  const engine_tensor_info tensor = ENGINE_TENSOR_INFO_INIT;
  const engine_session_params session = ENGINE_SESSION_PARAMS_INIT;
  const engine_session_stats stats = ENGINE_SESSION_STATS_INIT;
  const engine_sampler_params sampler = ENGINE_SAMPLER_PARAMS_INIT;
  CHECK(error.struct_size == sizeof(error) && error.offset == UINT64_MAX);
  CHECK(host.struct_size == sizeof(host) && host.parallel_for == 0 && host.progress == 0);
  CHECK(model.struct_size == sizeof(model) && model.fd == -1 && model.host == 0);
  CHECK(info.struct_size == sizeof(info) && info.bytes_per_token == 0 && info.chat_family[0] == 0);
  CHECK(metadata.struct_size == sizeof(metadata) && metadata.data_bytes == 0);
  CHECK(tensor.struct_size == sizeof(tensor) && tensor.format[0] == 0);
  CHECK(session.struct_size == sizeof(session) && session.target == 0);
  CHECK(stats.struct_size == sizeof(stats) && stats.target[0] == 0);
  CHECK(sampler.struct_size == sizeof(sampler) && sampler.penalty_last_n == 64);
  CHECK(sampler.top_p == 1.0f && sampler.repeat_penalty == 1.0f && sampler.temperature == 0.0f);
  CHECK(engine_api_version() >> 16 == ENGINE_API_VERSION >> 16);
  return abi_done();
}
