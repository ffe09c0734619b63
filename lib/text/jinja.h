// Renders chat templates: the subset of Jinja that published templates use, with Python's values. A sandbox:
// steps, output, nesting and the size of every value are bounded.
#ifndef ENGINE_LIB_TEXT_JINJA_H_
#define ENGINE_LIB_TEXT_JINJA_H_

#include <cstdint>
#include <optional>
#include <string_view>

#include "lib/text/jinja_ast.h"

namespace engine::jinja {

struct RenderOptions {
  // Seconds since 1970 for strftime_now; without it that function is undefined.
  std::optional<int64_t> unix_time;
};

// `variables` is a dict. Errors are kChatTemplate: what the template itself raises, what it cannot do with these
// variables, or what is not supported.
absl::StatusOr<Text> render(const Block& block, const Value& variables,
                            const RenderOptions& options);

}  // namespace engine::jinja

#endif  // ENGINE_LIB_TEXT_JINJA_H_
