// What a hook selects: a site in some layers, heads of its rows, tokens of a call, the session's sequence.
#ifndef ENGINE_LIB_SESSION_HOOK_SELECT_H_
#define ENGINE_LIB_SESSION_HOOK_SELECT_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/status.h"
#include "lib/contract/step.h"
#include "lib/session/hooks.h"

namespace engine {

// Elements begin .. end - 1 of a row.
struct RowPart {
  int64_t begin = 0;
  int64_t end = 0;
};

// A site with the layers of it that a hook fires in; every one of them has the site.
struct SiteSelection {
  Site site = Site::kEmbed;
  std::vector<int32_t> layers;  // ascending, no duplicates; {-1} for a site outside the layers
};

// The shape of a site in a layer (-1: outside the layers).
const SiteShape& site_shape(const Program& program, Site site, int32_t layer);
// Values per row: of the attention sites heads * n_ctx.
int64_t site_width(const SiteShape& shape, int64_t n_ctx);
inline bool is_attention_site(Site site) {
  return site == Site::kAttnScores || site == Site::kAttnPattern;
}

// The three names or aliases with the least edit distance, nearest first, joined by ", ".
std::string near_site_names(std::string_view name);

// kArgument: unknown site, a layer that does not exist or has no such site, layers for a global site.
absl::StatusOr<SiteSelection> resolve_sites(const Program& program, const HookSpec& spec);

// The elements that a head selector chooses, ascending, neighbours joined; empty without a selector.
// kArgument: a site without heads, a head out of range.
absl::StatusOr<std::vector<RowPart>> resolve_heads(const HookSpec& spec, Site site,
                                                   const SiteShape& shape, int64_t width);

// kArgument unless the list is empty or has the session's sequence.
absl::Status check_sequences(const HookSpec& spec, int32_t sequence);

// A decode call, as far as selectors can see it.
struct CallSpan {
  TokenKind kind = TokenKind::kPrompt;  // never kAuto
  int64_t first_position = 0;
  int64_t n_tokens = 0;
  int64_t prompt_end = 0;  // position of generated token 0
  bool generated() const { return kind == TokenKind::kGenerated; }
};

class PositionSelector {
 public:
  PositionSelector() = default;  // all
  // kArgument: what can match no position of 0 .. n_ctx - 1, and arguments of another kind of selector.
  static absl::StatusOr<PositionSelector> create(const HookSpec& spec, int64_t n_ctx);

  bool matches(int64_t position, const CallSpan& call) const;
  // Whether some call could make this position match.
  bool can_match(int64_t position) const;
  bool is_all() const { return select_ == PositionSelect::kAll; }

 private:
  PositionSelect select_ = PositionSelect::kAll;
  std::vector<int64_t> list_;  // ascending
  int64_t begin_ = 0, end_ = 0, step_ = 0;
};

}  // namespace engine

#endif  // ENGINE_LIB_SESSION_HOOK_SELECT_H_
