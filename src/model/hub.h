// Models by name, as llama.cpp knows them: `hf:OWNER/MODEL[:QUANT]` is a GGUF file in a repository of the Hugging Face
// hub, or of the server that MODEL_ENDPOINT or HF_ENDPOINT names. Files are kept in the hub's cache (LLAMA_CACHE,
// HF_HUB_CACHE, HF_HOME, …), which llama.cpp and Python share. HF_TOKEN opens repositories that are not public.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"

namespace sluice {

// Told while a file comes, of how many of its bytes are there. False stops it; what has come is kept for the next time.
using OnDownload = std::function<bool(const std::string& file, uint64_t bytes, uint64_t all)>;

// The path of a model that is given by path or by name. A named one is taken from the cache; if it is not there it is
// downloaded, from where an earlier attempt stopped, and compared with the SHA-256 that the hub states. Without QUANT
// it is Q4_K_M, else Q8_0, else the first. Of a model in several files it is the first one's path. Errors name the
// model, and of a path at which there can be none say what would be right.
Result<std::string> locate_model(const std::string& model, const OnDownload& on_download);

// Names of the models in the cache, and where their files are.
struct CachedModel {
  std::string name;  // hf:OWNER/MODEL:QUANT
  std::string path;
};
std::vector<CachedModel> cached_models();

}  // namespace sluice
