// Unicode normal forms, for vocabularies whose published tokenizer applies one before anything else.
#ifndef ENGINE_LIB_TEXT_NORMALISE_H_
#define ENGINE_LIB_TEXT_NORMALISE_H_

#include <string>
#include <string_view>

#include "lib/base/status.h"

namespace engine {

// `text` in NFC, NFD. Bytes that are not UTF-8 stay, and part the text like characters that never
// combine.
absl::StatusOr<std::string> to_nfc(std::string_view text);
absl::StatusOr<std::string> to_nfd(std::string_view text);

}  // namespace engine

#endif  // ENGINE_LIB_TEXT_NORMALISE_H_
