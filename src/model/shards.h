// The files of one model: a single GGUF file, or name-00001-of-0000N.gguf and its companions.
#pragma once

#include <string>
#include <vector>

#include "model/file_map.h"
#include "model/gguf.h"

namespace sluice {

struct Shard {
  OpenFile file;
  gguf::Header header;
};

// Opens the model that `path` belongs to, all its shards in order. Each header has been parsed, and the shards agree on
// their numbers and on how many tensors there are; no tensor is in two of them. Errors name the file; kind kInput.
Result<std::vector<Shard>> open_shards(const std::string& path);

}  // namespace sluice
