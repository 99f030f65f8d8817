#include "compute/foreign_products.h"

#include <ggml-cpu.h>

#include <utility>

#include "compute/packed_size.h"

namespace sluice {

std::string foreign_product(const ModelFile& model) {
  for (const ModelFile::TensorSummary& tensor : model.tensors())
    if (tensor.ne[1] > 1 && !packed_form(tensor)) return tensor.type;
  return {};
}

std::string ggml_instructions() {
  const std::pair<const char*, int> all[] = {
      {"avx", ggml_cpu_has_avx()},
      {"avx2", ggml_cpu_has_avx2()},
      {"f16c", ggml_cpu_has_f16c()},
      {"fma", ggml_cpu_has_fma()},
      {"avxvnni", ggml_cpu_has_avx_vnni()},
      {"avx512", ggml_cpu_has_avx512()},
      {"avx512vnni", ggml_cpu_has_avx512_vnni()},
      {"avx512bf16", ggml_cpu_has_avx512_bf16()},
      {"amx", ggml_cpu_has_amx_int8()},
      {"neon", ggml_cpu_has_neon()},
      {"dotprod", ggml_cpu_has_dotprod()},
      {"i8mm", ggml_cpu_has_matmul_int8()},
      {"sve", ggml_cpu_has_sve()},
  };
  std::string names;
  for (const auto& [name, there] : all)
    if (there != 0) names += (names.empty() ? "" : " ") + std::string(name);
  return names;
}

}  // namespace sluice
