// Counter-based randomness: every draw is a pure function of what it is for, never "the next number".
//
// Philox4x32-10: J. Salmon, M. Moraes, R. Dror, D. Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
#pragma once

#include <array>
#include <cstdint>

namespace sluice {

// What a draw is for; part of its counter, so that two purposes never share noise.
enum class Purpose : uint32_t {
  kSample = 0,    // the target's own token at a position
  kDraft = 1,     // a source's token
  kAccept = 2,    // acceptance tests of rule `reject`
  kResidual = 3,  // resampling after a rejection
  kArrival = 8,   // when the requests of a benchmark come
  kLink = 9,      // how long frames take on a link
  kTest = 15,
};

// The ten-round bijection itself: counter and key to four words.
std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// Where a draw is made. `position` is the position of the token that is drawn; `path`, where there may be several
// draws at a position, tells their texts apart.
struct DrawSite {
  uint64_t seed = 0;
  uint32_t choice = 0;
  uint32_t position = 0;
  Purpose purpose = Purpose::kSample;
  uint64_t path = 0;
};

// The path that goes on with `token` after a path: a hash, 0 for the empty one. Paths that differ have different ones,
// as far as 64 bits can tell.
uint64_t prolong(uint64_t path, int32_t token);

// Uniform in the open interval (0, 1): (word + 0.5) / 2^32 for the word of `token` at this site. Tokens 4k … 4k+3 share
// a block.
double uniform(const DrawSite& site, uint32_t token);

// The uniforms of tokens 4 block … 4 block + 3 at this site, for the price of one.
std::array<double, 4> uniform4(const DrawSite& site, uint32_t block);

// Standard Gumbel noise, -log(-log(u)), of `token` at this site; between -3.2 and 22.9. The same bits on every machine.
double gumbel(const DrawSite& site, uint32_t token);

}  // namespace sluice
