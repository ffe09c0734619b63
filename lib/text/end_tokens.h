// Which tokens end a generation: those that a key names, and those whose text is known for it.
#ifndef ENGINE_LIB_TEXT_END_TOKENS_H_
#define ENGINE_LIB_TEXT_END_TOKENS_H_

#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "lib/text/tokenizer.h"

namespace engine {

// `keyed` are the tokens that keys name, the most telling reason first; `find` gives the lowest id
// of a text or -1. The result has each id once, with its first reason, in ascending order.
std::vector<EndToken> end_token_set(std::vector<EndToken> keyed,
                                    absl::FunctionRef<int32_t(std::string_view)> find);

}  // namespace engine

#endif  // ENGINE_LIB_TEXT_END_TOKENS_H_
