// Which target a head belongs to.
#pragma once

#include <string>

#include "model/model_file.h"

namespace sluice {

// 16 hexadecimal digits that change with any retraining or requantisation of the weights, from a few KiB of each tensor
// (docs/formats.md says which).
Result<std::string> fingerprint(const ModelFile& model);

}  // namespace sluice
