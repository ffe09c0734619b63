// Lifetimes as the span of all uses of a slot over all layers; greedy best fit by size.
#include "lib/plan/arena_layout.h"

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>
#include <vector>

#include "lib/contract/derive.h"
#include "lib/plan/section_flow.h"
#include "lib/plan/step_parts.h"

namespace engine {
namespace {

struct Life {
  int32_t first = std::numeric_limits<int32_t>::max();
  int32_t last = -1;
  bool is_stored = false;  // by some step of some layer

  void use(int32_t time) {
    first = std::min(first, time);
    last = std::max(last, time);
  }
};

// A use inside a fused step counts as well: where a slot has memory because another layer stores it, that
// memory is the slot's there too, so it never matters in which layer an executor is.
void mark_section(const std::vector<Step>& section, const std::vector<PlanStep>& steps,
                  int32_t begin, std::vector<Life>* lives) {
  for (size_t p = 0; p < steps.size(); ++p) {
    const int32_t time = begin + static_cast<int32_t>(p);
    for (size_t part = 0; part < steps[p].steps.size(); ++part) {
      const Step& step = section[static_cast<size_t>(steps[p].steps[part])];
      for (const int32_t slot : {step.in0, step.in1, step.out}) {
        if (slot >= 0) (*lives)[static_cast<size_t>(slot)].use(time);
      }
      if (step.out >= 0 && part_is_stored(section, steps[p], part)) {
        (*lives)[static_cast<size_t>(step.out)].is_stored = true;
      }
    }
  }
}

bool is_used(const std::vector<Step>& section, int32_t slot) {
  return std::any_of(section.begin(), section.end(), [&](const Step& step) {
    return step.in0 == slot || step.in1 == slot || step.out == slot;
  });
}

// The lowest of the smallest gaps between regions that live at the same time, else the end.
int64_t best_offset(const std::vector<Region>& placed, const Region& region) {
  std::vector<std::pair<int64_t, int64_t>> taken;  // begin, end
  for (const Region& other : placed) {
    if (other.first_step <= region.last_step && region.first_step <= other.last_step) {
      taken.emplace_back(other.offset, other.offset + other.bytes);
    }
  }
  std::sort(taken.begin(), taken.end());
  int64_t end = 0, best = -1, best_gap = std::numeric_limits<int64_t>::max();
  for (const auto& [taken_begin, taken_end] : taken) {
    const int64_t gap = taken_begin - end;
    if (gap >= region.bytes && gap < best_gap) {
      best = end;
      best_gap = gap;
    }
    end = std::max(end, taken_end);
  }
  return best >= 0 ? best : end;
}

}  // namespace

FoldedTime folded_time(const PlanForm& form) {
  FoldedTime time;
  time.layers_begin = static_cast<int32_t>(form.preamble.size());
  size_t longest = 0;
  for (const PlanLayer& layer : form.layers) longest = std::max(longest, layer.steps.size());
  time.final_begin = time.layers_begin + static_cast<int32_t>(longest);
  time.end = time.final_begin + static_cast<int32_t>(form.final_steps.size());
  return time;
}

int64_t thread_scratch_bytes(const Program& program, const PlanForm& form) {
  int64_t bytes = 0;
  const auto mark = [&](const std::vector<Step>& section, const std::vector<PlanStep>& steps,
                        int64_t n_rows) {
    for (const PlanStep& step : steps) {
      bytes = std::max(bytes, step_scratch_bytes(program, section, step, n_rows));
    }
  };
  mark(program.preamble, form.preamble, form.n_tokens);
  for (size_t l = 0; l < form.layers.size(); ++l) {
    mark(program.layers[l], form.layers[l].steps, form.n_tokens);
  }
  mark(program.final_steps, form.final_steps, form.n_head_rows);
  return bytes;
}

int64_t slot_rows(const Program& program, int32_t slot, const PlanForm& form) {
  const bool is_final_only =
      !is_used(program.preamble, slot) &&
      std::none_of(program.layers.begin(), program.layers.end(),
                   [&](const std::vector<Step>& layer) { return is_used(layer, slot); });
  if (is_final_only) return form.n_head_rows;
  return is_used(program.final_steps, slot) ? std::max(form.n_tokens, form.n_head_rows)
                                            : form.n_tokens;
}

Arena lay_out(const Program& program, const PlanForm& form, uint32_t n_threads) {
  const FoldedTime time = folded_time(form);
  std::vector<Life> lives(program.slots.size());
  mark_section(program.preamble, form.preamble, 0, &lives);
  for (size_t l = 0; l < form.layers.size(); ++l) {
    mark_section(program.layers[l], form.layers[l].steps, time.layers_begin, &lives);
  }
  mark_section(program.final_steps, form.final_steps, time.final_begin, &lives);

  Arena arena;
  arena.thread_scratch_bytes = thread_scratch_bytes(program, form);
  std::vector<Region> waiting;
  if (arena.thread_scratch_bytes > 0) {
    waiting.push_back(
        {-1, 0, arena.thread_scratch_bytes * static_cast<int64_t>(n_threads), 0, time.end - 1});
  }
  const std::vector<bool> carried = carried_slots(program);
  for (size_t s = 0; s < program.slots.size(); ++s) {
    const auto slot = static_cast<int32_t>(s);
    const Life& life = lives[s];
    if (!life.is_stored || slot == program.logits_slot) continue;
    const int64_t bytes = program.slots[s].row_bytes * slot_rows(program, slot, form);
    waiting.push_back(
        {slot, 0, bytes, carried[s] ? 0 : life.first, carried[s] ? time.end - 1 : life.last});
  }
  std::stable_sort(waiting.begin(), waiting.end(),
                   [](const Region& a, const Region& b) { return a.bytes > b.bytes; });
  for (Region& region : waiting) {
    region.offset = best_offset(arena.regions, region);
    arena.regions.push_back(region);
    arena.bytes = std::max(arena.bytes, region.offset + region.bytes);
  }
  std::sort(arena.regions.begin(), arena.regions.end(), [](const Region& a, const Region& b) {
    return std::tie(a.offset, a.slot) < std::tie(b.offset, b.slot);
  });
  arena.slot_region.assign(program.slots.size(), -1);
  for (size_t r = 0; r < arena.regions.size(); ++r) {
    if (arena.regions[r].slot >= 0) {
      arena.slot_region[static_cast<size_t>(arena.regions[r].slot)] = static_cast<int32_t>(r);
    }
  }
  return arena;
}

}  // namespace engine
