// What a killed run goes on from: parameters, optimizer and place in the data, in one GGUF file that is replaced whole.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "train/adamw.h"

namespace sluice {

Status save_checkpoint(const std::string& path, const Parameters& parameters, AdamW& optimizer,
                       const nlohmann::json& state);

// Gives the state. Errors (kInput): no such file, or one of another head; they name file and tensor.
Result<nlohmann::json> load_checkpoint(const std::string& path, Parameters& parameters, AdamW& optimizer);

}  // namespace sluice
