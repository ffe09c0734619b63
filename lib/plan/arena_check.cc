// Plays a form's steps through folded time and sees that memory is there whenever a value is.
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/contract/derive.h"
#include "lib/plan/plan_check.h"
#include "lib/plan/section_flow.h"
#include "lib/plan/step_parts.h"

namespace engine {
namespace {

constexpr int64_t kAlignBytes = 64;

class ArenaCheck {
 public:
  ArenaCheck(const Program& program, const PlanForm& form, const PlanKey& key)
      : program_(program), form_(form), arena_(form.arena), key_(key) {}

  absl::Status run() {
    for (const PlanLayer& layer : form_.layers) {
      layer_steps_ = std::max(layer_steps_, static_cast<int32_t>(layer.steps.size()));
    }
    const auto layers_begin = static_cast<int32_t>(form_.preamble.size());
    const int32_t final_begin = layers_begin + layer_steps_;
    end_ = final_begin + static_cast<int32_t>(form_.final_steps.size());
    ENGINE_RETURN_IF_ERROR(check_table());
    ENGINE_RETURN_IF_ERROR(play(program_.preamble, form_.preamble, 0, form_.n_tokens));
    for (size_t l = 0; l < form_.layers.size(); ++l) {
      ENGINE_RETURN_IF_ERROR(
          play(program_.layers[l], form_.layers[l].steps, layers_begin, form_.n_tokens));
    }
    ENGINE_RETURN_IF_ERROR(
        play(program_.final_steps, form_.final_steps, final_begin, form_.n_head_rows));
    ENGINE_RETURN_IF_ERROR(check_carried());
    return check_overlaps();
  }

 private:
  static absl::Status fault(std::string_view what) {
    return error(Code::kPlan, absl::StrCat("arena: ", what));
  }
  std::string slot_text(int32_t slot) const {
    return slot < 0 ? "thread scratch" : program_.slots[static_cast<size_t>(slot)].name;
  }
  const Region* region_of(int32_t slot) const {
    const int32_t r = arena_.slot_region[static_cast<size_t>(slot)];
    return r < 0 ? nullptr : &arena_.regions[static_cast<size_t>(r)];
  }

  absl::Status check_table() const {
    const auto n_regions = static_cast<int32_t>(arena_.regions.size());
    if (arena_.slot_region.size() != program_.slots.size()) return fault("wrong number of slots");
    if (arena_.bytes < 0 || arena_.thread_scratch_bytes < 0) return fault("negative size");
    if (arena_.thread_scratch_bytes % kAlignBytes != 0)
      return fault("thread scratch is not aligned");
    size_t n_slot_regions = 0;
    for (size_t s = 0; s < arena_.slot_region.size(); ++s) {
      const int32_t r = arena_.slot_region[s];
      if (r == -1) continue;
      ++n_slot_regions;
      if (r < 0 || r >= n_regions ||
          arena_.regions[static_cast<size_t>(r)].slot != static_cast<int32_t>(s)) {
        return fault(absl::StrCat(program_.slots[s].name, " has another slot's region"));
      }
    }
    if (region_of(program_.logits_slot) != nullptr) return fault("the logits have a region");
    size_t n_scratch_regions = 0;
    for (const Region& region : arena_.regions) {
      const std::string name = region.slot < static_cast<int32_t>(program_.slots.size())
                                   ? slot_text(region.slot)
                                   : "unknown slot";
      if (region.offset < 0 || region.offset % kAlignBytes != 0) {
        return fault(absl::StrCat(name, " is not aligned"));
      }
      if (region.bytes <= 0 || region.bytes > arena_.bytes ||
          region.offset > arena_.bytes - region.bytes) {
        return fault(absl::StrCat(name, " lies outside the arena"));
      }
      if (region.first_step < 0 || region.last_step < region.first_step ||
          region.last_step >= end_) {
        return fault(absl::StrCat(name, " has an impossible lifetime"));
      }
      if (region.slot >= 0) continue;
      ++n_scratch_regions;
      if (region.bytes != arena_.thread_scratch_bytes * static_cast<int64_t>(key_.n_threads) ||
          region.first_step != 0 || region.last_step != end_ - 1) {
        return fault("the region of the thread scratch is too small or not always there");
      }
    }
    if (n_slot_regions + n_scratch_regions != arena_.regions.size() ||
        n_scratch_regions != (arena_.thread_scratch_bytes > 0 ? 1u : 0u)) {
      return fault("a region belongs to no slot");
    }
    return absl::OkStatus();
  }

  // The slot's region holds n_rows rows and is live at `time`.
  absl::Status needs(int32_t slot, int32_t time, int64_t n_rows) const {
    if (slot == program_.logits_slot) return absl::OkStatus();
    const Region* region = region_of(slot);
    if (region == nullptr) return fault(absl::StrCat(slot_text(slot), " has no region"));
    const int64_t row_bytes = program_.slots[static_cast<size_t>(slot)].row_bytes;
    if (row_bytes % kAlignBytes != 0 || region->bytes < row_bytes * n_rows) {
      return fault(absl::StrCat(slot_text(slot), " has too small a region"));
    }
    if (time < region->first_step || time > region->last_step) {
      return fault(absl::StrCat(slot_text(slot), " is used at ", time, ", outside its lifetime ",
                                region->first_step, "..", region->last_step));
    }
    return absl::OkStatus();
  }

  absl::Status play(const std::vector<Step>& section, const std::vector<PlanStep>& steps,
                    int32_t begin, int64_t n_rows) const {
    const SectionFlow flow = section_flow(section);
    for (size_t p = 0; p < steps.size(); ++p) {
      const PlanStep& step = steps[p];
      const int32_t time = begin + static_cast<int32_t>(p);
      if (step_scratch_bytes(program_, section, step, n_rows) > arena_.thread_scratch_bytes) {
        return fault("thread scratch is too small");
      }
      const auto is_here = [&](int32_t i) {
        return std::find(step.steps.begin(), step.steps.end(), i) != step.steps.end();
      };
      for (size_t part = 0; part < step.steps.size(); ++part) {
        const auto i = static_cast<size_t>(step.steps[part]);
        const int32_t out = section[i].out;
        const bool is_stored = out >= 0 && part_is_stored(section, step, part);
        // A fused step may keep a value that has memory elsewhere there too.
        if (is_stored || (out >= 0 && region_of(out) != nullptr)) {
          ENGINE_RETURN_IF_ERROR(needs(out, time, n_rows));
        }
        for (const auto& [slot, producer] : {std::pair(section[i].in0, flow.steps[i].producer0),
                                             std::pair(section[i].in1, flow.steps[i].producer1)}) {
          if (slot < 0 || (producer >= 0 && is_here(producer))) continue;
          ENGINE_RETURN_IF_ERROR(needs(slot, time, n_rows));
        }
      }
    }
    return absl::OkStatus();
  }

  // What a layer or the final steps take from before must not lose its memory in any step between.
  absl::Status check_carried() const {
    const auto whole = [&](const std::vector<Step>& section) -> absl::Status {
      for (const int32_t slot : section_flow(section).taken) {
        for (const int32_t time : {0, end_ - 1}) {
          ENGINE_RETURN_IF_ERROR(needs(slot, time, 1));
        }
      }
      return absl::OkStatus();
    };
    for (const std::vector<Step>& layer : program_.layers) {
      ENGINE_RETURN_IF_ERROR(whole(layer));
    }
    return whole(program_.final_steps);
  }

  absl::Status check_overlaps() const {
    for (size_t a = 0; a < arena_.regions.size(); ++a) {
      for (size_t b = a + 1; b < arena_.regions.size(); ++b) {
        const Region& x = arena_.regions[a];
        const Region& y = arena_.regions[b];
        const bool share_bytes = x.offset < y.offset + y.bytes && y.offset < x.offset + x.bytes;
        const bool share_time = x.first_step <= y.last_step && y.first_step <= x.last_step;
        if (share_bytes && share_time) {
          return fault(absl::StrCat(slot_text(x.slot), " (steps ", x.first_step, "..", x.last_step,
                                    ") and ", slot_text(y.slot), " (steps ", y.first_step, "..",
                                    y.last_step, ") share bytes while both live"));
        }
      }
    }
    return absl::OkStatus();
  }

  const Program& program_;
  const PlanForm& form_;
  const Arena& arena_;
  const PlanKey& key_;
  int32_t layer_steps_ = 0;
  int32_t end_ = 0;
};

}  // namespace

absl::Status check_arena(const Program& program, const PlanForm& form, const PlanKey& key) {
  if (key.mode == Mode::kReference) {
    const bool is_empty = form.arena.bytes == 0 && form.arena.regions.empty();
    return is_empty ? absl::OkStatus() : error(Code::kPlan, "arena: the reference has none");
  }
  return ArenaCheck(program, form, key).run();
}

}  // namespace engine
