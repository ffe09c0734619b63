// Split sets: which files belong together, and in which order.
#ifndef ENGINE_LIB_FILE_SHARDS_H_
#define ENGINE_LIB_FILE_SHARDS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/status.h"
#include "lib/file/gguf.h"

namespace engine {

// What a shard says about its set (keys split.no, split.count, split.tensors.count).
struct ShardKeys {
  uint64_t number = 0;  // from 0
  uint64_t count = 0;
  std::optional<uint64_t> n_tensors;  // of the whole set
};
// nullopt for a file that is no shard: without split.count, or with one of at most 1.
absl::StatusOr<std::optional<ShardKeys>> read_shard_keys(const Gguf& file);

// The files of the set that `path` belongs to, in order; only itself where it is no shard. The names of
// the others follow from its own, PREFIX-00002-of-00003.gguf; what each file is, its keys decide.
absl::StatusOr<std::vector<std::string>> shard_paths(const std::string& path);
// The same files in the order of their keys; an error naming the file where they are not one whole set.
absl::StatusOr<std::vector<std::string>> sort_shards(std::vector<std::string> paths);

}  // namespace engine

#endif  // ENGINE_LIB_FILE_SHARDS_H_
