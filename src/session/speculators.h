// What there is to guess by for a model: the trained heads that come with the program, and drafts that were downloaded.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "model/head_file.h"
#include "model/hub.h"
#include "model/model_file.h"
#include "model/tokenizer.h"

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

// The models in the cache (model/hub.h) that have the target's vocabulary and are at most half as large, the smallest
// first.
std::vector<CachedModel> cached_drafts(const ModelFile& target, const Tokenizer& vocabulary);

// The path of the first of them. An error if there is none.
Result<std::string> cached_draft(const ModelFile& target, const Tokenizer& vocabulary);

}  // namespace sluice
