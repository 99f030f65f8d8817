// The trained heads that come with the program.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "model/head_file.h"

namespace sluice {

// The first file of `folder`, by name, that holds a head for exactly this model which `fits`. Files that are no heads
// are passed over.
std::optional<std::string> find_head(const std::string& folder, const ModelFile& model,
                                     const std::function<bool(const HeadParameters&)>& fits);

}  // namespace sluice
