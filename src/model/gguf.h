// The header of a GGUF file (versions 2 and 3, little endian), read without trusting it: every count and length is
// compared with the bytes that are left before it is used, and nothing is allocated that is larger than the file
// itself.
//
// Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#pragma once

#include <ggml.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"

namespace sluice::gguf {

enum class Type : uint32_t {
  kUint8,
  kInt8,
  kUint16,
  kInt16,
  kUint32,
  kInt32,
  kFloat32,
  kBool,
  kString,
  kArray,
  kUint64,
  kInt64,
  kFloat64,
};

// "u32", "str", …
const char* type_name(Type type);

// A metadata value; its bytes lie in the header.
struct Value {
  Type type = Type::kUint8;  // of the value, or of an array's elements; never kArray
  bool is_array = false;
  uint64_t count = 1;            // of elements
  size_t offset = 0, bytes = 0;  // in the header; a string with its eight bytes of length

  bool is_array_of(Type element) const { return is_array && type == element; }
};

struct TensorInfo {
  std::string name;
  ggml_type type = GGML_TYPE_F32;
  int32_t n_dims = 1;
  int64_t ne[4] = {1, 1, 1, 1};  // ne[0] is the contiguous dimension
  uint64_t offset = 0;           // from the beginning of the file
  uint64_t bytes = 0;
  size_t row_bytes = 0;
};

class Header {
 public:
  // `file` is the whole file (or as many bytes as there are). Checks everything that is said here, types and extents of
  // the tensors included; an error has no file name in it. Copies the header's bytes: `file` may go.
  static Result<Header> parse(std::span<const std::byte> file);

  // The value of `key`, or nullptr.
  const Value* find(std::string_view key) const;

  // Typed access. REQUIRES the value's type, and index < count.
  template <class T>
  T scalar(const Value& value, uint64_t index = 0) const {
    T out;
    copy(value, index, &out, sizeof out);
    return out;
  }
  std::string_view string(const Value& value) const;
  std::vector<std::string_view> strings(const Value& value) const;

  // A key that must have this type if it is there at all; an error names the key.
  Result<std::optional<uint32_t>> optional_u32(std::string_view key) const;
  Result<std::optional<float>> optional_f32(std::string_view key) const;
  Result<std::optional<std::string_view>> optional_string(std::string_view key) const;

  const std::vector<std::pair<std::string, Value>>& entries() const { return entries_; }
  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  uint64_t data_offset() const { return data_offset_; }

 private:
  friend class Parser;
  void copy(const Value& value, uint64_t index, void* to, size_t size) const;
  Result<const Value*> optional(std::string_view key, Type type) const;

  std::vector<std::byte> bytes_;
  std::vector<std::pair<std::string, Value>> entries_;  // in the file's order
  std::unordered_map<std::string, size_t> index_;
  std::vector<TensorInfo> tensors_;
  uint64_t data_offset_ = 0;
};

}  // namespace sluice::gguf
