// What a GGUF file holds, whether or not a model can be made of it, and all that stands against that.
#pragma once

#include <string>
#include <vector>

#include "model/tensor_places.h"

namespace sluice {

// The members up to unsupported() are as a ModelFile's.
class Survey {
 public:
  // Errors (kInput): the file, or one of its shards, is no GGUF file that can be read to its end.
  static Result<Survey> open(const std::string& path);

  const std::string& path() const { return shards_.front()->file.path(); }
  std::string general_type() const { return places_.general_type(); }
  int64_t parameter_count() const { return places_.parameter_count(); }
  uint64_t file_bytes() const { return bytes_of(shards_); }
  std::vector<MetadataEntry> metadata() const;
  std::vector<ModelFile::TensorSummary> tensors() const { return places_.summaries(shards_); }
  // As the file gives them, without any check; what it doesn't give, or layer by layer, is 0.
  HyperParameters hparams() const;

  // One line for each reason that can be told without the others, tensors of several layers together: an architecture
  // that is not known, hyperparameters and settings that are not computed, tensors that are missing, too many, or of a
  // wrong shape or type, a vocabulary that cannot be read. Empty: ModelFile::open and Tokenizer::load may still fail.
  std::vector<std::string> unsupported() const;

 private:
  explicit Survey(Shards shards) : shards_(std::move(shards)), places_(shards_) {}
  const gguf::Header& header() const { return shards_.front()->header; }
  std::vector<std::string> matrices_of_wrong_type() const;

  Shards shards_;
  TensorPlaces places_;
};

}  // namespace sluice
