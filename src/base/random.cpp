#include "base/random.h"

#include "base/hash.h"
#include "base/math.h"

namespace sluice {

std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  constexpr uint64_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = kMultiplier0 * counter[0], product1 = kMultiplier1 * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(product0)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return counter;
}

// SplitMix64's step and finaliser: of one path, other tokens give other values.
uint64_t prolong(uint64_t path, int32_t token) {
  return mixed(path + 0x9E3779B97F4A7C15 * (static_cast<uint64_t>(static_cast<uint32_t>(token)) + 1));
}

std::array<double, 4> uniform4(const DrawSite& site, uint32_t block) {
  const auto low = static_cast<uint32_t>(site.path), high = static_cast<uint32_t>(site.path >> 32);
  const auto words = philox4x32({block, site.position ^ low, site.choice ^ high, static_cast<uint32_t>(site.purpose)},
                                {static_cast<uint32_t>(site.seed), static_cast<uint32_t>(site.seed >> 32)});
  std::array<double, 4> uniforms;
  for (int i = 0; i < 4; ++i) uniforms[i] = (static_cast<double>(words[i]) + 0.5) * 0x1p-32;
  return uniforms;
}

double uniform(const DrawSite& site, uint32_t token) { return uniform4(site, token / 4)[token % 4]; }

double gumbel(const DrawSite& site, uint32_t token) { return -log_f64(-log_f64(uniform(site, token))); }

}  // namespace sluice
