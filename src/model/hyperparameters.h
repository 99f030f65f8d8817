// From a file's metadata to hyperparameters within their bounds.
#pragma once

#include "model/family.h"
#include "model/gguf.h"

namespace sluice {

// An error names the key; it has no file name in it. What the engine doesn't compute (experts, unknown families,
// unknown RoPE scalings, …) is an error.
Result<HyperParameters> read_hyperparameters(const gguf::Header& header);

}  // namespace sluice
