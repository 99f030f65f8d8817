// The trained tensors of a head, by the names that they have in its file.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "train/gguf_writer.h"
#include "train/target_tensors.h"
#include "train/torch.h"

namespace sluice {

// Of what is exported. The output matrix bears coarse steps worst, as in llama.cpp's mixtures.
struct MatrixTypes {
  ggml_type all = GGML_TYPE_F16;
  ggml_type output = all;  // of output.weight
};

class Parameters {
 public:
  // Takes the values as a leaf that gathers gradients.
  void add(const std::string& name, const torch::Tensor& values);
  const torch::Tensor& operator[](const std::string& name) const;
  bool holds(const std::string& name) const { return index_.contains(name); }

  struct Entry {
    std::string name;
    torch::Tensor values;
  };
  const std::vector<Entry>& all() const { return entries_; }
  int64_t count() const;  // of values

  // Vectors as F32, matrices as the types say.
  void write(GgufWriter& file, const MatrixTypes& types) const;

 private:
  std::vector<Entry> entries_;
  std::unordered_map<std::string, size_t> index_;
};

torch::Tensor to_tensor(std::span<const float> values, torch::IntArrayRef shape);  // a copy
std::vector<float> to_floats(const torch::Tensor& tensor);

}  // namespace sluice
