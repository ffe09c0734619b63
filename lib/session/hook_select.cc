// Selectors: checked once at registration, so that firing only compares numbers.
#include "lib/session/hook_select.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"

namespace engine {
namespace {

constexpr size_t kNamesListed = 3;
constexpr size_t kNameShown = 64;  // bytes of a caller's name that a message repeats

// Levenshtein: insertions, deletions and replacements that turn a into b.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

absl::Status bad(std::string_view message) { return error(Code::kArgument, message); }

bool has_site(const Program& program, Site site, int32_t layer) {
  return site_shape(program, site, layer).present();
}

absl::StatusOr<std::vector<int32_t>> asked_layers(const Program& program, const HookSpec& spec,
                                                  const SiteInfo& info) {
  const auto n_layers = static_cast<int32_t>(program.layers.size());
  if (!spec.layers.empty()) return spec.layers;
  std::vector<int32_t> layers;
  if (spec.layer_begin == 0 && spec.layer_end == 0) {
    for (int32_t l = 0; l < n_layers; ++l) {
      if (has_site(program, info.site, l)) layers.push_back(l);
    }
    if (layers.empty()) {
      return bad(absl::StrCat("this model has no value \"", info.name, "\" in any layer"));
    }
    return layers;
  }
  if (spec.layer_begin < 0 || spec.layer_end > n_layers || spec.layer_begin >= spec.layer_end) {
    return bad(absl::StrCat("layers ", spec.layer_begin, " <= l < ", spec.layer_end,
                            " do not fit: the model has layers 0 .. ", n_layers - 1));
  }
  for (int32_t l = spec.layer_begin; l < spec.layer_end; ++l) layers.push_back(l);
  return layers;
}

}  // namespace

const SiteShape& site_shape(const Program& program, Site site, int32_t layer) {
  const SiteShapes& shapes =
      layer < 0 ? program.global_sites : program.layer_sites[static_cast<size_t>(layer)];
  return shapes[static_cast<size_t>(site)];
}

int64_t site_width(const SiteShape& shape, int64_t n_ctx) {
  return shape.width > 0 ? shape.width : shape.n_heads * n_ctx;
}

std::string near_site_names(std::string_view name) {
  std::vector<std::pair<size_t, std::string_view>> names;
  name = name.substr(0, kNameShown);
  for (const SiteInfo& info : site_table()) {
    for (const std::string_view known :
         {std::string_view(info.name), std::string_view(info.alias)}) {
      if (!known.empty()) names.emplace_back(edit_distance(name, known), known);
    }
  }
  std::stable_sort(names.begin(), names.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::string text;
  for (size_t i = 0; i < kNamesListed; ++i) {
    absl::StrAppend(&text, i == 0 ? "" : ", ", names[i].second);
  }
  return text;
}

absl::StatusOr<SiteSelection> resolve_sites(const Program& program, const HookSpec& spec) {
  const SiteInfo* info = find_site(spec.site);
  if (info == nullptr) {
    return bad(absl::StrCat("there is no hook site \"", spec.site.substr(0, kNameShown),
                            "\"; near names: ", near_site_names(spec.site)));
  }
  SiteSelection selection;
  selection.site = info->site;
  if (!info->per_layer) {
    const bool only_global = std::all_of(spec.layers.begin(), spec.layers.end(),
                                         [](int32_t layer) { return layer == -1; });
    if (!only_global || spec.layer_begin != 0 || spec.layer_end != 0) {
      return bad(absl::StrCat("\"", info->name, "\" lies outside the layers: it takes no layers"));
    }
    if (!has_site(program, info->site, -1)) {
      return bad(absl::StrCat("this model has no value \"", info->name, "\""));
    }
    selection.layers = {-1};
    return selection;
  }
  ENGINE_ASSIGN_OR_RETURN(selection.layers, asked_layers(program, spec, *info));
  for (const int32_t layer : selection.layers) {
    if (layer < 0 || layer >= static_cast<int32_t>(program.layers.size())) {
      return bad(absl::StrCat("there is no layer ", layer, ": the model has layers 0 .. ",
                              program.layers.size() - 1));
    }
    if (!has_site(program, info->site, layer)) {
      return bad(absl::StrCat("layer ", layer, " has no value \"", info->name, "\""));
    }
  }
  std::sort(selection.layers.begin(), selection.layers.end());
  selection.layers.erase(std::unique(selection.layers.begin(), selection.layers.end()),
                         selection.layers.end());
  return selection;
}

absl::StatusOr<std::vector<RowPart>> resolve_heads(const HookSpec& spec, Site site,
                                                   const SiteShape& shape, int64_t width) {
  std::vector<RowPart> parts;
  if (spec.heads.empty()) return parts;
  if (shape.n_heads == 0) {
    return bad(absl::StrCat("\"", site_info(site).name, "\" has no heads to choose"));
  }
  std::vector<int32_t> heads = spec.heads;
  std::sort(heads.begin(), heads.end());
  const int64_t part = width / shape.n_heads;
  for (const int32_t head : heads) {
    if (head < 0 || head >= shape.n_heads) {
      return bad(absl::StrCat("there is no head ", head, ": \"", site_info(site).name,
                              "\" has heads 0 .. ", shape.n_heads - 1));
    }
    const RowPart next{head * part, (head + 1) * part};
    if (!parts.empty() && parts.back().end >= next.begin) {
      parts.back().end = next.end;
    } else {
      parts.push_back(next);
    }
  }
  return parts;
}

absl::Status check_sequences(const HookSpec& spec, int32_t sequence) {
  const auto& all = spec.sequences;
  if (all.empty() || std::find(all.begin(), all.end(), sequence) != all.end()) {
    return absl::OkStatus();
  }
  return bad(absl::StrCat("the sequences do not contain ", sequence, ", that of the session"));
}

absl::Status select_sites(const Program& program, const HookSpec& spec,
                          std::vector<SiteMask>* layer_masks, SiteMask* global) {
  ENGINE_ASSIGN_OR_RETURN(const SiteSelection selection, resolve_sites(program, spec));
  layer_masks->resize(program.layers.size(), 0);
  for (const int32_t layer : selection.layers) {
    SiteMask& mask = layer < 0 ? *global : (*layer_masks)[static_cast<size_t>(layer)];
    mask |= site_bit(selection.site);
  }
  return absl::OkStatus();
}

absl::StatusOr<PositionSelector> PositionSelector::create(const HookSpec& spec, int64_t n_ctx) {
  const bool has_list = spec.select == PositionSelect::kList;
  const bool has_range =
      spec.select == PositionSelect::kRange || spec.select == PositionSelect::kGenerated;
  if (spec.select < PositionSelect::kAll || spec.select > PositionSelect::kEvery) {
    return bad("position_select is not an ENGINE_POSITIONS_ value");
  }
  if (has_list == spec.positions.empty()) {
    return bad(has_list ? "the list of positions is empty"
                        : "positions are listed, but position_select is not POSITIONS_LIST");
  }
  if (!has_range && (spec.position_begin != 0 || spec.position_end != 0)) {
    return bad("a position range is given, but position_select takes none");
  }
  if (spec.select == PositionSelect::kEvery ? spec.position_step <= 0 : spec.position_step != 0) {
    return bad(spec.position_step == 0 || spec.select == PositionSelect::kEvery
                   ? "position_step must be positive"
                   : "position_step is given, but position_select is not POSITIONS_EVERY");
  }
  for (const int64_t p : spec.positions) {
    if (p < 0 || p >= n_ctx) {
      return bad(absl::StrCat("position ", p, " is outside 0 .. ", n_ctx - 1));
    }
  }
  PositionSelector out;
  out.select_ = spec.select;
  out.list_ = spec.positions;
  std::sort(out.list_.begin(), out.list_.end());
  out.begin_ = spec.position_begin;
  out.end_ = spec.position_end;
  out.step_ = spec.position_step;
  if (spec.select == PositionSelect::kGenerated && out.begin_ == 0 && out.end_ == 0) {
    out.end_ = std::numeric_limits<int64_t>::max();
  }
  if (has_range && (out.begin_ < 0 || out.begin_ >= out.end_ || out.begin_ >= n_ctx)) {
    return bad(absl::StrCat("the range ", out.begin_, " <= p < ", out.end_,
                            " holds none of the positions 0 .. ", n_ctx - 1));
  }
  return out;
}

bool PositionSelector::matches(int64_t position, const CallSpan& call) const {
  switch (select_) {
    case PositionSelect::kLastOfPrompt:
      return call.kind == TokenKind::kPrompt && position == call.first_position + call.n_tokens - 1;
    case PositionSelect::kGenerated: {
      const int64_t k = position - call.prompt_end;
      return call.generated() && begin_ <= k && k < end_;
    }
    default: return can_match(position);
  }
}

bool PositionSelector::can_match(int64_t position) const {
  switch (select_) {
    case PositionSelect::kList: return std::binary_search(list_.begin(), list_.end(), position);
    case PositionSelect::kRange: return begin_ <= position && position < end_;
    case PositionSelect::kEvery: return position % step_ == 0;
    case PositionSelect::kAll:
    case PositionSelect::kLastOfPrompt:
    case PositionSelect::kGenerated: return true;
  }
  return false;
}

}  // namespace engine
