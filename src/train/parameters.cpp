#include "train/parameters.h"

namespace sluice {

void Parameters::add(const std::string& name, const torch::Tensor& values) {
  SLUICE_CHECK(!holds(name), "a name of its own");
  index_.emplace(name, entries_.size());
  entries_.push_back({name, values.detach().clone().contiguous().set_requires_grad(true)});
}

const torch::Tensor& Parameters::operator[](const std::string& name) const {
  SLUICE_CHECK(holds(name), "a parameter of this head");
  return entries_[index_.at(name)].values;
}

int64_t Parameters::count() const {
  int64_t n = 0;
  for (const Entry& entry : entries_) n += entry.values.numel();
  return n;
}

void Parameters::write(GgufWriter& file, const MatrixTypes& types) const {
  for (const Entry& entry : entries_) {
    const auto shape = entry.values.sizes();
    file.add(entry.name, std::vector<int64_t>(shape.begin(), shape.end()), to_floats(entry.values),
             shape.size() == 1               ? GGML_TYPE_F32
             : entry.name == "output.weight" ? types.output
                                             : types.all);
  }
}

torch::Tensor to_tensor(std::span<const float> values, torch::IntArrayRef shape) {
  torch::Tensor tensor = torch::empty(shape);
  SLUICE_CHECK(tensor.numel() == static_cast<int64_t>(values.size()), "values that fill the shape");
  std::copy(values.begin(), values.end(), tensor.data_ptr<float>());
  return tensor;
}

std::vector<float> to_floats(const torch::Tensor& tensor) {
  const torch::Tensor flat = tensor.detach().to(torch::kCPU, torch::kFloat).contiguous();
  return {flat.data_ptr<float>(), flat.data_ptr<float>() + flat.numel()};
}

}  // namespace sluice
