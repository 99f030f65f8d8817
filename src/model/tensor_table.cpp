#include "model/tensor_table.h"

namespace sluice {

std::vector<LayerTensor> layer_tensors(const HyperParameters& h, const ModelFamily& family) {
  using W = LayerWeights;
  constexpr Need kRequired = Need::kRequired, kOptional = Need::kOptional;
  const int64_t d = h.d_model, ff = h.d_ff, head = h.head_dim;
  const int64_t n_q = head * h.n_heads, n_kv = head * h.n_kv_heads;
  const Need qkv_bias = family.qkv_bias_required ? kRequired : kOptional;
  std::vector<LayerTensor> table = {
      {"attn_norm.weight", &W::attention_norm, kRequired, d},
      {"attn_q.weight", &W::q, kRequired, d, n_q},
      {"attn_k.weight", &W::k, kRequired, d, n_kv},
      {"attn_v.weight", &W::v, kRequired, d, n_kv},
      {"attn_q.bias", &W::q_bias, qkv_bias, n_q},
      {"attn_k.bias", &W::k_bias, qkv_bias, n_kv},
      {"attn_v.bias", &W::v_bias, qkv_bias, n_kv},
      {"attn_output.weight", &W::attention_out, kRequired, n_q, d},
      {"ffn_norm.weight", &W::ffn_norm, kRequired, d},
      {"ffn_gate.weight", &W::gate, kRequired, d, ff},
      {"ffn_up.weight", &W::up, kRequired, d, ff},
      {"ffn_down.weight", &W::down, kRequired, ff, d},
  };
  if (family.qk_norm) {
    table.push_back({"attn_q_norm.weight", &W::q_norm, kRequired, head});
    table.push_back({"attn_k_norm.weight", &W::k_norm, kRequired, head});
  }
  if (family.inner_biases) {
    table.push_back({"attn_output.bias", &W::attention_out_bias, kOptional, d});
    table.push_back({"ffn_gate.bias", &W::gate_bias, kOptional, ff});
    table.push_back({"ffn_up.bias", &W::up_bias, kOptional, ff});
    table.push_back({"ffn_down.bias", &W::down_bias, kOptional, d});
  }
  return table;
}

std::vector<ModelTensor> model_tensors(const HyperParameters& h, const ModelFamily& family) {
  using W = StageWeights;
  std::vector<ModelTensor> table = {
      {kTokenEmbedding, TensorUser::kEmbedding, &W::token_embedding, Need::kRequired, h.d_model, h.n_vocab},
      {kOutputNorm, TensorUser::kHead, &W::output_norm, Need::kRequired, h.d_model},
      {kOutput, TensorUser::kHead, &W::output, Need::kOptional, h.d_model, h.n_vocab},
  };
  if (family.output_bias)
    table.push_back({"output.bias", TensorUser::kHead, &W::output_bias, Need::kOptional, h.n_vocab});
  if (family.rope_factors)
    table.push_back({kRopeFactors, TensorUser::kLayers, &W::rope_factors, Need::kOptional, h.rope.n_dims / 2});
  return table;
}

}  // namespace sluice
