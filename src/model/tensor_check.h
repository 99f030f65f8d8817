// Whether a file has the tensors that its model needs.
#pragma once

#include <string>
#include <vector>

#include "model/family.h"
#include "model/tensor_places.h"

namespace sluice {

// What is wrong, a line each: tensors that are missing or not as the hyperparameters say, then those that no model of
// this family has.
std::vector<std::string> tensor_faults(const HyperParameters& hparams, const ModelFamily& family,
                                       const TensorPlaces& places);

}  // namespace sluice
