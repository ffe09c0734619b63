// GGUF v2/v3: typed metadata and tensor table of one file, validated, borrowed from its bytes.
#ifndef ENGINE_LIB_FILE_GGUF_H_
#define ENGINE_LIB_FILE_GGUF_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "lib/base/status.h"

namespace engine {

// GGUF value type ids (specification, "gguf_metadata_value_type").
enum class GgufType : uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

// One metadata entry. Views point into the file's bytes, which outlive it.
struct GgufValue {
  std::string_view key;
  GgufType type = GgufType::kU8;          // kArray: see element_type
  GgufType element_type = GgufType::kU8;  // of an array
  uint64_t count = 1;                     // elements of an array, else 1
  const uint8_t* data = nullptr;          // scalar bytes, string bytes, or packed elements
  uint64_t data_bytes = 0;                // string: its length; array: all elements
  uint64_t offset = 0;                    // file offset of the value (after its type), for messages
};

// One row of the tensor table; dims[0] is the contiguous dimension, unused dims are 1.
struct GgufTensor {
  std::string_view name;
  uint32_t n_dims = 0;
  uint64_t dims[4] = {1, 1, 1, 1};
  uint32_t type = 0;         // ggml type id as stored, may be unknown in a metadata-only open
  uint64_t offset = 0;       // relative to data_start, which is the first shard's
  uint64_t bytes = 0;        // 0 when the type is unknown
  uint64_t info_offset = 0;  // file offset of this row, for messages
};

struct GgufOptions {
  // Accept tensors of unknown type and skip all checks of tensor extents: for inspecting any file.
  bool metadata_only = false;
};

// Bytes per block and elements per block of a ggml type id, and its name. For an unknown one
// {0, 0, why it is refused}. Given by the caller: file/ knows no weight formats.
struct BlockShape {
  uint32_t elements = 0;
  uint32_t bytes = 0;
  std::string_view name;
};
using BlockShapeFn = BlockShape (*)(uint32_t ggml_type);

class Gguf {
 public:
  // `bytes` is the whole file and must outlive the result; its first byte lies at a multiple of 4
  // in memory (weights are read in place), else kArgument. Every error names the key or tensor and
  // the file offset, in the message too. Time and memory are linear in the metadata; no allocation
  // is above 4 x bytes.size() + 16 MiB.
  // Stricter than the format: arrays inside arrays, alignments above 1 MiB and tensors that share
  // bytes are refused. More lenient than its writers: aligned offsets in any order and with gaps;
  // padding at the end may be missing.
  static absl::StatusOr<Gguf> parse(std::span<const uint8_t> bytes, BlockShapeFn block_shape,
                                    const GgufOptions& options = {});

  // The shards of a split set, in the order of their split.no, as one file: `bytes` spans them all, and each of
  // `shards`, named for messages, lies inside it. Metadata are the first shard's. A set that is not whole, or
  // mixed from several, is an error naming the shard.
  struct Shard {
    std::string name;
    std::span<const uint8_t> bytes;
  };
  static absl::StatusOr<Gguf> parse_set(std::span<const uint8_t> bytes,
                                        std::span<const Shard> shards, BlockShapeFn block_shape,
                                        const GgufOptions& options = {});

  uint32_t version() const { return version_; }
  uint64_t alignment() const { return alignment_; }
  uint64_t data_start() const { return data_start_; }  // absolute file offset
  std::span<const uint8_t> bytes() const { return bytes_; }
  std::span<const GgufValue> values() const { return values_; }
  std::span<const GgufTensor> tensors() const { return tensors_; }
  // How many strings and numbers parsing looked at: what its time is made of.
  uint64_t n_reads() const { return n_reads_; }
  const GgufValue* find(std::string_view key) const;           // nullptr when absent
  const GgufTensor* find_tensor(std::string_view name) const;  // nullptr when absent
  // Into bytes(). nullptr when the size is unknown or the data lies outside (after metadata_only).
  const uint8_t* tensor_data(const GgufTensor& tensor) const;

  // Typed reads. Absent: nullopt. Present with a type that cannot hold the asked kind: kModelKey
  // naming the key. Integers are read from any integer width (negative or too large for the target:
  // an error), floats from f32 or f64.
  absl::StatusOr<std::optional<uint64_t>> get_uint(std::string_view key) const;
  absl::StatusOr<std::optional<int64_t>> get_int(std::string_view key) const;
  absl::StatusOr<std::optional<double>> get_float(std::string_view key) const;
  absl::StatusOr<std::optional<bool>> get_bool(std::string_view key) const;
  absl::StatusOr<std::optional<std::string_view>> get_string(std::string_view key) const;
  // Arrays; integer arrays are widened, bool arrays read as 0/1.
  absl::StatusOr<std::optional<std::vector<std::string_view>>> get_strings(
      std::string_view key) const;
  absl::StatusOr<std::optional<std::vector<int64_t>>> get_ints(std::string_view key) const;
  absl::StatusOr<std::optional<std::vector<float>>> get_floats(std::string_view key) const;

 private:
  std::span<const uint8_t> bytes_;
  uint32_t version_ = 0;
  uint64_t alignment_ = 32;
  uint64_t data_start_ = 0;
  uint64_t n_reads_ = 0;
  std::vector<GgufValue> values_;
  std::vector<GgufTensor> tensors_;
  absl::flat_hash_map<std::string_view, uint32_t> value_index_;
  absl::flat_hash_map<std::string_view, uint32_t> tensor_index_;
};

}  // namespace engine

#endif  // ENGINE_LIB_FILE_GGUF_H_
