// Cuts text into the words that byte-pair merging may not cross, by the stages of a rule.
#ifndef ENGINE_LIB_TEXT_PRETOKENIZE_H_
#define ENGINE_LIB_TEXT_PRETOKENIZE_H_

#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

#include "lib/base/status.h"
#include "lib/text/pretokenize_rules.h"

namespace engine {

class Pretokenizer {
 public:
  static absl::StatusOr<Pretokenizer> create(const PretokenizeRule& rule);
  Pretokenizer(Pretokenizer&&) noexcept;
  Pretokenizer& operator=(Pretokenizer&&) noexcept;
  ~Pretokenizer();

  const PretokenizeRule& rule() const { return *rule_; }
  // Appends the end of each word of `text`, ascending; the last is text.size(). Each run of bytes
  // that is not UTF-8 is a word by itself: no expression sees it, and nothing is lost.
  absl::Status split(std::string_view text, std::vector<size_t>* ends) const;

 private:
  struct Stages;
  Pretokenizer(const PretokenizeRule* rule, std::unique_ptr<Stages> stages);

  const PretokenizeRule* rule_;
  std::unique_ptr<Stages> stages_;
};

}  // namespace engine

#endif  // ENGINE_LIB_TEXT_PRETOKENIZE_H_
