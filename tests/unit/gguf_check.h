// Assertions shared by the GGUF tests: exact message, place and code of a refusal.
#ifndef ENGINE_TESTS_UNIT_GGUF_CHECK_H_
#define ENGINE_TESTS_UNIT_GGUF_CHECK_H_

#include <cstdint>
#include <string>
#include <vector>

#include "catch2/catch_test_macros.hpp"
#include "lib/base/status.h"
#include "lib/file/gguf.h"
#include "tests/unit/gguf_builder.h"

namespace engine {

inline void check_error(const absl::Status& status, Code code, const std::string& name,
                        uint64_t offset, const std::string& message) {
  CHECK(code_of(status) == code);
  CHECK(where_of(status).name == name);
  CHECK(where_of(status).offset == offset);
  CHECK(std::string(status.message()) == message + " (offset " + std::to_string(offset) + ")");
}

inline void check_refused(const std::vector<uint8_t>& file, Code code, const std::string& name,
                          uint64_t offset, const std::string& message,
                          const GgufOptions& options = {}) {
  const auto parsed = Gguf::parse(file, test_block_shape, options);
  REQUIRE_FALSE(parsed.ok());
  check_error(parsed.status(), code, name, offset, message);
}

}  // namespace engine

#endif  // ENGINE_TESTS_UNIT_GGUF_CHECK_H_
