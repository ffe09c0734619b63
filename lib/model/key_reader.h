// Typed, range-checked reads of a family's keys; every error names the key.
#ifndef ENGINE_LIB_MODEL_KEY_READER_H_
#define ENGINE_LIB_MODEL_KEY_READER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/status.h"
#include "lib/file/gguf.h"

namespace engine {

// Keys are given without the architecture's prefix. The file must outlive the reader.
class KeyReader {
 public:
  KeyReader(const Gguf& file, std::string_view prefix) : file_(file), prefix_(prefix) {}

  std::string full(std::string_view key) const;
  // kModelKey that names the key and its place in the file.
  absl::Status fail(std::string_view key, std::string_view message) const;

  // An integer in [low, high]; `fallback` < 0 means that the key is required.
  absl::StatusOr<int64_t> integer(std::string_view key, int64_t low, int64_t high,
                                  int64_t fallback = -1) const;
  // A finite number, or nothing where the key is absent.
  absl::StatusOr<std::optional<double>> real(std::string_view key) const;
  // A number above 0; `fallback` where the key is absent.
  absl::StatusOr<double> positive(std::string_view key, double fallback) const;
  // A number of at least 0; `fallback` where the key is absent.
  absl::StatusOr<double> not_negative(std::string_view key, double fallback) const;
  // A scalar for all layers, or an array with one value per layer.
  absl::StatusOr<std::vector<int64_t>> per_layer(std::string_view key, int64_t n_layer, int64_t low,
                                                 int64_t high, int64_t fallback = -1) const;

  const Gguf& file() const { return file_; }

 private:
  absl::Status as_key_error(std::string_view key, const absl::Status& status) const;

  const Gguf& file_;
  std::string prefix_;
};

}  // namespace engine

#endif  // ENGINE_LIB_MODEL_KEY_READER_H_
