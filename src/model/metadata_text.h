// Metadata as people read it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model/model_file.h"
#include "model/shards.h"

namespace sluice {

// At most 80 bytes of printable text on one line.
std::string displayed(std::string_view text);

std::vector<MetadataEntry> metadata_entries(const gguf::Header& header);

// general.name, or the file's name without its ending.
std::string name_of(const Shard& shard);

}  // namespace sluice
