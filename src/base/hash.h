// Hashes: what tells contents apart.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace sluice {

// Two contents of one SHA-256 are the same, bit for bit.
struct Sha256 {
  std::array<uint8_t, 32> bytes{};
  bool operator==(const Sha256&) const = default;
  std::string hex() const;  // 64 digits, as sha256sum prints them
};

// Those of 64 bits are for contents that nobody forged.
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
