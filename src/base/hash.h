// Hashes of 64 bits: they tell contents apart that nobody forged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace sluice {

inline constexpr uint64_t kHashOfNothing = 0xcbf29ce484222325u;

// FNV-1a, of what `hash` is of and then `bytes`.
inline uint64_t fnv1a(std::span<const std::byte> bytes, uint64_t hash = kHashOfNothing) {
  for (const std::byte b : bytes) hash = (hash ^ static_cast<uint64_t>(b)) * 0x100000001b3u;
  return hash;
}

// SplitMix64's finaliser (Steele, Lea and Flood, 2014): every bit of x moves every bit of the result.
inline uint64_t mixed(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

}  // namespace sluice
