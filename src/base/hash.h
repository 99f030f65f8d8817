// FNV-1a, 64 bits: tells contents apart that nobody forged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace sluice {

inline constexpr uint64_t kHashOfNothing = 0xcbf29ce484222325u;

// Of what `hash` is of and then `bytes`.
inline uint64_t fnv1a(std::span<const std::byte> bytes, uint64_t hash = kHashOfNothing) {
  for (const std::byte b : bytes) hash = (hash ^ static_cast<uint64_t>(b)) * 0x100000001b3u;
  return hash;
}

}  // namespace sluice
