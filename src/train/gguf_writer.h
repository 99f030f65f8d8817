// Writes GGUF files: heads for the engine, and checkpoints.
#pragma once

#include <ggml.h>
#include <gguf.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/result.h"

namespace sluice {

class GgufWriter {
 public:
  void set(const std::string& key, const std::string& value) { set(key, value.c_str()); }
  void set(const std::string& key, const char* value) { gguf_set_val_str(file_.get(), key.c_str(), value); }
  void set(const std::string& key, uint32_t value) { gguf_set_val_u32(file_.get(), key.c_str(), value); }
  void set(const std::string& key, uint64_t value) { gguf_set_val_u64(file_.get(), key.c_str(), value); }
  void set(const std::string& key, float value) { gguf_set_val_f32(file_.get(), key.c_str(), value); }
  void set(const std::string& key, bool value) { gguf_set_val_bool(file_.get(), key.c_str(), value); }
  void set(const std::string& key, const std::vector<int32_t>& values) {
    gguf_set_arr_data(file_.get(), key.c_str(), GGUF_TYPE_INT32, values.data(), values.size());
  }
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
  struct Free {
    void operator()(gguf_context* file) const { gguf_free(file); }
    void operator()(ggml_context* tensors) const { ggml_free(tensors); }
  };
  void add_bytes(const std::string& name, std::span<const int64_t> shape, ggml_type type, std::vector<std::byte> bytes);
  std::unique_ptr<gguf_context, Free> file_{gguf_init_empty()};
  std::unique_ptr<ggml_context, Free> tensors_{
      ggml_init({.mem_size = 4096 * ggml_tensor_overhead(), .mem_buffer = nullptr, .no_alloc = true})};
  std::vector<std::vector<std::byte>> bytes_;
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
