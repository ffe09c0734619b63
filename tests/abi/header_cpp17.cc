// The header is C++17: it comes first, names have C linkage, every initialiser is used.
#include "abi_check.h"
#include "engine.h"

namespace {

// A function of this type can only be the C one.
using OpenFunction = int32_t (*)(const engine_model_params*, engine_model**, engine_error*);
constexpr OpenFunction kOpen = &engine_model_open;

}  // namespace

int main() {
  engine_error error = ENGINE_ERROR_INIT;
  engine_host host = ENGINE_HOST_INIT;
  engine_model_params params = ENGINE_MODEL_PARAMS_INIT;
  engine_model_info info = ENGINE_MODEL_INFO_INIT;
  engine_metadata metadata = ENGINE_METADATA_INIT;
  engine_tensor_info tensor = ENGINE_TENSOR_INFO_INIT;
  engine_session_params session = ENGINE_SESSION_PARAMS_INIT;
  engine_session_stats stats = ENGINE_SESSION_STATS_INIT;
  engine_sampler_params sampler = ENGINE_SAMPLER_PARAMS_INIT;
  engine_profile_entry profile = ENGINE_PROFILE_ENTRY_INIT;
  engine_hook_site_info site = ENGINE_HOOK_SITE_INFO_INIT;
  engine_hook_params hook = ENGINE_HOOK_PARAMS_INIT;
  engine_hook_stats hook_stats = ENGINE_HOOK_STATS_INIT;
  CHECK(host.struct_size == sizeof(host));
  CHECK(info.struct_size == sizeof(info));
  CHECK(metadata.struct_size == sizeof(metadata));
  CHECK(tensor.struct_size == sizeof(tensor));
  CHECK(session.struct_size == sizeof(session));
  CHECK(stats.struct_size == sizeof(stats));
  CHECK(sampler.struct_size == sizeof(sampler));
  CHECK(profile.struct_size == sizeof(profile));
  CHECK(site.struct_size == sizeof(site));
  CHECK(hook.struct_size == sizeof(hook) && hook.alpha == 1.0f && hook.scope == 0);
  CHECK(hook_stats.struct_size == sizeof(hook_stats));
  engine_model* model = nullptr;
  CHECK_STATUS(kOpen(&params, &model, &error), ENGINE_ARGUMENT);
  CHECK(model == nullptr && error.code == ENGINE_ARGUMENT);
  return abi_done();
}
