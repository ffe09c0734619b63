// The one float reduction: 16 virtual lanes and a fixed tree, whatever the register width.
//
// Element i of a row belongs to lane i mod 16 and joins it in increasing i; a lane that gets
// nothing stays +0. The tree then adds halves: lane[i] += lane[i + w] for i < w, with w = 8, 4,
// 2, 1.
#ifndef ENGINE_BACKENDS_CPU_LANE_TREE_H_
#define ENGINE_BACKENDS_CPU_LANE_TREE_H_

namespace engine {

inline constexpr int kVirtualLanes = 16;

// Destroys `lanes`.
inline float lane_tree_sum(float lanes[kVirtualLanes]) {
  for (int width = kVirtualLanes / 2; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) lanes[i] += lanes[i + width];
  }
  return lanes[0];
}

}  // namespace engine

#endif  // ENGINE_BACKENDS_CPU_LANE_TREE_H_
