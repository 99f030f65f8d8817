// What matrices take in memory.
#pragma once

#include <optional>

#include "compute/kernels/table.h"
#include "model/model_file.h"

namespace sluice {

// The form in which our kernels have it; of NVFP4 there is none.
std::optional<kernels::WeightForm> packed_form(const ModelFile::TensorSummary& tensor);

// By how much the matrices of a model grow when they are packed for our kernels: their bytes in memory over those in
// the file, all together. 1 if there are none.
double packed_growth(const ModelFile& model);

// Keeps indices from now on (kernels::keep_indices) if that makes this model smaller than it would be now; whether so.
bool make_compact(const ModelFile& model);

// Of the experts of these layers, packed; 0: they have none. A layer's: of the layer of them that has most.
int64_t expert_bytes(const ModelFile& model, LayerRange layers);
int64_t expert_bytes_of_layer(const ModelFile& model, LayerRange layers);

}  // namespace sluice
