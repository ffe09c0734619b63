// One walk over the section that remembers each slot's last writer and the readers since.
#include "lib/plan/section_flow.h"

#include <algorithm>
#include <map>

namespace engine {
namespace {

struct SlotState {
  int32_t writer = -1;
  std::vector<int32_t> readers;
};

}  // namespace

SectionFlow section_flow(const std::vector<Step>& section) {
  SectionFlow flow;
  flow.steps.resize(section.size());
  std::map<int32_t, SlotState> slots;
  int32_t kv_store = -1;
  for (int32_t i = 0; i < static_cast<int32_t>(section.size()); ++i) {
    const Step& step = section[static_cast<size_t>(i)];
    StepFlow& mine = flow.steps[static_cast<size_t>(i)];
    const auto read = [&](int32_t slot) {
      if (slot < 0) return -1;
      SlotState& state = slots[slot];
      if (state.writer < 0) {
        flow.taken.push_back(slot);
      } else {
        flow.steps[static_cast<size_t>(state.writer)].readers.push_back(i);
        mine.after.push_back(state.writer);
      }
      state.readers.push_back(i);
      return state.writer;
    };
    mine.producer0 = read(step.in0);
    mine.producer1 = read(step.in1);
    const bool reads_kv = step.op == Op::kAttention || step.op == Op::kShortConv;
    if (reads_kv && kv_store >= 0) mine.after.push_back(kv_store);
    if (step.op == Op::kKvStore) kv_store = i;
    if (step.out < 0) continue;
    SlotState& state = slots[step.out];
    if (state.writer >= 0) mine.after.push_back(state.writer);
    for (const int32_t reader : state.readers) {
      if (reader != i) mine.after.push_back(reader);
    }
    state = {i, {}};
  }
  std::sort(flow.taken.begin(), flow.taken.end());
  flow.taken.erase(std::unique(flow.taken.begin(), flow.taken.end()), flow.taken.end());
  return flow;
}

std::vector<bool> carried_slots(const Program& program) {
  std::vector<bool> carried(program.slots.size(), false);
  const auto mark = [&](const std::vector<Step>& section) {
    for (const int32_t slot : section_flow(section).taken)
      carried[static_cast<size_t>(slot)] = true;
  };
  for (const std::vector<Step>& layer : program.layers) mark(layer);
  mark(program.final_steps);
  return carried;
}

}  // namespace engine
