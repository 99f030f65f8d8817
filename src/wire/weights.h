// Weights on their way to a stage that does not have them: it asks for what it lacks, block by block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/hash.h"
#include "base/ids.h"

namespace sluice {

inline constexpr uint64_t kWeightBlockBytes = uint64_t{1} << 20;  // the last one of a file may be shorter
inline constexpr size_t kWeightBlocksAhead = 4;                   // that a stage may have asked for and not got

// From a stage that does not have its model, or a head that lacks its file, or what it borrows of its target.
struct WeightsAsked {
  StageId stage;
  bool head = false;  // of the head's own file
};

// From the coordinator: which blocks of these files the stage needs, headers and all.
struct WeightsOffered {
  struct File {
    uint64_t bytes = 0;            // of the whole file
    std::vector<uint32_t> blocks;  // rising
    std::vector<Sha256> hashes;    // of each of these
  };
  std::vector<File> files;  // in the model's or head's order
  uint64_t memory = 0;      // bytes that the stage will take at the least
};

// From the stage, in the order in which it wants them.
struct WeightBlockAsked {
  uint32_t file = 0, block = 0;
  uint32_t left = 1;  // so many does it lack, this one included
  bool head = false;  // as in WeightsAsked
};

// From the coordinator, in the order in which they were asked for.
struct WeightBlock {
  uint32_t file = 0, block = 0;
  std::vector<uint8_t> bytes;
};

}  // namespace sluice
