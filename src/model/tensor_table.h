// Which tensors a model must and may have, with their shapes and the places where the engine finds them.
#pragma once

#include <string>
#include <vector>

#include "model/family.h"
#include "model/model_file.h"
#include "model/tensor_places.h"

namespace sluice {

enum class Need : uint8_t { kRequired, kOptional };

// One tensor of a layer ("blk.<layer>.<name>").
struct LayerTensor {
  const char* name;
  Tensor LayerWeights::*member;
  Need need;
  int64_t n_in = 0, n_out = 0, n = 1;  // as in TensorShape
  bool of_vectors = false;
  const char* unless = nullptr;  // not required beside this one
};
inline TensorShape shape_of(const LayerTensor& rule) { return {rule.n_in, rule.n_out, rule.n, rule.of_vectors}; }

// One tensor of the model, and which stages need it.
enum class TensorUser : uint8_t { kEmbedding, kLayers, kHead };
struct ModelTensor {
  const char* name;
  TensorUser user;
  Tensor StageWeights::*member;
  Need need;
  int64_t n_in = 0, n_out = 0;
};
inline TensorShape shape_of(const ModelTensor& rule) { return {rule.n_in, rule.n_out}; }

inline constexpr const char *kTokenEmbedding = "token_embd.weight", *kOutputNorm = "output_norm.weight",
                            *kOutput = "output.weight", *kRopeFactors = "rope_freqs.weight",
                            *kPerLayerEmbedding = "per_layer_token_embd.weight",
                            *kPerLayerProjection = "per_layer_model_proj.weight";

std::vector<LayerTensor> layer_tensors(const HyperParameters& hparams, const ModelFamily& family, int32_t layer);
std::vector<ModelTensor> model_tensors(const HyperParameters& hparams, const ModelFamily& family);

inline std::string layer_tensor_name(int32_t layer, const char* name) {
  return "blk." + std::to_string(layer) + "." + name;
}

}  // namespace sluice
