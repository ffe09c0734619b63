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
  const engine_profile_entry profile = ENGINE_PROFILE_ENTRY_INIT;
  const engine_hook_site_info site = ENGINE_HOOK_SITE_INFO_INIT;
  const engine_hook_params hook = ENGINE_HOOK_PARAMS_INIT;
  const engine_hook_stats hook_stats = ENGINE_HOOK_STATS_INIT;
  CHECK(error.struct_size == sizeof(error) && error.offset == UINT64_MAX);
  CHECK(host.struct_size == sizeof(host) && host.parallel_for == 0 && host.progress == 0);
  CHECK(model.struct_size == sizeof(model) && model.fd == -1 && model.host == 0);
  CHECK(info.struct_size == sizeof(info) && info.bytes_per_token == 0 && info.chat_family[0] == 0);
  CHECK(metadata.struct_size == sizeof(metadata) && metadata.data_bytes == 0);
  CHECK(tensor.struct_size == sizeof(tensor) && tensor.format[0] == 0);
  CHECK(session.struct_size == sizeof(session) && session.target == 0);
  CHECK(session.mode == ENGINE_MODE_DEFAULT && session.kernels == 0 && session.sequence == 0);
  CHECK(stats.struct_size == sizeof(stats) && stats.target[0] == 0);
  CHECK(sampler.struct_size == sizeof(sampler) && sampler.penalty_last_n == 64);
  CHECK(sampler.top_p == 1.0f && sampler.repeat_penalty == 1.0f && sampler.temperature == 0.0f);
  CHECK(profile.struct_size == sizeof(profile) && profile.calls == 0 && profile.kernel[0] == 0);
  CHECK(site.struct_size == sizeof(site) && site.name[0] == 0 && site.route[0] == 0);
  CHECK(hook.struct_size == sizeof(hook) && hook.alpha == 1.0f && hook.low == 0.0f);
  CHECK(hook.capture_flags == 0 && hook.rank == 0 && hook.callback == 0 && hook.scope == 0);
  CHECK(hook_stats.struct_size == sizeof(hook_stats) && hook_stats.rows_dropped == 0);
  CHECK(engine_api_version() >> 16 == ENGINE_API_VERSION >> 16);
  return abi_done();
}
