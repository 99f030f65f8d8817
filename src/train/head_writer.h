// Trained heads as files (docs/formats.md, "Heads").
#pragma once

#include "model/model_file.h"
#include "train/trainee.h"

namespace sluice {

// The file appears whole or not at all. Errors name it.
Status write_head(const Trainee& trainee, const ModelFile& target, const MatrixTypes& types, const std::string& path);

}  // namespace sluice
