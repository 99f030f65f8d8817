// Writes GGUF files: heads for the engine, and checkpoints.
#pragma once

#include <ggml.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/result.h"

struct gguf_context;

namespace sluice {

class GgufWriter {
 public:
  GgufWriter();
  GgufWriter(GgufWriter&&) noexcept;
  ~GgufWriter();

  void set(const std::string& key, const std::string& value);
  void set(const std::string& key, const char* value) { set(key, std::string(value)); }
  void set(const std::string& key, uint32_t value);
  void set(const std::string& key, uint64_t value);
  void set(const std::string& key, float value);
  void set(const std::string& key, bool value);
  void set(const std::string& key, const std::vector<int32_t>& values);
  void set(const std::string& key, const std::vector<std::string>& values);
  // Copies all the metadata of a file whose keys begin with `prefix`. Errors (kInput) name the file.
  Status copy_metadata(const std::string& path, const std::string& prefix);

  // values: [shape], the last dimension contiguous; at most two dimensions. Types: F32, F16, Q8_0 (whose last dimension
  // is a multiple of 32).
  void add(const std::string& name, std::span<const int64_t> shape, std::span<const float> values, ggml_type type);
  void add(const std::string& name, std::span<const int32_t> values);
  void add(const std::string& name, std::span<const int64_t> values);

  // The file appears whole or not at all: what was there before stays until the new one is safely on the disk.
  Status write(const std::string& path) const;

 private:
  struct Data;
  void add_bytes(const std::string& name, std::span<const int64_t> shape, ggml_type type, std::vector<std::byte> bytes);
  std::unique_ptr<Data> data_;
};

// A file's tensors as floats and its text metadata; for files of ours.
struct GgufContents {
  struct Entry {
    std::vector<int64_t> shape;  // the last dimension contiguous
    std::vector<float> values;
  };
  std::unordered_map<std::string, Entry> tensors;  // of floating-point and quantised types
  std::unordered_map<std::string, std::string> strings;
};
// Errors (kInput) name the file.
Result<GgufContents> read_gguf(const std::string& path);

}  // namespace sluice
