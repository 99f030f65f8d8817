#include "model/gguf.h"

#include <bit>
#include <cstring>
#include <unordered_set>

namespace sluice::gguf {

static_assert(std::endian::native == std::endian::little, "GGUF files are read as they lie in memory");

namespace {

constexpr uint64_t kMagicBytes = 4, kSmallestEntry = 8 + 1 + 4 + 1, kSmallestTensor = 8 + 1 + 4 + 8 + 4 + 8;
constexpr const char* kFetchAgain = "; it is incomplete or damaged: fetch it again";
constexpr uint32_t kDefaultAlignment = 32, kMaxAlignment = 1u << 20;

// Bytes of one element; 0 for what has no fixed size.
size_t element_bytes(Type type) {
  static constexpr size_t kBytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};  // in the order of Type
  const auto i = static_cast<size_t>(type);
  return i < std::size(kBytes) ? kBytes[i] : 0;
}

std::string quoted(std::string_view name) {
  std::string out = "'";
  for (char c : name.substr(0, 64)) out += (c >= 32 && c < 127) ? c : '?';
  return out + "'";
}

uint64_t round_up(uint64_t n, uint64_t alignment) { return (n + alignment - 1) / alignment * alignment; }

// What is left of the file.
class Cursor {
 public:
  explicit Cursor(std::span<const std::byte> file) : file_(file) {}

  size_t position() const { return position_; }
  size_t left() const { return file_.size() - position_; }

  template <class T>
  bool read(T& out) {
    if (left() < sizeof(T)) return false;
    std::memcpy(&out, file_.data() + position_, sizeof(T));
    position_ += sizeof(T);
    return true;
  }
  bool skip(uint64_t bytes) {
    if (left() < bytes) return false;
    position_ += bytes;
    return true;
  }
  bool read_string(std::string_view& out) {
    uint64_t length = 0;
    if (!read(length) || left() < length) return false;
    out = {reinterpret_cast<const char*>(file_.data()) + position_, static_cast<size_t>(length)};
    position_ += length;
    return true;
  }

 private:
  std::span<const std::byte> file_;
  size_t position_ = 0;
};

}  // namespace

const char* type_name(Type type) {
  static constexpr const char* kNames[] = {"u8",   "i8",  "u16",   "i16", "u32", "i32", "f32",
                                           "bool", "str", "array", "u64", "i64", "f64"};
  const auto i = static_cast<size_t>(type);
  return i < std::size(kNames) ? kNames[i] : "unknown";
}

// One pass over a file's header.
class Parser {
 public:
  explicit Parser(std::span<const std::byte> file) : file_(file), cursor_(file) {}

  Result<Header> run() {
    SLUICE_TRY_STATUS(read_counts());
    SLUICE_TRY_STATUS(read_entries());
    SLUICE_TRY_STATUS(read_alignment());
    SLUICE_TRY_STATUS(read_tensors());
    SLUICE_TRY_STATUS(place_tensors());
    return std::move(header_);
  }

 private:
  static tl::unexpected<Error> truncated(const char* where) {
    return input_error(std::string("the file ends inside its ") + where + kFetchAgain);
  }

  Status read_counts() {
    char magic[kMagicBytes];
    uint32_t version = 0;
    if (!cursor_.read(magic) || std::memcmp(magic, "GGUF", kMagicBytes) != 0)
      return input_error("not a GGUF file (it does not begin with 'GGUF'); no other format is read");
    if (!cursor_.read(version)) return truncated("first bytes");
    if ((version & 0xFFFF) == 0 && version != 0) return input_error("a big-endian GGUF file; little endian is needed");
    if (version != 2 && version != 3)
      return input_error("GGUF version " + std::to_string(version) + "; versions 2 and 3 can be read");
    if (!cursor_.read(n_tensors_) || !cursor_.read(n_entries_)) return truncated("first bytes");
    if (n_entries_ > cursor_.left() / kSmallestEntry || n_tensors_ > cursor_.left() / kSmallestTensor)
      return input_error("claims " + std::to_string(n_entries_) + " metadata entries and " +
                         std::to_string(n_tensors_) + " tensors, more than the file has room for" + kFetchAgain);
    return {};
  }

  Status read_entries() {
    for (uint64_t i = 0; i < n_entries_; ++i) {
      std::string_view key;
      if (!cursor_.read_string(key)) return truncated("metadata");
      // Others read names up to a zero byte: what they see must be what is checked here.
      if (key.empty() || key.find('\0') != key.npos)
        return input_error("metadata entry " + std::to_string(i) + " has no name, or a zero byte in it");
      Value value;
      SLUICE_TRY_STATUS(read_value(key, value));
      if (!header_.index_.emplace(key, header_.entries_.size()).second)
        return input_error("metadata key " + quoted(key) + " appears twice");
      header_.entries_.emplace_back(key, value);
    }
    return {};
  }

  Status read_value(std::string_view key, Value& value) {
    uint32_t type = 0;
    if (!cursor_.read(type)) return truncated("metadata");
    value.is_array = type == static_cast<uint32_t>(Type::kArray);
    if (value.is_array && (!cursor_.read(type) || !cursor_.read(value.count))) return truncated("metadata");
    value.type = static_cast<Type>(type);
    value.offset = cursor_.position();
    if (value.type == Type::kString) {
      if (value.count > cursor_.left() / sizeof(uint64_t)) return truncated("metadata");
      std::string_view text;
      for (uint64_t i = 0; i < value.count; ++i)
        if (!cursor_.read_string(text)) return truncated("metadata");
    } else {
      const size_t size = element_bytes(value.type);
      if (size == 0)
        return input_error("metadata key " + quoted(key) + " has the unknown type " + std::to_string(type));
      if (value.count > cursor_.left() / size || !cursor_.skip(value.count * size)) return truncated("metadata");
    }
    value.bytes = cursor_.position() - value.offset;
    return check_bools(key, value);
  }

  // A bool other than 0 and 1 is no value of the type that libraries read it into.
  Status check_bools(std::string_view key, const Value& value) const {
    if (value.type != Type::kBool) return {};
    for (const std::byte b : file_.subspan(value.offset, value.bytes))
      if (std::to_integer<int>(b) > 1) return input_error("metadata key " + quoted(key) + " is neither true nor false");
    return {};
  }

  Status read_alignment() {
    // The values are read through the header from here on.
    header_.bytes_.assign(file_.begin(), file_.begin() + static_cast<ptrdiff_t>(cursor_.position()));
    SLUICE_TRY(const auto alignment, header_.optional_u32("general.alignment"));
    alignment_ = alignment.value_or(kDefaultAlignment);
    if (!std::has_single_bit(alignment_) || alignment_ < 8 || alignment_ > kMaxAlignment)
      return input_error("general.alignment is " + std::to_string(alignment_) + "; a power of two from 8 to " +
                         std::to_string(kMaxAlignment) + " is needed");
    return {};
  }

  Status read_tensors() {
    std::unordered_set<std::string_view> seen;
    for (uint64_t i = 0; i < n_tensors_; ++i) {
      std::string_view name;
      TensorInfo tensor;
      if (!cursor_.read_string(name)) return truncated("list of tensors");
      if (name.empty() || name.size() >= GGML_MAX_NAME || name.find('\0') != name.npos)
        return input_error("tensor " + std::to_string(i) + " has an empty or overlong name");
      if (!seen.insert(name).second) return input_error("tensor " + quoted(name) + " appears twice");
      tensor.name = name;
      SLUICE_TRY_STATUS(read_shape(tensor));
      header_.tensors_.push_back(std::move(tensor));
    }
    return {};
  }

  Status read_shape(TensorInfo& tensor) {
    uint32_t n_dims = 0;
    if (!cursor_.read(n_dims)) return truncated("list of tensors");
    if (n_dims < 1 || n_dims > GGML_MAX_DIMS)
      return input_error("tensor " + quoted(tensor.name) + " has " + std::to_string(n_dims) +
                         " dimensions; 1 to 4 are possible");
    tensor.n_dims = static_cast<int32_t>(n_dims);
    for (uint32_t d = 0; d < n_dims; ++d)
      if (!cursor_.read(tensor.ne[d])) return truncated("list of tensors");
    uint32_t type = 0;
    if (!cursor_.read(type) || !cursor_.read(tensor.offset)) return truncated("list of tensors");
    const int64_t block = type < GGML_TYPE_COUNT ? ggml_blck_size(static_cast<ggml_type>(type)) : 0;
    if (block <= 0 || ggml_type_size(static_cast<ggml_type>(type)) == 0)
      return input_error("tensor " + quoted(tensor.name) + " has the unknown type " + std::to_string(type));
    tensor.type = static_cast<ggml_type>(type);
    return measure(tensor, block);
  }

  // Bytes of a row and of all rows. The file bounds the product, so no multiplication can overflow.
  Status measure(TensorInfo& tensor, int64_t block) const {
    const auto too_large = [&] {
      return input_error("tensor " + quoted(tensor.name) + " is empty or larger than the file" + kFetchAgain);
    };
    const uint64_t limit = file_.size(), block_bytes = ggml_type_size(tensor.type);
    if (tensor.ne[0] <= 0) return too_large();
    if (tensor.ne[0] % block != 0)
      return input_error("tensor " + quoted(tensor.name) + " has rows of " + std::to_string(tensor.ne[0]) +
                         " values; type " + ggml_type_name(tensor.type) + " needs a multiple of " +
                         std::to_string(block));
    const uint64_t blocks = static_cast<uint64_t>(tensor.ne[0] / block);
    if (blocks > limit / block_bytes) return too_large();
    tensor.row_bytes = blocks * block_bytes;
    tensor.bytes = tensor.row_bytes;
    for (int d = 1; d < tensor.n_dims; ++d) {
      if (tensor.ne[d] <= 0 || static_cast<uint64_t>(tensor.ne[d]) > limit / tensor.bytes) return too_large();
      tensor.bytes *= static_cast<uint64_t>(tensor.ne[d]);
    }
    return {};
  }

  // The data begins at the next multiple of the alignment, and each tensor at the next one after the tensor before it.
  Status place_tensors() {
    header_.data_offset_ = round_up(cursor_.position(), alignment_);
    uint64_t expected = 0;
    for (TensorInfo& tensor : header_.tensors_) {
      if (tensor.offset != expected)
        return input_error("tensor " + quoted(tensor.name) + " lies at offset " + std::to_string(tensor.offset) +
                           "; it should be " + std::to_string(expected));
      const uint64_t begin = header_.data_offset_ + expected;
      if (begin > file_.size() || tensor.bytes > file_.size() - begin)
        return input_error("tensor " + quoted(tensor.name) + " reaches beyond the end of the file" + kFetchAgain);
      expected = round_up(expected + tensor.bytes, alignment_);
      tensor.offset = begin;
    }
    return {};
  }

  std::span<const std::byte> file_;
  Cursor cursor_;
  Header header_;
  uint64_t n_tensors_ = 0, n_entries_ = 0;
  uint32_t alignment_ = kDefaultAlignment;
};

Result<Header> Header::parse(std::span<const std::byte> file) { return Parser(file).run(); }

const Value* Header::find(std::string_view key) const {
  const auto found = index_.find(std::string(key));
  return found == index_.end() ? nullptr : &entries_[found->second].second;
}

void Header::copy(const Value& value, uint64_t index, void* to, size_t size) const {
  SLUICE_CHECK(element_bytes(value.type) == size && index < value.count, "a value is read as what it is");
  std::memcpy(to, bytes_.data() + value.offset + index * size, size);
}

std::vector<std::string_view> Header::strings(const Value& value) const {
  SLUICE_CHECK(value.type == Type::kString, "only strings are read as strings");
  Cursor cursor(std::span<const std::byte>(bytes_).subspan(value.offset, value.bytes));
  std::vector<std::string_view> out(value.count);
  for (std::string_view& text : out) SLUICE_CHECK(cursor.read_string(text), "the strings have been counted");
  return out;
}

std::string_view Header::string(const Value& value) const {
  SLUICE_CHECK(!value.is_array, "one string");
  return strings(value)[0];
}

namespace {
tl::unexpected<Error> wrong_type(std::string_view key, const Value& value, Type wanted) {
  return input_error("metadata key " + quoted(key) + " has type " + (value.is_array ? "array of " : "") +
                     type_name(value.type) + "; it should be " + type_name(wanted));
}
}  // namespace

Result<const Value*> Header::optional(std::string_view key, Type type) const {
  const Value* value = find(key);
  if (value != nullptr && (value->is_array || value->type != type)) return wrong_type(key, *value, type);
  return value;
}

Result<std::optional<uint32_t>> Header::optional_u32(std::string_view key) const {
  SLUICE_TRY(const Value* value, optional(key, Type::kUint32));
  return value == nullptr ? std::nullopt : std::optional(scalar<uint32_t>(*value));
}

Result<std::optional<float>> Header::optional_f32(std::string_view key) const {
  SLUICE_TRY(const Value* value, optional(key, Type::kFloat32));
  return value == nullptr ? std::nullopt : std::optional(scalar<float>(*value));
}

Result<std::optional<std::string_view>> Header::optional_string(std::string_view key) const {
  SLUICE_TRY(const Value* value, optional(key, Type::kString));
  return value == nullptr ? std::nullopt : std::optional(string(*value));
}

}  // namespace sluice::gguf
