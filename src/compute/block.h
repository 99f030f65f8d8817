// A decoder layer, once for all that computes it:
//
//   n = norm(x);  q, k, v = n W_q^T, n W_k^T, n W_v^T;  q and k: per head a norm if the family has one, then RoPE
//   x += attention(q, keys and values along the path) W_o^T
//   (of latent attention as compute/latent_attention.h says, of a gated delta net as compute/delta_net.h does)
//   m = norm(x);  x += (silu(m W_gate^T) * m W_up^T) W_down^T, or the same of a few experts, weighed
//   and, if the family has it, what compute/per_layer_embedding.h says, and a scale
//
// It is written over a few operations. A backend brings its own, and with them its own layers (weights, with the cells
// of their keys and values) and states x. What an operation leaves, the next one reads; CpuBlock (compute/cpu_block.h)
// says what each does.
#pragma once

namespace sluice {

// The keys and values of the rows at hand, whose input, normed, the operations hold.
template <class Operations, class Layer>
void keep_keys_and_values(Operations& operations, Layer& layer) {
  operations.project_keys_and_values(layer);
  operations.turn_and_keep_keys(layer);
}

// The layer's work on x, when what its rows attend to is known.
template <class Operations, class Layer, class States>
void block_after_attention(Operations& operations, Layer& layer, States x) {
  operations.add_attended(layer, x);
  operations.normalise(x, layer.ffn_norm, layer.ffn_formats);
  if (layer.mixture) {
    operations.add_mixture(layer, x);
  } else {
    operations.gate(layer);
    operations.add_gated(layer, x);
  }
  operations.finish(layer, x);
}

// The same, when its first norm has been taken.
template <class Operations, class Layer, class States>
void block_after_norm(Operations& operations, Layer& layer, States x) {
  operations.project(layer);
  operations.turn_and_keep(layer);
  operations.attend(layer);
  block_after_attention(operations, layer, x);
}

template <class Operations, class Layer, class States>
void block(Operations& operations, Layer& layer, States x) {
  operations.normalise(x, layer.attention_norm, layer.qkv_formats);
  block_after_norm(operations, layer, x);
}

}  // namespace sluice
