#include "train/target_tensors.h"

#include <cstring>

namespace sluice {

namespace {

void to_floats(const Tensor& tensor, int64_t row, float* out) {
  const std::byte* data = tensor.data + static_cast<size_t>(row) * tensor.row_bytes;
  if (tensor.type == GGML_TYPE_F32)
    std::memcpy(out, data, static_cast<size_t>(tensor.ne[0]) * sizeof(float));
  else
    ggml_get_type_traits(tensor.type)->to_float(data, out, tensor.ne[0]);
}

}  // namespace

Result<TargetTensors> TargetTensors::open(const ModelFile& model) {
  SLUICE_TRY(auto weights, model.map({0, model.hparams().n_layers}, true, true));
  if (model.hparams().window_head_dim > 0)
    return input_error(model.path() +
                       ": heads begin with layers of their target, which here differ in their heads; "
                       "only heads of models whose layers are alike can be trained");
  for (const LayerWeights& layer : weights.layers)
    if (!layer.q || !layer.k || !layer.v || !layer.gate)
      return input_error(model.path() +
                         ": heads begin with layers of their target, which here hold experts or latent attention; "
                         "only heads of models without them can be trained");
  return TargetTensors(std::move(weights));
}

TargetTensors::TargetTensors(StageWeights weights) : weights_(std::move(weights)) {
  add("token_embd.weight", weights_.token_embedding);
  add("output_norm.weight", weights_.output_norm);
  add("output.weight", weights_.output);
  for (size_t i = 0; i < weights_.layers.size(); ++i) {
    const LayerWeights& layer = weights_.layers[i];
    const std::string blk = "blk." + std::to_string(i) + ".";
    add(blk + "attn_norm.weight", layer.attention_norm);
    add(blk + "attn_q.weight", layer.q);
    add(blk + "attn_k.weight", layer.k);
    add(blk + "attn_v.weight", layer.v);
    add(blk + "attn_output.weight", layer.attention_out);
    add(blk + "ffn_norm.weight", layer.ffn_norm);
    add(blk + "ffn_gate.weight", layer.gate);
    add(blk + "ffn_up.weight", layer.up);
    add(blk + "ffn_down.weight", layer.down);
  }
}

void TargetTensors::add(const std::string& name, const Tensor& tensor) {
  if (tensor) tensors_.emplace(name, tensor);
}

std::vector<float> TargetTensors::floats(const std::string& name) const {
  SLUICE_CHECK(holds(name), "a tensor of the target");
  const Tensor& tensor = tensors_.at(name);
  std::vector<float> values(static_cast<size_t>(tensor.ne[0] * tensor.ne[1]));
  for (int64_t row = 0; row < tensor.ne[1]; ++row) to_floats(tensor, row, values.data() + row * tensor.ne[0]);
  return values;
}

std::vector<float> TargetTensors::rows(const std::string& name, const std::vector<int32_t>& rows) const {
  SLUICE_CHECK(holds(name), "a tensor of the target");
  const Tensor& tensor = tensors_.at(name);
  std::vector<float> values(static_cast<size_t>(tensor.ne[0]) * rows.size());
  for (size_t i = 0; i < rows.size(); ++i)
    to_floats(tensor, rows[i], values.data() + i * static_cast<size_t>(tensor.ne[0]));
  return values;
}

}  // namespace sluice
