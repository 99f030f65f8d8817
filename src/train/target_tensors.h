// The target's weights as floats: what heads borrow and begin with.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "model/model_file.h"

namespace sluice {

class TargetTensors {
 public:
  // Errors (kInput) name a model whose layers no head can begin with.
  static Result<TargetTensors> open(const ModelFile& model);

  // [rows, columns] of a tensor by its name in the file, "blk.3.attn_q.weight"; "output.weight" is the token embedding
  // when that is tied. REQUIRES: it is there.
  std::vector<float> floats(const std::string& name) const;
  bool holds(const std::string& name) const { return tensors_.contains(name); }
  // Some rows of it.
  std::vector<float> rows(const std::string& name, const std::vector<int32_t>& rows) const;

 private:
  explicit TargetTensors(StageWeights weights);
  void add(const std::string& name, const Tensor& tensor);

  StageWeights weights_;
  std::unordered_map<std::string, Tensor> tensors_;
};

}  // namespace sluice
