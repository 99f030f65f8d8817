#include "model/tensor_table.h"

#include <algorithm>

namespace sluice {

namespace {

void add_experts(const HyperParameters& h, const ModelFamily& family, std::vector<LayerTensor>& table) {
  using W = LayerWeights;
  const int64_t d = h.d_model, n = h.mixture.n_experts, ff = h.mixture.d_ff, shared = h.mixture.d_shared;
  const char* const both = h.mixture.beside_dense ? "ffn_gate_up_exps.weight" : nullptr;
  table.push_back({"ffn_gate_inp.weight", &W::router, Need::kRequired, d, n});
  table.push_back({"ffn_gate_exps.weight", &W::gate_experts, Need::kRequired, d, ff, n, false, both});
  table.push_back({"ffn_up_exps.weight", &W::up_experts, Need::kRequired, d, ff, n, false, both});
  table.push_back({"ffn_down_exps.weight", &W::down_experts, Need::kRequired, ff, d, n});
  if (h.mixture.beside_dense) {
    table.push_back({both, &W::gate_up_experts, Need::kOptional, d, 2 * ff, n});
    table.push_back({"ffn_down_exps.scale", &W::expert_scales, Need::kOptional, n});
    table.push_back({"ffn_gate_inp.scale", &W::router_norm, Need::kRequired, d});
    table.push_back({"pre_ffw_norm_2.weight", &W::experts_norm, Need::kRequired, d});
    table.push_back({"post_ffw_norm_2.weight", &W::experts_post_norm, Need::kRequired, d});
    table.push_back({"post_ffw_norm_1.weight", &W::dense_post_norm, Need::kRequired, d});
  }
  if (h.mixture.biased || family.experts.as_said)
    table.push_back(
        {"exp_probs_b.bias", &W::router_share_bias, h.mixture.biased ? Need::kRequired : Need::kOptional, n});
  if (family.experts.has_biases) {
    table.push_back({"ffn_gate_inp.bias", &W::router_logit_bias, Need::kRequired, n});
    table.push_back({"ffn_gate_exps.bias", &W::gate_expert_biases, Need::kRequired, ff, n, 1, /*of_vectors=*/true});
    table.push_back({"ffn_up_exps.bias", &W::up_expert_biases, Need::kRequired, ff, n, 1, /*of_vectors=*/true});
    table.push_back({"ffn_down_exps.bias", &W::down_expert_biases, Need::kRequired, d, n, 1, /*of_vectors=*/true});
  }
  if (shared == 0) return;
  if (h.mixture.is_shared_gated) table.push_back({"ffn_gate_inp_shexp.weight", &W::shared_router, Need::kRequired, d});
  table.push_back({"ffn_gate_shexp.weight", &W::gate_shared, Need::kRequired, d, shared});
  table.push_back({"ffn_up_shexp.weight", &W::up_shared, Need::kRequired, d, shared});
  table.push_back({"ffn_down_shexp.weight", &W::down_shared, Need::kRequired, shared, d});
}

void add_attention(const HyperParameters& h, const ModelFamily& family, int32_t layer,
                   std::vector<LayerTensor>& table) {
  using W = LayerWeights;
  constexpr Need kRequired = Need::kRequired, kOptional = Need::kOptional;
  const int64_t d = h.d_model, head = h.head_dim_of(layer), n_q = head * h.n_heads, n_kv = head * h.kv_heads_of(layer);
  const Need own_keys = h.kv_layer_of(layer) == layer ? kRequired : kOptional;  // which files may have nevertheless
  const Need qkv_bias = family.qkv_bias_required ? kRequired : kOptional;
  table.push_back({"attn_q.weight", &W::q, kRequired, d, h.gated_attention ? 2 * n_q : n_q});
  table.push_back({"attn_k.weight", &W::k, own_keys, d, n_kv});
  table.push_back({"attn_v.weight", &W::v, family.normed_values ? kOptional : kRequired, d, n_kv});
  if (!family.normed_values) {
    table.push_back({"attn_q.bias", &W::q_bias, qkv_bias, n_q});
    table.push_back({"attn_k.bias", &W::k_bias, qkv_bias, n_kv});
    table.push_back({"attn_v.bias", &W::v_bias, qkv_bias, n_kv});
  }
  table.push_back({"attn_output.weight", &W::attention_out, kRequired, n_q, d});
  if (family.qk_norm != ModelFamily::QkNorm::kNone) {
    const Need need = family.qk_norm == ModelFamily::QkNorm::kRequired ? kRequired : kOptional;
    table.push_back({"attn_q_norm.weight", &W::q_norm, need, head});
    table.push_back({"attn_k_norm.weight", &W::k_norm, std::max(need, own_keys), head});
  }
  if (family.inner_biases || family.out_bias_required)
    table.push_back({"attn_output.bias", &W::attention_out_bias, family.out_bias_required ? kRequired : kOptional, d});
  if (family.sinks) table.push_back({"attn_sinks.weight", &W::sinks, kRequired, h.n_heads});
}

void add_latent_attention(const HyperParameters& h, std::vector<LayerTensor>& table) {
  using W = LayerWeights;
  constexpr Need kRequired = Need::kRequired;
  const LatentParameters& l = h.latent;
  const int64_t d = h.d_model, n = h.n_heads, turned = h.rope.n_dims, n_q = n * (l.key + turned);
  if (l.q_rank > 0) {
    table.push_back({"attn_q_a.weight", &W::q_a, kRequired, d, l.q_rank});
    table.push_back({"attn_q_a_norm.weight", &W::q_a_norm, kRequired, l.q_rank});
    table.push_back({"attn_q_b.weight", &W::q_b, kRequired, l.q_rank, n_q});
  } else {
    table.push_back({"attn_q.weight", &W::q, kRequired, d, n_q});
  }
  table.push_back({"attn_kv_a_mqa.weight", &W::kv_a, kRequired, d, l.rank + turned});
  table.push_back({"attn_kv_a_norm.weight", &W::kv_a_norm, kRequired, l.rank});
  table.push_back({"attn_k_b.weight", &W::k_b, kRequired, l.key, l.rank, n});
  table.push_back({"attn_v_b.weight", &W::v_b, kRequired, l.rank, l.value, n});
  table.push_back({"attn_output.weight", &W::attention_out, kRequired, n * l.value, d});
}

void add_delta_net(const HyperParameters& h, const ModelFamily& family, std::vector<LayerTensor>& table) {
  using W = LayerWeights;
  constexpr Need kRequired = Need::kRequired;
  const DeltaNetParameters& delta = h.delta;
  const int64_t d = h.d_model, n = delta.n_value_heads, mixed = delta.mixed_width(), width = delta.value_width();
  table.push_back({"attn_qkv.weight", &W::mixed, kRequired, d, mixed});
  table.push_back({"attn_gate.weight", &W::output_gate, kRequired, d, width});
  table.push_back({"ssm_conv1d.weight", &W::convolution, kRequired, delta.n_taps, mixed, 1, /*of_vectors=*/true});
  if (family.delta.grouped) {
    table.push_back({"ssm_ba.weight", &W::intake_and_keep, kRequired, d, 2 * n});
  } else {
    table.push_back({"ssm_beta.weight", &W::intake, kRequired, d, n});
    table.push_back({"ssm_alpha.weight", &W::keep, kRequired, d, n});
  }
  table.push_back({"ssm_dt.bias", &W::keep_bias, kRequired, n});
  table.push_back({"ssm_a", &W::keep_factor, kRequired, n});
  table.push_back({"ssm_norm.weight", &W::state_norm, kRequired, delta.head_dim});
  table.push_back({"ssm_out.weight", &W::attention_out, kRequired, width, d});
}

}  // namespace

std::vector<LayerTensor> layer_tensors(const HyperParameters& h, const ModelFamily& family, int32_t layer) {
  using W = LayerWeights;
  constexpr Need kRequired = Need::kRequired, kOptional = Need::kOptional;
  const int64_t d = h.d_model, ff = h.d_ff_of(layer);
  std::vector<LayerTensor> table = {
      {"attn_norm.weight", &W::attention_norm, kRequired, d},
      {family.ffn_norm, &W::ffn_norm, kRequired, d},
  };
  if (h.delta.is_in(layer))
    add_delta_net(h, family, table);
  else if (h.latent)
    add_latent_attention(h, table);
  else
    add_attention(h, family, layer, table);
  if (family.post_norms) {
    table.push_back({"post_attention_norm.weight", &W::attention_post_norm, kRequired, d});
    table.push_back({"post_ffw_norm.weight", &W::ffn_post_norm, kRequired, d});
  }
  if (h.d_per_layer > 0) {
    table.push_back({"inp_gate.weight", &W::per_layer_gate, kRequired, d, h.d_per_layer});
    table.push_back({"proj.weight", &W::per_layer_out, kRequired, h.d_per_layer, d});
    table.push_back({"post_norm.weight", &W::per_layer_post_norm, kRequired, d});
  }
  if (family.output_scales) table.push_back({"layer_output_scale.weight", &W::output_scale, kOptional, 1});
  if (h.mixture.is_in(layer)) {
    add_experts(h, family, table);
    if (!h.mixture.beside_dense) return table;
  }
  table.push_back({"ffn_gate.weight", &W::gate, kRequired, d, ff});
  table.push_back({"ffn_up.weight", &W::up, kRequired, d, ff});
  table.push_back({"ffn_down.weight", &W::down, kRequired, ff, d});
  if (family.inner_biases) {
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
  using Factors = ModelFamily::RopeFactors;
  if (family.rope_factors != Factors::kNone) {
    const bool is_used = std::ranges::count(h.sees_window, 1) < h.n_layers;
    const Need need = family.rope_factors == Factors::kRequired && is_used ? Need::kRequired : Need::kOptional;
    table.push_back({kRopeFactors, TensorUser::kLayers, &W::rope_factors, need, h.rope.n_dims / 2});
  }
  if (h.d_per_layer > 0) {
    const int64_t width = int64_t{h.n_layers} * h.d_per_layer;
    table.push_back(
        {kPerLayerEmbedding, TensorUser::kLayers, &W::per_layer_embedding, Need::kRequired, width, h.n_vocab});
    table.push_back(
        {kPerLayerProjection, TensorUser::kLayers, &W::per_layer_projection, Need::kRequired, h.d_model, width});
    table.push_back(
        {"per_layer_proj_norm.weight", TensorUser::kLayers, &W::per_layer_norm, Need::kRequired, h.d_per_layer});
  }
  return table;
}

}  // namespace sluice
