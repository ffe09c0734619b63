// Composes each well-formed stretch of the text with utf8proc.
#include "lib/text/normalise.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>

#include "lib/text/utf8_scan.h"

namespace engine {

namespace {

struct FreeMalloced {
  void operator()(utf8proc_uint8_t* bytes) const { std::free(bytes); }
};

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<uint8_t>(c) < 0x80; });
}

absl::StatusOr<std::string> normalised(std::string_view text, utf8proc_option_t form) {
  if (is_ascii(text)) return std::string(text);
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Utf8Stretch stretch = utf8_stretch(text);
    const std::string_view part = text.substr(0, stretch.n_bytes);
    text.remove_prefix(stretch.n_bytes);
    if (!stretch.valid) {
      out.append(part);
      continue;
    }
    utf8proc_uint8_t* made = nullptr;
    const utf8proc_ssize_t n_bytes =
        utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(part.data()),
                     static_cast<utf8proc_ssize_t>(part.size()), &made,
                     static_cast<utf8proc_option_t>(UTF8PROC_STABLE | form));
    const std::unique_ptr<utf8proc_uint8_t, FreeMalloced> owned(made);
    if (n_bytes == UTF8PROC_ERROR_NOMEM) {
      return error(Code::kMemory, "no memory for normalising the text");
    }
    if (n_bytes < 0) {
      return error(Code::kTokenizer,
                   std::string("normalising the text failed: ") + utf8proc_errmsg(n_bytes));
    }
    out.append(reinterpret_cast<const char*>(made), static_cast<size_t>(n_bytes));
  }
  return out;
}

}  // namespace

absl::StatusOr<std::string> to_nfc(std::string_view text) {
  return normalised(text, UTF8PROC_COMPOSE);
}

absl::StatusOr<std::string> to_nfd(std::string_view text) {
  return normalised(text, UTF8PROC_DECOMPOSE);
}

}  // namespace engine
