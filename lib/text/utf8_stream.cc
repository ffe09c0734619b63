// Holds back the bytes of an unfinished scalar between two pushes.
#include "lib/text/utf8_stream.h"

#include "lib/text/utf8_scan.h"

namespace engine {

void Utf8Stream::push(std::string_view bytes, std::string* out) {
  std::string joined;
  if (n_pending_ > 0) {
    joined.assign(pending_, n_pending_);
    joined.append(bytes);
    bytes = joined;
    n_pending_ = 0;
  }
  while (!bytes.empty()) {
    const Utf8Step step = utf8_step(bytes);
    if (step.incomplete) {
      for (; n_pending_ < bytes.size(); ++n_pending_) pending_[n_pending_] = bytes[n_pending_];
      return;
    }
    if (step.valid) {
      out->append(bytes.substr(0, step.n_bytes));
    } else {
      out->append("\xEF\xBF\xBD");
    }
    bytes.remove_prefix(step.n_bytes);
  }
}

std::string Utf8Stream::flush() {
  std::string left(pending_, n_pending_);
  n_pending_ = 0;
  return left;
}

}  // namespace engine
