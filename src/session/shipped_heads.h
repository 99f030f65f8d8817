// The trained heads that come with the program.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "model/head_file.h"

namespace sluice {

struct ShippedHead {
  std::string path;
  HeadParameters parameters;
};

// The files of `folder`, by name, that hold a head or a draft head for exactly this model.
std::vector<ShippedHead> shipped_heads(const std::string& folder, const ModelFile& model);

// The first of them which `fits`.
std::optional<std::string> find_head(const std::string& folder, const ModelFile& model,
                                     const std::function<bool(const HeadParameters&)>& fits);

}  // namespace sluice
