// How a hook site is served: from memory that is there anyway, by taking fusions apart, or beside the step.
#ifndef ENGINE_LIB_PLAN_SITE_ROUTE_H_
#define ENGINE_LIB_PLAN_SITE_ROUTE_H_

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "lib/base/status.h"
#include "lib/contract/plan.h"
#include "lib/contract/site.h"
#include "lib/contract/step.h"

namespace engine {

struct SiteRoute {
  enum class Kind : uint8_t {
    kAbsent = 0,    // no layer has the site
    kMaterialised,  // the value has memory in the fused plan too
    kDefused,       // a hook takes fusions apart in its layer
    kCopyOut,       // computed beside the step (attention scores and pattern)
  };
  Kind kind = Kind::kAbsent;
  uint32_t fusions = 0;  // kDefused: that are taken apart, at one of their places at least
  std::string reason;    // kDefused
};
std::string_view site_route_name(
    SiteRoute::Kind kind);  // "absent", "materialised", "de-fused", "copy-out"

// What a hook on this site alone does in this layer (-1: a global site) under the key's mode and fusions.
absl::StatusOr<SiteRoute> site_route(const Program& program, Site site, int32_t layer,
                                     const PlanKey& key);

// Per site with every fusion allowed; of several layers the one that loses most.
absl::StatusOr<std::array<SiteRoute, kNumSites>> default_routes(const Program& program);

}  // namespace engine

#endif  // ENGINE_LIB_PLAN_SITE_ROUTE_H_
