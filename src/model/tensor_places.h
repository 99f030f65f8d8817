// The tensors of one or several files by name: where they lie, whether they are what they should be, and their mapping.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "model/model_file.h"
#include "model/shards.h"

namespace sluice {

// A tensor and the file that it is in.
struct Place {
  const gguf::TensorInfo* info = nullptr;
  const Shard* shard = nullptr;

  explicit operator bool() const { return info != nullptr; }
  Tensor tensor(const std::byte* data) const {
    return {info->name, info->type, {info->ne[0], info->ne[1]}, data, info->row_bytes, info->ne[2]};
  }
};

// Opened files. A draft model shares those of its target.
using Shards = std::vector<std::shared_ptr<const Shard>>;
Shards shared(std::vector<Shard> shards);
uint64_t bytes_of(std::span<const std::shared_ptr<const Shard>> shards);
std::vector<std::shared_ptr<const OpenFile>> files_of(const Shards& shards);

// REQUIRES: the shards live as long.
class TensorPlaces {
 public:
  TensorPlaces() = default;
  explicit TensorPlaces(const Shards& shards);

  // Empty if there is none of that name.
  Place find(const std::string& name) const;
  uint64_t bytes_of(const std::string& name) const;
  void add(const std::string& name, const Place& place) { places_[name] = place; }
  const std::unordered_map<std::string, Place>& all() const { return places_; }

  int64_t parameter_count() const;
  std::string general_type() const;  // e.g. "Q4_1 mostly", for people
  std::vector<ModelFile::TensorSummary> summaries(const Shards& shards) const;

 private:
  std::unordered_map<std::string, Place> places_;
};

// A matrix [n_out, n_in] of any weight type, n of them, or with n_out = 0 a vector [n_in] of f32. of_vectors: a matrix
// whose rows are such vectors.
struct TensorShape {
  int64_t n_in = 0, n_out = 0, n = 1;
  bool of_vectors = false;
};

// Whether matrices may be of this type: products can be computed with it.
bool is_weight_type(ggml_type type);
// What is said of a matrix of another one.
std::string wrong_type(const gguf::TensorInfo& tensor);

// Whether it is of this shape.
Status check_tensor(const gguf::TensorInfo& tensor, TensorShape expected);

// One run of mapped pages of one file.
struct StageWeights::Mapping {
  const Shard* shard = nullptr;
  uint64_t begin = 0, end = 0;  // in the file
  MappedBytes pages;
};

// A tensor to be mapped and where it is to be entered.
struct WantedTensor {
  Tensor* target;
  Place place;
};

// Maps the pages that hold these tensors, and no others, and enters the tensors. They live as long as what is returned.
Result<std::vector<std::unique_ptr<StageWeights::Mapping>>> map_tensors(const std::vector<WantedTensor>& wanted);

}  // namespace sluice
