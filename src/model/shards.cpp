#include "model/shards.h"

#include <cstdio>
#include <unordered_set>

namespace sluice {

namespace {

constexpr uint16_t kMaxShards = 512;

Result<Shard> open_shard(const std::string& path) {
  SLUICE_TRY(OpenFile file, OpenFile::open(path));
  if (file.size() == 0) return input_error(path + ": is empty; fetch it again");
  SLUICE_TRY(const MappedBytes mapped, file.map(0, file.size()));
  auto header = gguf::Header::parse(mapped.bytes());
  if (!header) return input_error(path + ": " + header.error().message);
  return Shard{std::move(file), std::move(*header)};
}

// A u16 of a file's metadata, or `otherwise` if it is not there.
Result<uint16_t> split_number(const Shard& shard, const char* key, uint16_t otherwise) {
  const gguf::Value* value = shard.header.find(key);
  if (value == nullptr) return otherwise;
  if (value->is_array || value->type != gguf::Type::kUint16)
    return input_error(shard.file.path() + ": metadata key '" + key + "' should be a u16");
  return shard.header.scalar<uint16_t>(*value);
}

std::string shard_suffix(int number, int count) {
  char text[40];
  std::snprintf(text, sizeof(text), "-%05d-of-%05d.gguf", number + 1, count);
  return text;
}

// Tensors over all shards: as many as the first one says, none twice.
Status check_tensors(const std::vector<Shard>& shards) {
  const Shard& first = shards.front();
  const gguf::Value* claimed = first.header.find("split.tensors.count");
  if (claimed == nullptr || claimed->is_array || claimed->type != gguf::Type::kInt32)
    return input_error(first.file.path() + ": metadata key 'split.tensors.count' should be an i32");
  std::unordered_set<std::string_view> names;
  for (const Shard& shard : shards) {
    for (const gguf::TensorInfo& tensor : shard.header.tensors())
      if (!names.insert(tensor.name).second)
        return input_error(shard.file.path() + ": tensor '" + tensor.name + "' is in another shard too");
  }
  const auto expected = first.header.scalar<int32_t>(*claimed);
  if (expected < 0 || names.size() != static_cast<size_t>(expected))
    return input_error(first.file.path() + ": the shards have " + std::to_string(names.size()) + " tensors, not " +
                       std::to_string(expected) + " as the first one says");
  return {};
}

}  // namespace

Result<std::vector<Shard>> open_shards(const std::string& path) {
  SLUICE_TRY(Shard named, open_shard(path));
  SLUICE_TRY(const uint16_t count, split_number(named, "split.count", 0));
  SLUICE_TRY(const uint16_t number, split_number(named, "split.no", 0));
  std::vector<Shard> shards;
  if (count <= 1) {
    shards.push_back(std::move(named));
    return shards;
  }
  const std::string suffix = shard_suffix(number, count);
  if (count > kMaxShards || number >= count || path.size() <= suffix.size() || !path.ends_with(suffix))
    return input_error(path + ": is shard " + std::to_string(number + 1) + " of " + std::to_string(count) +
                       "; its name should end in " + suffix);
  const std::string prefix = path.substr(0, path.size() - suffix.size());
  for (uint16_t i = 0; i < count; ++i) {
    SLUICE_TRY(Shard shard, open_shard(prefix + shard_suffix(i, count)));
    SLUICE_TRY(const uint16_t its_number, split_number(shard, "split.no", UINT16_MAX));
    SLUICE_TRY(const uint16_t its_count, split_number(shard, "split.count", count));
    if (its_number != i || its_count != count)
      return input_error(shard.file.path() + ": says it is shard " + std::to_string(its_number + 1) + " of " +
                         std::to_string(its_count) + ", not what its name says");
    shards.push_back(std::move(shard));
  }
  SLUICE_TRY_STATUS(check_tensors(shards));
  return shards;
}

}  // namespace sluice
