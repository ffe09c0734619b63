// Builds the reversed automaton breadth first and walks text with it.
#include "lib/text/special_split.h"

#include <algorithm>

namespace engine {

namespace {

uint64_t edge(uint32_t state, uint8_t byte) { return uint64_t{state} * 256 + byte; }

}  // namespace

SpecialSplit::SpecialSplit(const std::vector<Pattern>& patterns) {
  struct Edge {
    uint32_t from;
    uint8_t byte;
    uint32_t to;
  };
  std::vector<Edge> edges;
  std::vector<uint32_t> depths{0};
  states_.emplace_back();
  for (const Pattern& pattern : patterns) {
    uint32_t state = 0;
    for (size_t i = pattern.text.size(); i-- > 0;) {
      const uint8_t byte = static_cast<uint8_t>(pattern.text[i]);
      uint32_t* to = state == 0 ? &root_[byte] : &next_[edge(state, byte)];
      if (*to == 0) {
        *to = static_cast<uint32_t>(states_.size());
        edges.push_back({state, byte, *to});
        states_.emplace_back();
        depths.push_back(depths[state] + 1);
      }
      state = *to;
    }
    for (size_t level = static_cast<size_t>(pattern.level); level < kLevels; ++level) {
      Match& own = states_[state].longest[level];
      if (own.id < 0) own = {pattern.id, static_cast<uint32_t>(pattern.text.size())};
      any_[level] = true;
    }
  }
  std::stable_sort(edges.begin(), edges.end(),
                   [&](const Edge& a, const Edge& b) { return depths[a.to] < depths[b.to]; });
  for (const Edge& e : edges) {
    if (e.from != 0) states_[e.to].fail = step(states_[e.from].fail, e.byte);
    // A state's own token is longer than any that its failure state knows.
    for (size_t level = 0; level < kLevels; ++level) {
      Match& own = states_[e.to].longest[level];
      if (own.id < 0) own = states_[states_[e.to].fail].longest[level];
    }
  }
}

uint32_t SpecialSplit::step(uint32_t state, uint8_t byte) const {
  while (state != 0) {
    const auto found = next_.find(edge(state, byte));
    if (found != next_.end()) return found->second;
    state = states_[state].fail;
  }
  return root_[byte];
}

std::vector<SpecialSplit::Hit> SpecialSplit::find(std::string_view text,
                                                  SpecialPolicy level_policy) const {
  const size_t level = static_cast<size_t>(level_policy);
  std::vector<Hit> hits;
  if (level >= kLevels || !any_[level]) return hits;
  uint32_t state = 0;
  for (size_t i = text.size(); i-- > 0;) {
    state = step(state, static_cast<uint8_t>(text[i]));
    const Match& match = states_[state].longest[level];
    if (match.id >= 0) hits.push_back({i, match.n_bytes, match.id});
  }
  std::reverse(hits.begin(), hits.end());
  size_t n_kept = 0;
  size_t end = 0;
  for (const Hit& hit : hits) {
    if (hit.begin < end) continue;
    end = hit.begin + hit.n_bytes;
    hits[n_kept++] = hit;
  }
  hits.resize(n_kept);
  return hits;
}

}  // namespace engine
