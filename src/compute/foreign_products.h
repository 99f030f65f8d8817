// Whose products the bits of a model come from.
#pragma once

#include <string>

#include "model/model_file.h"

namespace sluice {

// The first type of this model's matrices, by name, that no kernel of ours multiplies: its products are ggml's, whose
// bits differ from processor to processor. Empty: there is none, and the bits are the same everywhere.
std::string foreign_product(const ModelFile& model);

// The instruction sets that ggml uses here: where they differ, so may its bits.
std::string ggml_instructions();

}  // namespace sluice
