// The lines of a comparison of two plans: collects, groups what repeats, prints.
#ifndef ENGINE_LIB_PLAN_DIFF_LINES_H_
#define ENGINE_LIB_PLAN_DIFF_LINES_H_

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lib/plan/plan_tree.h"

namespace engine {

// Short text of a value; "none" for nullptr and null.
std::string diff_text(const Json* value);

// "0-2, 5" of ascending numbers.
std::string ranges_text(const std::vector<int64_t>& numbers);

// Leaf differences of two values below `path`. Differences that only the indices on their way tell apart
// become one line.
void diff_values(const Json* a, const Json* b, const std::string& path,
                 std::vector<std::string>* lines);

// Differences of layers, gathered over layers and forms in order of first appearance.
class LayerLines {
 public:
  void add(bool is_prefill, int64_t layer, const std::string& line);
  // "layers 0-29: line"; "decode layers 3: line" where only one form has it.
  void print(std::vector<std::string>* lines) const;

 private:
  struct Places {
    std::string line;
    std::vector<int64_t> layers[2];  // decode, prefill
  };
  std::vector<Places> places_;
  std::map<std::string, size_t> index_;
};

}  // namespace engine

#endif  // ENGINE_LIB_PLAN_DIFF_LINES_H_
