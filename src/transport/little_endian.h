// Numbers in the headers of chunks and of messages between ranks, the lowest byte first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "transport/chunks.h"

namespace sluice {

inline void put_number(uint64_t x, size_t n_bytes, Bytes& out) {
  for (size_t i = 0; i < n_bytes; ++i) out.push_back(static_cast<std::byte>(x >> (8 * i)));
}

// REQUIRES: eight bytes at most.
inline uint64_t number(std::span<const std::byte> bytes) {
  uint64_t x = 0;
  for (size_t i = bytes.size(); i-- > 0;) x = x << 8 | static_cast<uint64_t>(bytes[i]);
  return x;
}

}  // namespace sluice
