// The section is fused once without the hook and once with it, and the fusions are counted.
#include "lib/plan/site_route.h"

#include <algorithm>
#include <bit>

#include "absl/strings/str_cat.h"
#include "lib/plan/fuse.h"

namespace engine {
namespace {

PlanKey without_hooks(const PlanKey& key) {
  PlanKey bare;
  bare.mode = key.mode;
  bare.fusions = key.fusions;
  return bare;
}

absl::StatusOr<PlanLayer> fused(const Program& program, int32_t layer, const PlanKey& key) {
  return layer < 0 ? fuse_final(program, key) : fuse_layer(program, layer, key);
}

int64_t count_of(const PlanLayer& layer, uint32_t bit) {
  return std::count_if(layer.steps.begin(), layer.steps.end(),
                       [&](const PlanStep& step) { return (step.fusions & bit) != 0; });
}

}  // namespace

std::string_view site_route_name(SiteRoute::Kind kind) {
  switch (kind) {
    case SiteRoute::Kind::kAbsent: return "absent";
    case SiteRoute::Kind::kMaterialised: return "materialised";
    case SiteRoute::Kind::kDefused: return "de-fused";
    case SiteRoute::Kind::kCopyOut: return "copy-out";
  }
  return "unknown";
}

absl::StatusOr<SiteRoute> site_route(const Program& program, Site site, int32_t layer,
                                     const PlanKey& key) {
  SiteRoute route;
  const SiteShapes& shapes =
      layer < 0 ? program.global_sites : program.layer_sites[static_cast<size_t>(layer)];
  if (!shapes[static_cast<size_t>(site)].present()) return route;
  if (site == Site::kAttnScores || site == Site::kAttnPattern) {
    route.kind = SiteRoute::Kind::kCopyOut;
    return route;
  }
  PlanKey bare = without_hooks(key);
  ENGINE_ASSIGN_OR_RETURN(const PlanLayer without, fused(program, layer, bare));
  if (layer < 0) {
    bare.global_sites = site_bit(site);
  } else {
    bare.layer_sites.assign(program.layers.size(), 0);
    bare.layer_sites[static_cast<size_t>(layer)] = site_bit(site);
  }
  ENGINE_ASSIGN_OR_RETURN(const PlanLayer with, fused(program, layer, bare));
  for (int f = 0; f < kNumFusions; ++f) {
    const uint32_t bit = 1u << f;
    if (count_of(with, bit) >= count_of(without, bit)) continue;
    route.fusions |= bit;
    absl::StrAppend(&route.reason, route.reason.empty() ? "" : "; ", "F", f + 1, ": ",
                    with.why_off[static_cast<size_t>(f)]);
  }
  route.kind = route.fusions != 0 ? SiteRoute::Kind::kDefused : SiteRoute::Kind::kMaterialised;
  return route;
}

absl::StatusOr<std::array<SiteRoute, kNumSites>> default_routes(const Program& program) {
  std::array<SiteRoute, kNumSites> routes;
  for (const SiteInfo& info : site_table()) {
    SiteRoute& best = routes[static_cast<size_t>(info.site)];
    const auto n_layers = static_cast<int32_t>(program.layers.size());
    for (int32_t l = info.per_layer ? 0 : -1; l < (info.per_layer ? n_layers : 0); ++l) {
      ENGINE_ASSIGN_OR_RETURN(SiteRoute route, site_route(program, info.site, l, {}));
      const bool is_first = best.kind == SiteRoute::Kind::kAbsent;
      if (is_first || std::popcount(route.fusions) > std::popcount(best.fusions)) {
        best = std::move(route);
      }
    }
  }
  return routes;
}

}  // namespace engine
