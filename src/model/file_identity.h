// What is in a file, said in 32 bytes: two files of one identity hold the same, bit for bit.
#pragma once

#include <cstddef>
#include <span>

#include "base/hash.h"
#include "base/result.h"
#include "model/file_map.h"

namespace sluice {

Sha256 sha256(std::span<const std::byte> bytes);

// SHA-256 of all of the file. Reading a large one takes a while, so the result is kept in the user's cache folder, by
// the file's path, size and times; a cache that cannot be read or written costs no more than that while. Errors
// (kRuntime) name the file: it has changed since it was opened, or cannot be read.
Result<Sha256> file_identity(const OpenFile& file);

// Of several files that belong together, in this order: SHA-256 of theirs, one after another; of a single one its own.
Sha256 identity_of_all(std::span<const Sha256> files);

}  // namespace sluice
