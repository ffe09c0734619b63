// Walks the header, metadata and tensor table of a GGUF once, front to back, trusting nothing it
// reads.
#include <algorithm>
#include <bit>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/checked.h"
#include "lib/file/gguf.h"
#include "lib/file/gguf_common.h"

namespace engine {
namespace {

static_assert(std::endian::native == std::endian::little, "a GGUF is read as it lies in memory");

constexpr uint32_t kMagic = 0x46554747;                // "GGUF"
constexpr uint32_t kReversedMagic = 0x47475546;        // "FUGG"
constexpr uint64_t kMaxKeyBytes = 65535;               // specification
constexpr uint64_t kMaxTensorNameBytes = 64;           // specification
constexpr uint32_t kMaxDims = 4;                       // specification
constexpr uint64_t kMinAlignment = 8;                  // specification
constexpr uint64_t kMaxAlignment = uint64_t{1} << 20;  // ours: a page of any system, with room
// The smallest encodings: key length, type, one byte; name length, dimension count, type, offset.
constexpr uint64_t kMinValueBytes = 8 + 4 + 1;
constexpr uint64_t kMinTensorBytes = 8 + 4 + 4 + 8;
// Blocks and float rows are read in place; the widest scalar read there has 4 bytes.
constexpr uintptr_t kMemoryAlignment = 4;

static_assert(sizeof(GgufValue) <= 4 * (kMinValueBytes + 1));
static_assert(sizeof(GgufTensor) <= 4 * (kMinTensorBytes + 1));

// A read position that cannot leave the bytes.
class Cursor {
 public:
  explicit Cursor(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  uint64_t offset() const { return at_; }
  uint64_t left() const { return bytes_.size() - at_; }
  const uint8_t* here() const { return bytes_.data() + at_; }
  uint64_t reads() const { return n_reads_; }
  // n_bytes <= left().
  void skip(uint64_t n_bytes) { at_ += n_bytes; }

  // A u64 length and that many bytes; false, without moving, when they are not all there. The error
  // is made apart, so that a table of good names costs no text.
  bool take_string(std::string_view* text) {
    ++n_reads_;
    if (left() < 8) return false;
    const uint64_t length = load_unaligned<uint64_t>(here());
    if (length > left() - 8) return false;
    *text = {reinterpret_cast<const char*>(here() + 8), static_cast<size_t>(length)};
    at_ += 8 + length;
    return true;
  }
  // Why take_string() failed here.
  absl::Status string_error(std::string_view owner, std::string_view what) {
    const uint64_t start = at_;
    uint64_t length = 0;
    ENGINE_RETURN_IF_ERROR(read(owner, absl::StrCat(what, " length"), &length));
    return gguf_error(
        Code::kFileFormat, owner, start,
        absl::StrCat(what, " length ", length, " exceeds the ", left(), " bytes left"));
  }

  // `owner` and `what` are for the message.
  template <class T>
  absl::Status read(std::string_view owner, std::string_view what, T* value) {
    ++n_reads_;
    if (left() < sizeof(T)) {
      return gguf_error(Code::kFileFormat, owner, at_,
                        absl::StrCat("the file ends inside the ", what, ": ", sizeof(T),
                                     " bytes needed, ", left(), " left"));
    }
    *value = load_unaligned<T>(here());
    at_ += sizeof(T);
    return absl::OkStatus();
  }

 private:
  std::span<const uint8_t> bytes_;
  uint64_t at_ = 0;
  uint64_t n_reads_ = 0;
};

// Makes room for one more record. Doubles, but never beyond the records that the rest of the file
// can hold, so that a table stays below 4 x file size whatever count the header claims (56 bytes
// for 14, 88 for 25; a name has at least one byte).
template <class T>
void grow(std::vector<T>* records, uint64_t most_to_come) {
  if (records->size() < records->capacity()) return;
  const uint64_t wanted = std::max<uint64_t>(records->size(), 64);
  records->reserve(records->size() +
                   static_cast<size_t>(std::max<uint64_t>(std::min(wanted, most_to_come), 1)));
}

struct Header {
  uint32_t version = 0;
  uint64_t n_tensors = 0;
  uint64_t n_values = 0;
};

absl::Status check_version(uint32_t version) {
  constexpr uint64_t kVersionOffset = 4;
  const auto unsupported = [](std::string_view message) {
    return gguf_error(Code::kFileUnsupported, "", kVersionOffset, message);
  };
  if (version == 2 || version == 3) return absl::OkStatus();
  if (version == 0) {
    return gguf_error(Code::kFileFormat, "", kVersionOffset, "GGUF version 0 does not exist");
  }
  if ((version & 0xFFFF) == 0) {  // no real version is this large
    return unsupported(
        "the file is big-endian, which is not supported; convert it to little-endian");
  }
  if (version == 1) {
    return unsupported("GGUF version 1 is not supported, only 2 and 3; convert the model again");
  }
  return unsupported(absl::StrCat("GGUF version ", version,
                                  " is not supported, only 2 and 3; a newer library is needed"));
}

absl::Status check_count(std::string_view what, uint64_t count, uint64_t offset, uint64_t left,
                         uint64_t min_bytes) {
  if (count <= left / min_bytes) return absl::OkStatus();
  return gguf_error(Code::kFileFormat, "", offset,
                    absl::StrCat(what, " ", count, " does not fit: at least ", min_bytes,
                                 " bytes each, ", left, " left"));
}

absl::StatusOr<Header> read_header(Cursor* cursor) {
  uint32_t magic = 0;
  Header header;
  ENGINE_RETURN_IF_ERROR(cursor->read("", "magic", &magic));
  if (magic == kReversedMagic) {
    return gguf_error(Code::kFileUnsupported, "", 0,
                      "the magic is reversed (\"FUGG\"): the file was byte-swapped");
  }
  if (magic != kMagic) {
    return gguf_error(Code::kFileFormat, "", 0, "not a GGUF file: the magic is missing");
  }
  ENGINE_RETURN_IF_ERROR(cursor->read("", "version", &header.version));
  ENGINE_RETURN_IF_ERROR(check_version(header.version));
  const uint64_t tensors_at = cursor->offset();
  ENGINE_RETURN_IF_ERROR(cursor->read("", "tensor count", &header.n_tensors));
  const uint64_t values_at = cursor->offset();
  ENGINE_RETURN_IF_ERROR(cursor->read("", "metadata count", &header.n_values));
  const uint64_t left = cursor->left();
  ENGINE_RETURN_IF_ERROR(
      check_count("tensor count", header.n_tensors, tensors_at, left, kMinTensorBytes));
  ENGINE_RETURN_IF_ERROR(
      check_count("metadata count", header.n_values, values_at, left, kMinValueBytes));
  return header;
}

absl::Status check_bools(const GgufValue& value) {
  for (uint64_t i = 0; i < value.data_bytes; ++i) {
    if (value.data[i] > 1) {
      const uint64_t first = value.offset + (value.type == GgufType::kArray ? 12 : 0);
      return gguf_error(Code::kFileFormat, value.key, first + i,
                        absl::StrCat("bool value ", value.data[i], " is neither 0 nor 1"));
    }
  }
  return absl::OkStatus();
}

absl::Status read_type(Cursor* cursor, std::string_view key, std::string_view what,
                       GgufType* type) {
  const uint64_t at = cursor->offset();
  uint32_t id = 0;
  ENGINE_RETURN_IF_ERROR(cursor->read(key, what, &id));
  if (id > static_cast<uint32_t>(GgufType::kF64)) {
    return gguf_error(Code::kFileFormat, key, at, absl::StrCat(what, " ", id, " is unknown"));
  }
  *type = static_cast<GgufType>(id);
  return absl::OkStatus();
}

// The elements of an array: sized, and strings walked one by one.
absl::Status read_array(Cursor* cursor, GgufValue* value) {
  const uint64_t type_at = cursor->offset();
  ENGINE_RETURN_IF_ERROR(read_type(cursor, value->key, "array element type", &value->element_type));
  if (value->element_type == GgufType::kArray) {
    return gguf_error(Code::kFileUnsupported, value->key, type_at,
                      "arrays inside arrays are not supported");
  }
  const uint64_t count_at = cursor->offset();
  ENGINE_RETURN_IF_ERROR(cursor->read(value->key, "array count", &value->count));
  const bool strings = value->element_type == GgufType::kString;
  const uint64_t min_bytes = strings ? 8 : gguf_type_bytes(value->element_type);
  if (value->count > cursor->left() / min_bytes) {
    return gguf_error(Code::kFileFormat, value->key, count_at,
                      absl::StrCat("array count ", value->count, " does not fit: at least ",
                                   min_bytes, " bytes each, ", cursor->left(), " left"));
  }
  value->data = cursor->here();
  if (!strings) {
    value->data_bytes = value->count * min_bytes;
    cursor->skip(value->data_bytes);
    return absl::OkStatus();
  }
  const uint64_t start = cursor->offset();
  for (uint64_t i = 0; i < value->count; ++i) {
    std::string_view text;
    if (cursor->take_string(&text)) continue;
    return cursor->string_error(value->key, absl::StrCat("string ", i));
  }
  value->data_bytes = cursor->offset() - start;
  return absl::OkStatus();
}

absl::Status read_value(Cursor* cursor, uint64_t index, GgufValue* value) {
  const uint64_t key_at = cursor->offset();
  const auto entry = [index] { return absl::StrCat("metadata entry ", index); };
  if (!cursor->take_string(&value->key)) return cursor->string_error(entry(), "key");
  if (value->key.empty()) return gguf_error(Code::kFileFormat, entry(), key_at, "empty key");
  if (value->key.size() > kMaxKeyBytes) {
    return gguf_error(Code::kFileFormat, entry(), key_at,
                      absl::StrCat("key of ", value->key.size(), " bytes, at most ", kMaxKeyBytes,
                                   " are allowed"));
  }
  ENGINE_RETURN_IF_ERROR(read_type(cursor, value->key, "value type", &value->type));
  value->offset = cursor->offset();
  if (value->type == GgufType::kArray) {
    ENGINE_RETURN_IF_ERROR(read_array(cursor, value));
  } else if (value->type == GgufType::kString) {
    std::string_view text;
    if (!cursor->take_string(&text)) return cursor->string_error(value->key, "string");
    value->data = reinterpret_cast<const uint8_t*>(text.data());
    value->data_bytes = text.size();
  } else {
    value->data_bytes = gguf_type_bytes(value->type);
    if (cursor->left() < value->data_bytes) {
      return gguf_error(Code::kFileFormat, value->key, value->offset,
                        absl::StrCat("the file ends inside the value: ", value->data_bytes,
                                     " bytes needed, ", cursor->left(), " left"));
    }
    value->data = cursor->here();
    cursor->skip(value->data_bytes);
  }
  const bool is_bool = value->type == GgufType::kBool ||
                       (value->type == GgufType::kArray && value->element_type == GgufType::kBool);
  return is_bool ? check_bools(*value) : absl::OkStatus();
}

absl::StatusOr<uint64_t> read_alignment(const GgufValue* value) {
  if (value == nullptr) return uint64_t{32};  // specification
  if (value->type != GgufType::kU32) {
    return gguf_error(Code::kFileFormat, value->key, value->offset,
                      absl::StrCat("must be a u32, found ", gguf_type_name(value->type)));
  }
  const uint64_t alignment = load_unaligned<uint32_t>(value->data);
  if (!std::has_single_bit(alignment) || alignment < kMinAlignment || alignment > kMaxAlignment) {
    return gguf_error(Code::kFileFormat, value->key, value->offset,
                      absl::StrCat(alignment, " is not a power of two from ", kMinAlignment, " to ",
                                   kMaxAlignment));
  }
  return alignment;
}

// Name and dimensions, and their product.
absl::Status read_shape(Cursor* cursor, uint64_t index, GgufTensor* tensor, uint64_t* n_elements) {
  const auto entry = [index] { return absl::StrCat("tensor ", index); };
  if (!cursor->take_string(&tensor->name)) return cursor->string_error(entry(), "name");
  if (tensor->name.empty()) {
    return gguf_error(Code::kFileFormat, entry(), tensor->info_offset, "empty name");
  }
  if (tensor->name.size() > kMaxTensorNameBytes) {
    return gguf_error(Code::kFileFormat, entry(), tensor->info_offset,
                      absl::StrCat("name of ", tensor->name.size(), " bytes, at most ",
                                   kMaxTensorNameBytes, " are allowed"));
  }
  const uint64_t n_dims_at = cursor->offset();
  ENGINE_RETURN_IF_ERROR(cursor->read(tensor->name, "dimension count", &tensor->n_dims));
  if (tensor->n_dims > kMaxDims) {
    return gguf_error(
        Code::kFileFormat, tensor->name, n_dims_at,
        absl::StrCat(tensor->n_dims, " dimensions, at most ", kMaxDims, " are allowed"));
  }
  *n_elements = 1;
  for (uint32_t i = 0; i < tensor->n_dims; ++i) {
    const uint64_t dim_at = cursor->offset();
    ENGINE_RETURN_IF_ERROR(cursor->read(tensor->name, "dimensions", &tensor->dims[i]));
    // Signed in other readers, so a value from 2^63 on is negative there.
    const int64_t dim = static_cast<int64_t>(tensor->dims[i]);
    if (dim <= 0) {
      return gguf_error(Code::kFileFormat, tensor->name, dim_at,
                        absl::StrCat("dimension must be positive, dims[", i, "] is ", dim));
    }
    if (!checked_mul(*n_elements, tensor->dims[i], n_elements) ||
        *n_elements > static_cast<uint64_t>(INT64_MAX)) {
      return gguf_error(Code::kFileFormat, tensor->name, dim_at,
                        "the number of elements overflows 63 bits");
    }
  }
  return absl::OkStatus();
}

absl::Status read_tensor(Cursor* cursor, uint64_t index, BlockShapeFn block_shape,
                         const GgufOptions& options, GgufTensor* tensor) {
  tensor->info_offset = cursor->offset();
  uint64_t n_elements = 0;
  ENGINE_RETURN_IF_ERROR(read_shape(cursor, index, tensor, &n_elements));
  const uint64_t type_at = cursor->offset();
  ENGINE_RETURN_IF_ERROR(cursor->read(tensor->name, "type", &tensor->type));
  ENGINE_RETURN_IF_ERROR(cursor->read(tensor->name, "offset", &tensor->offset));
  const BlockShape shape = block_shape(tensor->type);
  if (shape.elements == 0 || shape.bytes == 0) {
    if (options.metadata_only) return absl::OkStatus();
    const std::string_view reason = shape.name.empty() ? std::string_view("unknown") : shape.name;
    return gguf_error(Code::kFileUnsupported, tensor->name, type_at,
                      absl::StrCat("tensor type ", tensor->type, " is not supported: ", reason));
  }
  if (tensor->dims[0] % shape.elements != 0) {
    return gguf_error(
        Code::kFileFormat, tensor->name, type_at,
        absl::StrCat("row length ", tensor->dims[0], " is not a multiple of the block size ",
                     shape.elements, " of ", shape.name));
  }
  if (!checked_mul(n_elements / shape.elements, shape.bytes, &tensor->bytes)) {
    return gguf_error(Code::kFileFormat, tensor->name, type_at,
                      "the size in bytes overflows 64 bits");
  }
  return absl::OkStatus();
}

// Every tensor aligned and inside the file, and no byte owned by two of them. One tensor under two
// names would be legal to read, but no writer does it, while a wrapped or edited offset looks just
// like it.
absl::Status check_extents(std::span<const GgufTensor> tensors, uint64_t alignment,
                           uint64_t data_start, uint64_t file_bytes) {
  const auto fail = [](const GgufTensor& tensor, std::string_view message) {
    return gguf_error(Code::kFileFormat, tensor.name, tensor.info_offset, message);
  };
  std::vector<const GgufTensor*> by_offset;
  by_offset.reserve(tensors.size());
  for (const GgufTensor& tensor : tensors) {
    if (tensor.offset % alignment != 0) {
      return fail(tensor, absl::StrCat("data offset ", tensor.offset,
                                       " is not a multiple of the alignment ", alignment));
    }
    uint64_t begin = 0;
    uint64_t end = 0;
    if (!checked_add(data_start, tensor.offset, &begin) ||
        !checked_add(begin, tensor.bytes, &end) || end > file_bytes) {
      return fail(tensor,
                  absl::StrCat(tensor.bytes, " bytes at data offset ", tensor.offset,
                               " end beyond the file: the data section has ",
                               file_bytes > data_start ? file_bytes - data_start : 0, " bytes"));
    }
    by_offset.push_back(&tensor);
  }
  std::sort(by_offset.begin(), by_offset.end(), [](const GgufTensor* a, const GgufTensor* b) {
    return std::pair(a->offset, a->info_offset) < std::pair(b->offset, b->info_offset);
  });
  for (size_t i = 1; i < by_offset.size(); ++i) {
    const GgufTensor& before = *by_offset[i - 1];
    if (before.offset + before.bytes > by_offset[i]->offset) {
      return fail(*by_offset[i], absl::StrCat("its data at data offset ", by_offset[i]->offset,
                                              " overlaps that of tensor ", before.name));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Gguf> Gguf::parse(std::span<const uint8_t> bytes, BlockShapeFn block_shape,
                                 const GgufOptions& options) try {
  Gguf file;
  file.bytes_ = bytes;
  Cursor cursor(bytes);
  ENGINE_ASSIGN_OR_RETURN(const Header header, read_header(&cursor));
  file.version_ = header.version;
  for (uint64_t i = 0; i < header.n_values; ++i) {
    const uint64_t key_at = cursor.offset();
    GgufValue value;
    ENGINE_RETURN_IF_ERROR(read_value(&cursor, i, &value));
    const auto [place, fresh] = file.value_index_.try_emplace(value.key, static_cast<uint32_t>(i));
    if (!fresh) {
      return gguf_error(Code::kFileFormat, value.key, key_at, "the key appears twice");
    }
    grow(&file.values_, std::min(header.n_values - i, cursor.left() / (kMinValueBytes + 1) + 1));
    file.values_.push_back(value);
  }
  ENGINE_ASSIGN_OR_RETURN(file.alignment_, read_alignment(file.find("general.alignment")));
  for (uint64_t i = 0; i < header.n_tensors; ++i) {
    GgufTensor tensor;
    ENGINE_RETURN_IF_ERROR(read_tensor(&cursor, i, block_shape, options, &tensor));
    const auto [place, fresh] =
        file.tensor_index_.try_emplace(tensor.name, static_cast<uint32_t>(i));
    if (!fresh) {
      return gguf_error(Code::kFileFormat, tensor.name, tensor.info_offset,
                        "the tensor appears twice");
    }
    grow(&file.tensors_, std::min(header.n_tensors - i, cursor.left() / (kMinTensorBytes + 1) + 1));
    file.tensors_.push_back(tensor);
  }
  if (!checked_round_up(cursor.offset(), file.alignment_, &file.data_start_)) {
    return gguf_error(Code::kFileFormat, "", cursor.offset(), "the start of the data overflows");
  }
  file.n_reads_ = cursor.reads();
  if (options.metadata_only || file.tensors_.empty()) return file;
  ENGINE_RETURN_IF_ERROR(
      check_extents(file.tensors_, file.alignment_, file.data_start_, bytes.size()));
  if (reinterpret_cast<uintptr_t>(bytes.data()) % kMemoryAlignment != 0) {
    return error(Code::kArgument, "the first byte of a GGUF must lie at a multiple of 4 in memory");
  }
  return file;
} catch (const std::bad_alloc&) {
  return error(Code::kMemory, "out of memory while reading GGUF metadata");
}

}  // namespace engine
