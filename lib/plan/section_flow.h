// Who makes and who reads the values of one section of a program (preamble, a layer, the final steps).
#ifndef ENGINE_LIB_PLAN_SECTION_FLOW_H_
#define ENGINE_LIB_PLAN_SECTION_FLOW_H_

#include <cstdint>
#include <vector>

#include "lib/contract/step.h"

namespace engine {

struct StepFlow {
  int32_t producer0 = -1;        // step that made in0, -1 = none or from before the section
  int32_t producer1 = -1;        // of in1
  std::vector<int32_t> readers;  // steps that read what this one makes
  std::vector<int32_t> after;    // earlier steps that must have run
};

struct SectionFlow {
  std::vector<StepFlow> steps;
  std::vector<int32_t> taken;  // slots read before the section writes them
};

// A step depends on whoever made its inputs, wrote or read the former value of its output, and, an
// attention, on the KV store.
SectionFlow section_flow(const std::vector<Step>& section);

// Per slot of the program: whether a layer or the final steps take it from before.
std::vector<bool> carried_slots(const Program& program);

}  // namespace engine

#endif  // ENGINE_LIB_PLAN_SECTION_FLOW_H_
