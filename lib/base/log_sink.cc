// Hands messages to the host's callback.
#include "lib/base/log_sink.h"

namespace engine {

void LogSink::write(int32_t level, std::string_view text) const {
  if (log_ != nullptr) log_(user_, level, text.data(), text.size());
}

void LogSink::error(std::string_view text) const { write(kError, text); }
void LogSink::warning(std::string_view text) const { write(kWarning, text); }
void LogSink::info(std::string_view text) const { write(kInfo, text); }

}  // namespace engine
