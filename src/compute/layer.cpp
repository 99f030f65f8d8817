#include "compute/layer.h"

#include <algorithm>
#include <utility>

namespace sluice {

FormatSet formats_of(std::initializer_list<const Linear*> readers) {
  FormatSet set;
  for (const Linear* reader : readers) set.add(reader->format());
  return set;
}

void embed(const StageWeights& weights, const StageOptions& options, Token token, std::span<float> out) {
  if (options.foreign_tokens && token >= weights.token_embedding.ne[1])
    std::fill(out.begin(), out.end(), 0.0f);
  else
    copy_row_f32(weights.token_embedding, token, out);
}

std::vector<float> vector_or_empty(const Tensor& tensor) {
  return tensor ? to_f32_vector(tensor) : std::vector<float>();
}

Result<Linear> Packer::operator()(const Tensor& weight, const Tensor& bias) const {
  SLUICE_TRY(Linear linear, Linear::create(weight, bias, memory, team));
  weights.release(bias);
  if (linear.is_packed()) weights.release(weight);
  return linear;
}

std::vector<float> Packer::operator()(const Tensor& vector) const {
  auto copy = vector_or_empty(vector);
  weights.release(vector);
  return copy;
}

Result<Layer> make_layer(const Packer& pack, const LayerWeights& w, KvLayer kv) {
  SLUICE_TRY(Linear q, pack(w.q, w.q_bias));
  SLUICE_TRY(Linear k, pack(w.k, w.k_bias));
  SLUICE_TRY(Linear v, pack(w.v, w.v_bias));
  SLUICE_TRY(Linear attention_out, pack(w.attention_out, w.attention_out_bias));
  SLUICE_TRY(Linear gate, pack(w.gate, w.gate_bias));
  SLUICE_TRY(Linear up, pack(w.up, w.up_bias));
  SLUICE_TRY(Linear down, pack(w.down, w.down_bias));
  const FormatSet qkv = formats_of({&q, &k, &v}), out = formats_of({&attention_out});
  const FormatSet ffn = formats_of({&gate, &up}), of_down = formats_of({&down});
  return Layer{.attention_norm = pack(w.attention_norm),
               .ffn_norm = pack(w.ffn_norm),
               .q_norm = pack(w.q_norm),
               .k_norm = pack(w.k_norm),
               .q = std::move(q),
               .k = std::move(k),
               .v = std::move(v),
               .attention_out = std::move(attention_out),
               .gate = std::move(gate),
               .up = std::move(up),
               .down = std::move(down),
               .qkv_formats = qkv,
               .attention_out_formats = out,
               .ffn_formats = ffn,
               .down_formats = of_down,
               .kv = std::move(kv)};
}

Result<Head> make_head(const Packer& pack) {
  SLUICE_TRY(Linear output, pack(pack.weights.output, pack.weights.output_bias));
  const FormatSet formats = formats_of({&output});
  return Head{pack(pack.weights.output_norm), std::move(output), formats};
}

}  // namespace sluice
