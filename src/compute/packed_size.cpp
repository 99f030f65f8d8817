#include "compute/packed_size.h"

#include <algorithm>
#include <numeric>

#include "compute/kernels/pack.h"
#include "model/tensor_table.h"

namespace sluice {

std::optional<kernels::WeightForm> packed_form(const ModelFile::TensorSummary& tensor) {
  for (int type = 0; type < GGML_TYPE_COUNT; ++type)
    if (tensor.type == ggml_type_name(static_cast<ggml_type>(type)))
      return kernels::packed_form(static_cast<ggml_type>(type));
  return {};
}

namespace {

uint64_t packed_bytes(const ModelFile::TensorSummary& tensor) {
  const auto form = packed_form(tensor);
  if (!form) return 0;  // it stays in the file
  return kernels::packed_bytes(*form, tensor.ne[0], tensor.ne[1]) * static_cast<uint64_t>(tensor.ne[2]);
}

// [layers]
std::vector<int64_t> expert_bytes_by_layer(const ModelFile& model, LayerRange layers) {
  std::vector<int64_t> bytes(static_cast<size_t>(layers.count()));
  for (const ModelFile::TensorSummary& tensor : model.tensors()) {
    if (!tensor.name.ends_with("_exps.weight")) continue;
    for (int32_t layer = layers.first; layer < layers.last; ++layer)
      if (tensor.name.starts_with(layer_tensor_name(layer, "")))
        bytes[static_cast<size_t>(layer - layers.first)] += static_cast<int64_t>(packed_bytes(tensor));
  }
  return bytes;
}

}  // namespace

int64_t expert_bytes(const ModelFile& model, LayerRange layers) {
  const auto bytes = expert_bytes_by_layer(model, layers);
  return std::accumulate(bytes.begin(), bytes.end(), int64_t{0});
}

int64_t expert_bytes_of_layer(const ModelFile& model, LayerRange layers) {
  const auto bytes = expert_bytes_by_layer(model, layers);
  return bytes.empty() ? 0 : *std::ranges::max_element(bytes);
}

double packed_growth(const ModelFile& model) {
  double in_file = 0.0, in_memory = 0.0;
  for (const ModelFile::TensorSummary& tensor : model.tensors()) {
    if (tensor.ne[1] == 1) continue;
    const auto form = packed_form(tensor);
    const auto bytes = static_cast<double>(tensor.bytes);
    in_file += bytes;
    in_memory += form ? static_cast<double>(kernels::packed_bytes(*form, tensor.ne[0], tensor.ne[1]) *
                                            static_cast<size_t>(tensor.ne[2]))
                      : bytes;
  }
  return in_file > 0.0 ? in_memory / in_file : 1.0;
}

bool make_compact(const ModelFile& model) {
  const double before = packed_growth(model);
  const bool kept = kernels::indices_are_kept();
  kernels::keep_indices(true);
  const bool smaller = packed_growth(model) < before;
  kernels::keep_indices(kept || smaller);
  return smaller;
}

}  // namespace sluice
