#include "model/fingerprint.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>

namespace sluice {

namespace {

class Fnv1a {
 public:
  void add(const void* data, size_t bytes) {
    for (size_t i = 0; i < bytes; ++i) hash_ = (hash_ ^ static_cast<const unsigned char*>(data)[i]) * 0x100000001b3u;
  }
  template <class T>
  void add(T value) {
    add(&value, sizeof value);
  }
  uint64_t hash() const { return hash_; }

 private:
  uint64_t hash_ = 0xcbf29ce484222325u;
};

void add(Fnv1a& hash, const Tensor& tensor) {
  if (!tensor) return;
  constexpr size_t kEnd = 4096;
  hash.add(static_cast<uint32_t>(tensor.type));
  hash.add(tensor.ne[0]);
  hash.add(tensor.ne[1]);
  const size_t bytes = tensor.row_bytes * static_cast<size_t>(tensor.ne[1]), end = std::min(bytes, kEnd);
  hash.add(tensor.data, end);
  hash.add(tensor.data + bytes - end, end);
}

}  // namespace

Result<std::string> fingerprint(const ModelFile& model) {
  SLUICE_TRY(const StageWeights weights, model.map({0, model.hparams().n_layers}, true, true));
  Fnv1a hash;
  add(hash, weights.token_embedding);
  add(hash, weights.output_norm);
  if (!model.tied_head()) add(hash, weights.output);
  for (const LayerWeights& layer : weights.layers)
    for (const Tensor* tensor : {&layer.attention_norm, &layer.q, &layer.k, &layer.v, &layer.attention_out,
                                 &layer.ffn_norm, &layer.gate, &layer.up, &layer.down})
      add(hash, *tensor);
  return fmt::format("{:016x}", hash.hash());
}

}  // namespace sluice
