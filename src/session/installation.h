// What the set-up, or the installation, put beside the program.
#pragma once

#include <string>

#include "base/result.h"
#include "model/hub.h"

namespace sluice {

// The folder that holds heads, prompts and the default model: of a program in PREFIX/bin PREFIX/share/sluice, of one
// that was built in a checkout the checkout.
std::string installation_folder();

// What the default model is, and where it comes from, in the words of help and messages.
inline constexpr const char* kDefaultModel = "SmolLM2-135M-Instruct, which the set-up puts into .venv";

// The path of a model that is given by path or by name (model/hub.h); empty: the default model, which is the one of
// SLUICE_MODEL, or the one that the set-up put there. Errors name what was given, SLUICE_MODEL if it was that, or say
// how to get one.
Result<std::string> find_model(const std::string& given, const OnDownload& on_download);

}  // namespace sluice
