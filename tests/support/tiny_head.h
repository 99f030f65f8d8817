// Heads for tiny models, written by the tests themselves: whole ones, and ones that a test spoils before they are
// written.
#pragma once

#include <ggml.h>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "base/ids.h"
#include "model/model_file.h"

struct gguf_context;

namespace sluice::test {

// A GGUF file in the making. Tensors go into it in their order here.
class GgufDraft {
 public:
  struct Entry {
    std::string name;
    ggml_type type;
    std::vector<int64_t> ne;  // the contiguous dimension first
    std::vector<std::byte> bytes;
  };

  GgufDraft();

  void set(const std::string& key, const std::string& value);
  void set(const std::string& key, const char* value) { set(key, std::string(value)); }
  void set(const std::string& key, uint32_t value);
  void set(const std::string& key, float value);
  void set(const std::string& key, bool value);
  void set(const std::string& key, const std::vector<int32_t>& values);
  void set(const std::string& key, const std::vector<std::string>& values);
  void remove(const std::string& key);

  // A tensor of f32 with reproducible values; or one of integers.
  void add_floats(const std::string& name, std::vector<int64_t> ne);
  void add_integers(const std::string& name, const std::vector<int32_t>& values);
  void add_integers(const std::string& name, const std::vector<int64_t>& values);
  // All of a mapped tensor's rows, or some.
  void add(const std::string& name, const Tensor& tensor, const std::vector<int32_t>& rows = {});
  Entry& entry(const std::string& name);
  void remove_tensor(const std::string& name);

  // Gives the path.
  std::string write(const std::string& path) const;

 private:
  std::shared_ptr<gguf_context> metadata_;
  std::vector<Entry> entries_;
};

struct TinyHeadSpec {
  std::string kind = "spd";     // "spd", "eagle3", "p-eagle", "exit", "draft"
  std::vector<int32_t> layers;  // its layers begin as these of the target; empty: the last one, for an exit none
  std::vector<Token> vocabulary;
  bool own_output = true;  // norm and matrix are the target's, in the head's file
  std::vector<int32_t> cuts = {0, 2, 4};
  bool shared_fc = false, output_timing = false;       // spd
  bool masks_by_depth = false, own_embedding = false;  // p-eagle
  bool feature_norm = true;                            // eagle3, p-eagle
  bool signed_by_us = true;                            // eagle3: says of which target it is
};

// A head of `target`, complete and right.
GgufDraft tiny_head(const ModelFile& target, const TinyHeadSpec& spec);

}  // namespace sluice::test
