// The SHA-256 of each block of a file, as far as they are known.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <vector>

#include "base/hash.h"
#include "base/result.h"
#include "model/file_map.h"

namespace sluice {

// Blocks are numbered from the file's beginning. Kept in a file that is read and written whole; without the SHA-256 of
// all before it, at its end, nothing in it counts.
class BlockHashes {
 public:
  // What is at this path, or nothing.
  static BlockHashes load(const std::string& path);
  std::error_code save(const std::string& path) const;

  std::optional<Sha256> find(uint32_t block) const;
  void set(uint32_t block, const Sha256& hash) { hashes_[block] = hash; }
  size_t size() const { return hashes_.size(); }

 private:
  std::map<uint32_t, Sha256> hashes_;
};

// Bytes of a block of a file of so many bytes; 0: it has no such block.
uint64_t bytes_of_block(uint64_t file_bytes, uint64_t block_bytes, uint32_t block);

// Of these blocks of a file, in their order. Reading many takes a while, so the result is kept in the user's cache
// folder, by the file's identity; a cache that cannot be read or written costs no more than that while. Errors
// (kRuntime) name the file: it has changed since it was opened, or cannot be read. REQUIRES: the file has these blocks.
Result<std::vector<Sha256>> hashes_of_blocks(const OpenFile& file, uint64_t block_bytes,
                                             std::span<const uint32_t> blocks);

}  // namespace sluice
