// Where messages for people go: the host's log callback, or nowhere.
#ifndef ENGINE_LIB_BASE_LOG_SINK_H_
#define ENGINE_LIB_BASE_LOG_SINK_H_

#include <cstdint>
#include <string_view>

namespace engine {

// A copyable handle. Levels are those of ENGINE_LOG_* in include/engine.h.
class LogSink {
 public:
  using LogFn = void (*)(void* user, int32_t level, const char* text, uint64_t n_bytes);
  static constexpr int32_t kError = 1;
  static constexpr int32_t kWarning = 2;
  static constexpr int32_t kInfo = 3;

  LogSink() = default;
  LogSink(void* user, LogFn log) : user_(user), log_(log) {}

  void error(std::string_view text) const;
  void warning(std::string_view text) const;
  void info(std::string_view text) const;
  // False: messages are dropped, so none need be built.
  bool active() const { return log_ != nullptr; }

 private:
  void write(int32_t level, std::string_view text) const;

  void* user_ = nullptr;
  LogFn log_ = nullptr;
};

}  // namespace engine

#endif  // ENGINE_LIB_BASE_LOG_SINK_H_
