#include "model/tensor_check.h"

#include <set>
#include <unordered_set>

#include "model/tensor_table.h"

namespace sluice {

namespace {

class Checker {
 public:
  explicit Checker(const TensorPlaces& places) : places_(places) {}

  void check(int32_t layer, const LayerTensor& rule) {
    const bool is_replaced = rule.unless != nullptr && places_.find(layer_tensor_name(layer, rule.unless));
    check(layer_tensor_name(layer, rule.name), rule, is_replaced ? Need::kOptional : rule.need);
  }

  template <class Rule>
  void check(const std::string& name, const Rule& rule, Need need) {
    const Place at = places_.find(name);
    if (!at && need == Need::kRequired) faults_.push_back("tensor '" + name + "' is missing");
    if (!at) return;
    known_.insert(name);
    if (const auto status = check_tensor(*at.info, shape_of(rule)); !status) faults_.push_back(status.error().message);
  }

  // By name: the order of a hash table is not the same everywhere.
  std::set<std::string> unknown() const {
    std::set<std::string> names;
    for (const auto& [name, at] : places_.all())
      if (!known_.contains(name)) names.insert(name);
    return names;
  }

  std::vector<std::string>& faults() { return faults_; }

 private:
  const TensorPlaces& places_;
  std::unordered_set<std::string> known_;
  std::vector<std::string> faults_;
};

}  // namespace

std::vector<std::string> tensor_faults(const HyperParameters& h, const ModelFamily& family,
                                       const TensorPlaces& places) {
  Checker checker(places);
  for (const ModelTensor& rule : model_tensors(h, family)) checker.check(rule.name, rule, rule.need);
  for (int32_t layer = 0; layer < h.n_layers; ++layer)
    for (const LayerTensor& rule : layer_tensors(h, family, layer)) checker.check(layer, rule);
  const auto is_further = [&](const std::string& name) {
    for (int32_t i = 0; i < h.n_further_layers; ++i)
      if (name.starts_with(layer_tensor_name(h.n_layers + i, ""))) return true;
    return false;
  };
  for (const std::string& name : checker.unknown())
    if (!is_further(name))
      checker.faults().push_back("tensor '" + name + "' is none that a model of architecture " + h.architecture +
                                 " has");
  return std::move(checker.faults());
}

}  // namespace sluice
