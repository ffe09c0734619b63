// Names and keys of split sets.
#include "lib/file/shards.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/file/mapped_file.h"

namespace engine {
namespace {

constexpr uint64_t kMaxShards = 65536;

BlockShape no_shape(uint32_t) { return {}; }

// The keys of a file, read without its tensors' data.
absl::StatusOr<std::optional<ShardKeys>> keys_of(const std::string& path) {
  ENGINE_ASSIGN_OR_RETURN(const MappedFile mapped, MappedFile::open_path(path));
  GgufOptions options;
  options.metadata_only = true;
  const auto in_file = [&](const absl::Status& status) {
    const ErrorWhere where = where_of(status);
    return error_at(code_of(status), where.name, where.offset,
                    absl::StrCat(path, ": ", status.message()));
  };
  const auto file = Gguf::parse(mapped.bytes(), no_shape, options);
  if (!file.ok()) return in_file(file.status());
  auto keys = read_shard_keys(*file);
  if (!keys.ok()) return in_file(keys.status());
  return keys;
}

// PREFIX of PREFIX-00002-of-00003.gguf, where the last number is `count`.
std::optional<std::string> shard_prefix(std::string_view path, uint64_t count) {
  const std::string end = absl::StrFormat("-of-%05d.gguf", count);
  constexpr size_t kNumberBytes = 6;  // "-00002"
  if (path.size() < end.size() + kNumberBytes || !path.ends_with(end)) return std::nullopt;
  const std::string_view number =
      path.substr(path.size() - end.size() - kNumberBytes, kNumberBytes);
  const bool digits =
      std::all_of(number.begin() + 1, number.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (number[0] != '-' || !digits) return std::nullopt;
  return std::string(path.substr(0, path.size() - end.size() - kNumberBytes));
}

}  // namespace

absl::StatusOr<std::optional<ShardKeys>> read_shard_keys(const Gguf& file) {
  ENGINE_ASSIGN_OR_RETURN(const auto count, file.get_uint("split.count"));
  if (count.value_or(0) <= 1) return std::optional<ShardKeys>();
  const auto fail = [&](std::string_view key, std::string_view message) {
    const GgufValue* value = file.find(key);
    return error_at(Code::kFileFormat, key, value == nullptr ? kNoOffset : value->offset,
                    absl::StrCat(key, ": ", message));
  };
  if (*count > kMaxShards) return fail("split.count", absl::StrCat(*count, " shards are too many"));
  ENGINE_ASSIGN_OR_RETURN(const auto number, file.get_uint("split.no"));
  if (!number.has_value()) return fail("split.no", "missing in a file that has split.count");
  if (*number >= *count) {
    return fail("split.no", absl::StrCat(*number, " in a set of ", *count, " shards"));
  }
  ENGINE_ASSIGN_OR_RETURN(const auto n_tensors, file.get_uint("split.tensors.count"));
  return std::optional<ShardKeys>({*number, *count, n_tensors});
}

absl::StatusOr<std::vector<std::string>> shard_paths(const std::string& path) {
  // A file whose name is no shard's is read only once, and refused there if it is one after all.
  if (path.find("-of-") == std::string::npos) return std::vector<std::string>{path};
  ENGINE_ASSIGN_OR_RETURN(const auto keys, keys_of(path));
  if (!keys.has_value()) return std::vector<std::string>{path};
  const std::optional<std::string> prefix = shard_prefix(path, keys->count);
  if (!prefix.has_value()) return std::vector<std::string>{path};
  std::vector<std::string> paths;
  for (uint64_t i = 1; i <= keys->count; ++i) {
    paths.push_back(absl::StrFormat("%s-%05d-of-%05d.gguf", *prefix, i, keys->count));
  }
  return sort_shards(std::move(paths));
}

absl::StatusOr<std::vector<std::string>> sort_shards(std::vector<std::string> paths) {
  std::vector<std::string> sorted(paths.size());
  for (const std::string& path : paths) {
    const auto fail = [&](std::string_view key, std::string_view message) {
      return error_at(Code::kFileFormat, key, kNoOffset, absl::StrCat(path, ": ", message));
    };
    ENGINE_ASSIGN_OR_RETURN(const auto keys, keys_of(path));
    if (!keys.has_value()) return fail("split.count", "the file is no shard of a set");
    if (keys->count != paths.size()) {
      return fail("split.count",
                  absl::StrCat("the shard is of a set of ", keys->count, ", not ", paths.size()));
    }
    std::string& place = sorted[keys->number];
    if (!place.empty()) {
      return fail("split.no", absl::StrCat("has split.no ", keys->number, ", as has ", place));
    }
    place = path;
  }
  return sorted;
}

}  // namespace engine
