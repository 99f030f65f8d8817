// What the set-up put beside the program.
#pragma once

#include <string>

#include "base/result.h"

namespace sluice {

// The folder beside the program's own that holds heads, prompts and the default model.
std::string installation_folder();

// What the default model is, and where it comes from, in the words of help and messages.
inline constexpr const char* kDefaultModel = "SmolLM2-135M-Instruct, which the set-up puts into .venv";

// The path of the default model: SLUICE_MODEL, or the one that the set-up put there. Errors say how to get it.
Result<std::string> default_model();

}  // namespace sluice
