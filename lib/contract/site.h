// Hook sites: the named values of a forward pass, the same on every architecture
// (plan-and-hooks.md section 5).
#ifndef ENGINE_LIB_CONTRACT_SITE_H_
#define ENGINE_LIB_CONTRACT_SITE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace engine {

// In the order in which they fire. The numbers are those of engine_hook_site_info in engine.h.
enum class Site : uint8_t {
  kEmbed = 0,
  kResidPre,
  kAttnNorm,
  kQ,
  kK,
  kV,
  kQNorm,
  kKNorm,
  kQRope,
  kKRope,
  kAttnScores,
  kAttnPattern,
  kAttnZ,
  kAttnOut,
  kResidMid,
  kFfnNorm,
  kFfnGate,
  kFfnUp,
  kFfnAct,
  kFfnOut,
  kResidPost,
  kFinalNorm,
  kLogitsRaw,
  kLogits,
};
inline constexpr int kNumSites = 24;

struct SiteInfo {
  Site site;
  const char* name;
  const char* alias;  // "" = none
  bool per_layer;     // false: preamble or final steps, where layer is -1
  bool writable;
};

// All sites, indexed by number.
std::span<const SiteInfo> site_table();
inline const SiteInfo& site_info(Site site) { return site_table()[static_cast<size_t>(site)]; }
// By name or alias; nullptr when there is none of that name.
const SiteInfo* find_site(std::string_view name);

// Where a site of one layer (or a global one) lies in a program.
struct SiteShape {
  int32_t slot =
      -1;  // slot that holds the value; of the attention sites: of the queries; -1 = absent
  int64_t width = 0;    // values per token; of the attention sites 0: heads * context
  int64_t n_heads = 0;  // equal parts that a head selector can choose; 0 = the site has no heads
  bool present() const { return slot >= 0; }
};
using SiteShapes = std::array<SiteShape, kNumSites>;

// Which sites have active hooks: bit = site number.
using SiteMask = uint32_t;
inline constexpr SiteMask site_bit(Site site) { return SiteMask{1} << static_cast<int>(site); }

}  // namespace engine

#endif  // ENGINE_LIB_CONTRACT_SITE_H_
