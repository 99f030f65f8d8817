// What the set-up put beside the program.
#pragma once

#include <string>

#include "base/result.h"

namespace sluice {

// The folder beside the program's own that holds heads, prompts and the default model.
std::string installation_folder();

// The embedded default model: SLUICE_MODEL, or the one that the set-up put there. Errors say how to get it.
Result<std::string> default_model();

}  // namespace sluice
