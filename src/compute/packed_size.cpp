#include "compute/packed_size.h"

#include "compute/kernels/pack.h"

namespace sluice {

std::optional<kernels::WeightForm> packed_form(const ModelFile::TensorSummary& tensor) {
  for (int type = 0; type < GGML_TYPE_COUNT; ++type)
    if (tensor.type == ggml_type_name(static_cast<ggml_type>(type)))
      return kernels::packed_form(static_cast<ggml_type>(type));
  return {};
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

}  // namespace sluice
