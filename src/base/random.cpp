#include "base/random.h"

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

double uniform(const DrawSite& site, uint32_t token) {
  const auto words = philox4x32({token / 4, site.position, site.choice, static_cast<uint32_t>(site.purpose)},
                                {static_cast<uint32_t>(site.seed), static_cast<uint32_t>(site.seed >> 32)});
  return (static_cast<double>(words[token % 4]) + 0.5) * 0x1p-32;
}

double gumbel(const DrawSite& site, uint32_t token) { return -log_f64(-log_f64(uniform(site, token))); }

}  // namespace sluice
