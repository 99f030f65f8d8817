#include "model/block_hashes.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/file.h"
#include "model/file_identity.h"

namespace sluice {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kTitle = "sluice blocks 1\n";
constexpr size_t kHashBytes = sizeof(Sha256::bytes), kEntryBytes = sizeof(uint32_t) + kHashBytes;

Sha256 sha256_of(std::string_view text) { return sha256(std::as_bytes(std::span(text))); }
std::string_view bytes_of(const Sha256& hash) { return {reinterpret_cast<const char*>(hash.bytes.data()), kHashBytes}; }

}  // namespace

BlockHashes BlockHashes::load(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  BlockHashes known;
  if (!text.starts_with(kTitle) || text.size() < kTitle.size() + kHashBytes) return known;
  std::string_view entries(text);
  entries.remove_suffix(kHashBytes);
  if (!text.ends_with(bytes_of(sha256_of(entries)))) return known;
  entries.remove_prefix(kTitle.size());
  for (; entries.size() >= kEntryBytes; entries.remove_prefix(kEntryBytes)) {
    uint32_t block = 0;
    Sha256 hash;
    std::memcpy(&block, entries.data(), sizeof block);
    std::memcpy(hash.bytes.data(), entries.data() + sizeof block, kHashBytes);
    known.set(block, hash);
  }
  return known;
}

std::error_code BlockHashes::save(const std::string& path) const {
  std::string text(kTitle);
  for (const auto& [block, hash] : hashes_) {
    text.append(reinterpret_cast<const char*>(&block), sizeof block);
    text.append(bytes_of(hash));
  }
  text.append(bytes_of(sha256_of(text)));
  return write_whole(path, text, /*durable=*/false);  // else found again
}

std::optional<Sha256> BlockHashes::find(uint32_t block) const {
  const auto found = hashes_.find(block);
  return found == hashes_.end() ? std::nullopt : std::optional(found->second);
}

uint64_t bytes_of_block(uint64_t file_bytes, uint64_t block_bytes, uint32_t block) {
  const uint64_t begin = block * block_bytes;
  return begin >= file_bytes ? 0 : std::min(block_bytes, file_bytes - begin);
}

Result<std::vector<Sha256>> hashes_of_blocks(const OpenFile& file, uint64_t block_bytes,
                                             std::span<const uint32_t> blocks) {
  SLUICE_TRY(const Sha256 identity, file_identity(file));
  const fs::path kept = fs::path(cache_folder()) / "blocks" / (identity.hex() + "-" + std::to_string(block_bytes));
  BlockHashes known = BlockHashes::load(kept.string());
  const size_t n_known = known.size();
  std::vector<Sha256> hashes;
  std::vector<std::byte> bytes;
  for (const uint32_t block : blocks) {
    if (!known.find(block)) {
      bytes.resize(bytes_of_block(file.size(), block_bytes, block));
      SLUICE_CHECK(!bytes.empty(), "a block of the file");
      SLUICE_TRY_STATUS(file.read(block * block_bytes, bytes));
      known.set(block, sha256(bytes));
    }
    hashes.push_back(*known.find(block));
  }
  if (known.size() == n_known) return hashes;
  SLUICE_TRY_STATUS(file.check_unchanged());
  std::error_code error;
  fs::create_directories(kept.parent_path(), error);
  (void)known.save(kept.string());
  return hashes;
}

}  // namespace sluice
