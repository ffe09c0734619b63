// Joins the shards of a split set into one tensor table.
#include <new>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/file/gguf.h"
#include "lib/file/gguf_common.h"
#include "lib/file/shards.h"

namespace engine {

absl::StatusOr<Gguf> Gguf::parse_set(std::span<const uint8_t> bytes, std::span<const Shard> shards,
                                     BlockShapeFn block_shape, const GgufOptions& options) try {
  Gguf set;
  std::optional<ShardKeys> first_keys;
  uint64_t n_tensors = 0;
  for (size_t i = 0; i < shards.size(); ++i) {
    const Shard& shard = shards[i];
    const auto in_shard = [&](const absl::Status& status) {
      const ErrorWhere where = where_of(status);
      return error_at(code_of(status), where.name, where.offset,
                      absl::StrCat(shard.name, ": ", status.message()));
    };
    const auto fail = [&](std::string_view key, uint64_t offset, std::string_view message) {
      return error_at(Code::kFileFormat, key, offset, absl::StrCat(shard.name, ": ", message));
    };
    auto parsed = parse(shard.bytes, block_shape, options);
    if (!parsed.ok()) return in_shard(parsed.status());
    Gguf file = std::move(*parsed);
    auto keys = read_shard_keys(file);
    if (!keys.ok()) return in_shard(keys.status());
    if (!keys->has_value() || (*keys)->number != i || (*keys)->count != shards.size()) {
      return fail("split.no", kNoOffset, absl::StrCat("is not shard ", i, " of ", shards.size()));
    }
    n_tensors += file.tensors_.size();
    const uint64_t begin = static_cast<uint64_t>(shard.bytes.data() - bytes.data());
    const uint64_t data_start = file.data_start_;
    std::vector<GgufTensor> tensors = std::move(file.tensors_);
    if (i == 0) {
      first_keys = *keys;
      set = std::move(file);
      set.bytes_ = bytes;
      set.data_start_ += begin;
      set.tensors_.clear();
      set.tensor_index_.clear();
    } else {
      if ((*keys)->n_tensors != first_keys->n_tensors) {
        return fail("split.tensors.count", kNoOffset,
                    absl::StrCat("split.tensors.count differs from that of ", shards[0].name));
      }
      // Writers repeat nothing; where something is there, it must be the same model's.
      for (const char* key : {"general.architecture", "general.name"}) {
        ENGINE_ASSIGN_OR_RETURN(const auto here, file.get_string(key));
        ENGINE_ASSIGN_OR_RETURN(const auto there, set.get_string(key));
        if (here.has_value() && here != there) {
          return fail(key, file.find(key)->offset,
                      absl::StrCat(key, " differs from that of ", shards[0].name));
        }
      }
    }
    for (GgufTensor& tensor : tensors) {
      const auto [place, fresh] =
          set.tensor_index_.try_emplace(tensor.name, static_cast<uint32_t>(set.tensors_.size()));
      if (!fresh) {
        return fail(tensor.name, tensor.info_offset,
                    absl::StrCat("tensor ", tensor.name, " is in another shard too"));
      }
      tensor.offset += begin + data_start - set.data_start_;
      set.tensors_.push_back(tensor);
    }
  }
  if (first_keys.has_value() && first_keys->n_tensors.value_or(n_tensors) != n_tensors) {
    return error_at(Code::kFileFormat, "split.tensors.count", kNoOffset,
                    absl::StrCat(shards[0].name, ": split.tensors.count is ",
                                 *first_keys->n_tensors, ", the shards have ", n_tensors));
  }
  return set;
} catch (const std::bad_alloc&) {
  return error(Code::kMemory, "out of memory while reading GGUF metadata");
}

}  // namespace engine
