#include "model/fingerprint.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <span>

#include "base/hash.h"

namespace sluice {

namespace {

template <class T>
void add(uint64_t& hash, const T* data, size_t n) {
  hash = fnv1a(std::as_bytes(std::span(data, n)), hash);
}

void add(uint64_t& hash, const Tensor& tensor) {
  if (!tensor) return;
  constexpr size_t kEnd = 4096;
  const auto type = static_cast<uint32_t>(tensor.type);
  add(hash, &type, 1);
  add(hash, &tensor.ne[0], 2);
  const size_t bytes = tensor.bytes(), end = std::min(bytes, kEnd);
  add(hash, tensor.data, end);
  add(hash, tensor.data + bytes - end, end);
}

}  // namespace

Result<std::string> fingerprint(const ModelFile& model) {
  SLUICE_TRY(const StageWeights weights, model.map({0, model.hparams().n_layers}, true, true));
  uint64_t hash = kHashOfNothing;
  add(hash, weights.token_embedding);
  add(hash, weights.output_norm);
  if (!model.tied_head()) add(hash, weights.output);
  for (const LayerWeights& layer : weights.layers)
    for (const Tensor* tensor :
         {&layer.attention_norm, &layer.q, &layer.k, &layer.v, &layer.attention_out, &layer.ffn_norm, &layer.gate,
          &layer.up, &layer.down, &layer.router, &layer.gate_experts, &layer.up_experts, &layer.down_experts,
          &layer.gate_shared, &layer.up_shared, &layer.down_shared, &layer.sinks})
      add(hash, *tensor);
  return fmt::format("{:016x}", hash);
}

}  // namespace sluice
